package frame

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var smppSettings = Settings{Protocol: SMPP}

func pdu(command, status, sequence uint32, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.BigEndian.AppendUint32(b, command)
	b = binary.BigEndian.AppendUint32(b, status)
	return append(binary.BigEndian.AppendUint32(b, sequence), body...)
}

func submit(sequence uint32, source string) []byte {
	return pdu(submitSM, 0, sequence, "\x00\x05\x00"+source+"\x00\x01\x0149171000000\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05hello")
}

func submitMany(sequence uint32, dests ...string) []byte {
	body := "WAP\x00\x01\x01447700\x00" + string(rune(len(dests)))
	for _, d := range dests {
		body += "\x01\x01\x01" + d + "\x00"
	}
	return pdu(submitMulti, 0, sequence, body+"\x00\x00\x00")
}

// These are PDUs that Net::SMPP 1.19 has sent.
func TestSMPPFromTheWire(t *testing.T) {
	stream, err := hex.DecodeString("" +
		"0000002100000009000000000000000161636d6500736563726574000034000000" +
		"000000370000000400000000000000020000006f7470000000343931373130303030300000000000000000000009636f64652031323334" +
		"0000003700000021000000000000000300000062756c6b00030100003100010000320001000033000000000000000000000568656c6c6f" +
		"0000002a00000103000000000000000400000062756c6b0000003400000000042400077061796c6f6164" +
		"00000010000000150000000000000005" +
		"00000010000000060000000000000006")
	if err != nil {
		t.Fatal(err)
	}
	expectRecords(t, everyCut(t, smppSettings, up, stream),
		"whole@33 control 0 system_id=acme 0x9/1",
		"whole@88 counted 1 refusable system_id=acme source_addr=otp 0x4/2",
		"whole@143 counted 3 refusable system_id=acme source_addr=bulk 0x21/3",
		"whole@185 counted 1 refusable system_id=acme source_addr=bulk 0x103/4",
		"whole@201 control 0 system_id=acme 0x15/5",
		"whole@217 control 0 in-order system_id=acme 0x6/6")
}

func TestSMPPCommands(t *testing.T) {
	for _, c := range []struct {
		name string
		pdu  []byte
		want string
	}{
		{"submit_sm", submit(7, "otp"), "counted 1 refusable source_addr=otp 0x4/7"},
		{"data_sm", pdu(dataSM, 0, 8, "\x00\x01\x01from\x00\x01\x01to\x00\x00\x00\x00"), "counted 1 refusable source_addr=from 0x103/8"},
		{"broadcast_sm", pdu(broadcastSM, 0, 8, "\x00\x01\x01from\x00"), "counted 1 refusable source_addr=from 0x111/8"},
		{"submit_multi", submitMany(9, "1", "2", "3"), "counted 3 refusable source_addr=447700 0x21/9"},
		{"submit_multi to none", submitMany(9), "counted 1 refusable source_addr=447700 0x21/9"},
		{"submit_multi without all", pdu(submitMulti, 0, 9, "WAP\x00\x01\x01447700"), "counted 1 refusable 0x21/9"},
		{"submit_sm without a body", pdu(submitSM, 0, 9, ""), "counted 1 refusable 0x4/9"},
		{"deliver_sm", pdu(deliverSM, 0, 9, "\x00\x01\x01me\x00"), "counted 1 source_addr=me 0x5/9"},
		{"enquire_link", pdu(0x15, 0, 1, ""), "control 0 0x15/1"},
		{"outbind", pdu(0x0b, 0, 1, "a\x00b\x00"), "control 0 0xb/1"},
		{"unbind", pdu(unbind, 0, 2, ""), "control 0 in-order 0x6/2"},
		{"cancel_sm", pdu(cancelSM, 0, 2, ""), "control 0 in-order 0x8/2"},
		{"unknown", pdu(0x10203, 0, 3, "?"), "control 0 0x10203/3"},
		{"deliver_sm_resp", pdu(deliverSM|responseBit, 0, 4, "\x00"), "response 0 0x80000005/4"},
		{"generic_nack", pdu(responseBit, 3, 4, ""), "response 0 0x80000000/4 status=3"},
		{"bind_transceiver", pdu(bindTransceiver, 0, 1, "user\x00"), "control 0 system_id=user 0x9/1"},
		{"a system_id without end", pdu(bindTransceiver, 0, 1, "user"), "control 0 0x9/1"},
		{"a system_id of 40", pdu(bindTransceiver, 0, 1, "0123456789012345678901234567890123456789\x00"),
			"control 0 system_id=0123456789012345 0x9/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := everyCut(t, smppSettings, up, c.pdu)
			expectRecords(t, r, fmt.Sprintf("whole@%d %s", len(c.pdu), c.want))
		})
	}
}

func TestSMPPLengths(t *testing.T) {
	largest := pdu(submitSM, 0, 1, string(make([]byte, maxPDU-16)))
	if r := sameForAllCuts(t, smppSettings, up, largest, []int{1, 4, 16, maxPDU - 1}); r.err != nil || len(r.records) != 1 {
		t.Errorf("%v, %v", r.records, r.err)
	}
	for length, want := range map[uint32]Reason{
		0: BadLength, 15: BadLength, maxPDU + 1: TooLong, 1<<32 - 1: TooLong, 1 << 31: TooLong, 17: CutShort,
	} {
		stream := submit(1, "x")
		whole := int64(len(stream))
		stream = append(stream, pdu(0x15, 0, 2, "")...)
		binary.BigEndian.PutUint32(stream[whole:], length)
		r := everyCut(t, smppSettings, up, stream)
		if got := reasonOf(r.err); got != want || len(r.records) != 1 {
			t.Errorf("length %d: %v, %v", length, r.records, r.err)
		}
		if e := r.err.(*Error); want != CutShort && e.Offset != whole {
			t.Errorf("length %d: the fault is at %d, want %d", length, e.Offset, whole)
		}
	}
}

// respond gives a link what a provider answers.
func respond(t *testing.T, l Link, p []byte) Message {
	t.Helper()
	n, ev, err := l.Down().Next(p)
	if n != len(p) || ev != Whole || err != nil {
		t.Fatalf("%v of %d bytes, %v", ev, n, err)
	}
	return *l.Down().Message()
}

func TestSMPPAnswers(t *testing.T) {
	l := NewLink(smppSettings)
	send := func(sequence uint32) { l.Sent(&Message{Kind: Counted, Command: submitSM, Sequence: sequence}, start) }
	answers := func(command, status, sequence uint32, want bool, inFlight int) {
		t.Helper()
		m := respond(t, l, pdu(command, status, sequence, ""))
		if m.Answers != want || l.InFlight() != inFlight {
			t.Errorf("%#x/%d: answers %v, and %d requests are in flight", command, sequence, m.Answers, l.InFlight())
		}
	}
	send(1)
	send(2)
	send(1<<32 - 1)
	answers(0x80000015, 0, 1, false, 3) // an enquire_link_resp with that number
	answers(0x80000004, 0, 3, false, 3) // the answer to no request
	answers(0x80000004, 0, 2, true, 2)
	answers(0x80000004, 0, 2, false, 2) // a second answer
	answers(0x80000000, 3, 1<<32-1, true, 1)
	answers(0x80000021, 0, 1, true, 0)
}

func TestSMPPThrottles(t *testing.T) {
	congested := "\x04\x28\x00\x01\x64"
	for _, c := range []struct {
		name       string
		pdu        []byte
		limited    bool
		congestion uint8
	}{
		{"accepted", pdu(0x80000004, 0, 1, "id\x00"), false, 0},
		{"throttled", pdu(0x80000004, 0x58, 1, ""), true, 0},
		{"throttled, with a body", pdu(0x80000004, 0x58, 1, "\x00"), true, 0},
		{"queue full", pdu(0x80000103, 0x14, 1, ""), true, 0},
		{"nack", pdu(0x80000000, 0x58, 1, ""), true, 0},
		{"congested", pdu(0x80000004, 0, 1, "id\x00\x12\x34\x00\x02ab"+congested), false, 101},
		{"idle", pdu(0x80000004, 0, 1, "id\x00\x04\x28\x00\x01\x00"), false, 1},
		{"a bind that tells of congestion", pdu(0x80000009, 0, 1, "smsc\x00"+congested), false, 101},
		{"an enquire_link that tells of congestion", pdu(0x80000015, 0, 1, congested), false, 101},
		{"101", pdu(0x80000015, 0, 1, "\x04\x28\x00\x01\x65"), false, 0},
		{"of two bytes", pdu(0x80000015, 0, 1, "\x04\x28\x00\x02\x64\x64"), false, 0},
		{"cut off", pdu(0x80000015, 0, 1, "\x04\x28\x00\x02\x64"), false, 0},
		{"some of many", pdu(0x80000021, 0, 1, "id\x00\x02\x01\x01a\x00\x00\x00\x00\x0b\x01\x01b\x00\x00\x00\x00\x58"+congested), true, 101},
		{"the first of many", pdu(0x80000021, 0, 1, "id\x00\x02\x01\x01a\x00\x00\x00\x00\x14\x01\x01b\x00\x00\x00\x00\x0b"), true, 0},
		{"many, cut off", pdu(0x80000021, 0, 1, "id\x00\xff\x01\x01a\x00\x00\x00\x00\x0b\x01\x01b\x00\x00\x00"), false, 0},
		{"none of many", pdu(0x80000021, 0, 1, "id\x00\x00"+congested), false, 101},
		{"a request of the provider", pdu(0x15, 0x58, 1, congested), false, 0},
	} {
		m := respond(t, NewLink(smppSettings), c.pdu)
		if m.Throttle.Limited != c.limited || m.Throttle.Congestion != c.congestion {
			t.Errorf("%s: %+v", c.name, m.Throttle)
		}
	}
}

func TestSMPPRefusal(t *testing.T) {
	for _, c := range []struct {
		request []byte
		want    string
	}{
		{submit(0x01020304, "x"), "00000010800000040000005801020304"},
		{submitMany(5, "1"), "00000010800000210000005800000005"},
		{pdu(dataSM, 0, 6, ""), "00000010800001030000005800000006"},
		{pdu(broadcastSM, 0, 7, ""), "00000010800001110000005800000007"},
	} {
		l := NewLink(smppSettings)
		if _, ev, err := l.Up().Next(c.request); ev != Whole || err != nil {
			t.Fatal(ev, err)
		}
		m := l.Up().Message()
		if !l.Refuse(m, true) {
			t.Error("a PDU has to wait before it is refused")
		}
		if got := hex.EncodeToString(l.AppendRefusal(nil, m, Refusal{})); got != c.want {
			t.Errorf("%x is refused with %s", c.request, got)
		}
		if l.InFlight() != 0 {
			t.Error("a refused request is in flight")
		}
	}
}

// requests returns what a plain multiset returns, for any sequence of calls.
func TestWindowIsAMultiset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w requests
		model := map[uint32][]time.Time{}
		count, now := 0, start
		number := rapid.OneOf(rapid.Uint32Range(0, 40), rapid.SampledFrom([]uint32{1 << 31, 1<<32 - 1, 16, 32, 48, 1024}))
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Second)
			n := number.Draw(t, "number")
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				before := now.Add(-time.Duration(rapid.IntRange(0, 200).Draw(t, "age")) * time.Second)
				want := 0
				for n, sent := range model {
					var kept []time.Time
					for _, at := range sent {
						if at.Before(before) {
							want++
						} else {
							kept = append(kept, at)
						}
					}
					model[n] = kept
				}
				count -= want
				got := 0
				w.expire(before, func(tag uint16) {
					if tag != 7 {
						t.Fatalf("tag %d", tag)
					}
					got++
				})
				if got != want {
					t.Fatalf("%d requests expired, want %d", got, want)
				}
			case 1, 2, 3, 4:
				sent := model[n]
				if len(sent) > 1 { // any of them may go
					continue
				}
				if tag, ok := w.remove(n); ok != (len(sent) > 0) || ok && tag != 7 {
					t.Fatalf("sequence number %d: answered %v, of %d sent; tag %d", n, ok, len(sent), tag)
				}
				count -= len(sent)
				model[n] = nil
			default:
				w.add(n, 7, now)
				model[n] = append(model[n], now)
				count++
			}
			if w.used != count {
				t.Fatalf("%d requests are in flight, want %d", w.used, count)
			}
		}
	})
}

// However many requests with numbers that count up are in flight, few stand side by side, as each answer passes those behind its
// request.
func TestWindowSpreadsRequests(t *testing.T) {
	for _, step := range []uint32{1, 2, 10, 256, 1 << 16} {
		var w requests
		for i := range uint32(maxInFlight) {
			if w.add(i*step, 0, start); i%251 != 0 {
				continue
			}
			longest, run := 0, 0
			for _, r := range slices.Concat(w.slots, w.slots) { // a run goes on at the beginning
				if run++; !r.taken {
					run = 0
				}
				longest = max(longest, run)
			}
			if longest > 16 {
				t.Fatalf("of %d requests whose numbers are %d apart, %d stand side by side", i+1, step, longest)
			}
		}
	}
}

func TestWindowIsBounded(t *testing.T) {
	l := NewLink(smppSettings)
	for i := range uint32(maxInFlight) {
		if !l.Room() {
			t.Fatalf("there is no room for request %d", i)
		}
		l.Sent(&Message{Sequence: i << 16}, start)
	}
	if l.Room() {
		t.Error("there is room beyond the bound")
	}
	gone := 0
	count := func(uint16) { gone++ }
	if l.Expire(start, count); gone != 0 {
		t.Errorf("%d requests expired that were sent at that time", gone)
	}
	if l.Expire(start.Add(1), count); gone != maxInFlight || l.InFlight() != 0 || !l.Room() {
		t.Errorf("%d requests expired, and %d remain", gone, l.InFlight())
	}
	if slots := l.(*smppLink).requests.slots; slots != nil {
		t.Errorf("requests without any keep %d slots", len(slots))
	}
}

func TestSMPPFieldsOfSubmits(t *testing.T) {
	const submitTail = "\x40\x7f\x03\x00\x00\x01\x00\x08\x00\x05hello" // no times
	for _, c := range []struct {
		name                  string
		command               uint32
		body                  string
		recipient, esm, coded string // "-" stands for none
	}{
		{"submit_sm", submitSM, "WAP\x00\x05\x00otp\x00\x01\x0149171\x00" + submitTail, "49171", "\x40", "\x08"},
		{"times", submitSM, "\x00\x05\x00otp\x00\x01\x0149171\x00\x03\x00\x00" + "261122170000000R\x00" + "000001000000000R\x00" + "\x01\x00\xf5\x00\x00", "49171", "\x03", "\xf5"},
		{"deliver_sm", deliverSM, "\x00\x05\x00otp\x00\x01\x01\x00" + submitTail, "", "\x40", "\x08"},
		{"data_sm", dataSM, "\x00\x05\x00otp\x00\x01\x0149171\x00\x02\x01\x04", "49171", "\x02", "\x04"},
		{"submit_multi of one", submitMulti, "\x00\x05\x00otp\x00\x01\x01\x01\x0149171\x00" + submitTail, "49171", "\x40", "\x08"},
		{"submit_multi of two", submitMulti, "\x00\x05\x00otp\x00\x02\x01\x01\x0149171\x00\x01\x01\x0149172\x00" + submitTail, "-", "\x40", "\x08"},
		{"submit_multi of a list", submitMulti, "\x00\x05\x00otp\x00\x01\x02friends\x00" + submitTail, "-", "\x40", "\x08"},
		{"broadcast_sm", broadcastSM, "\x00\x05\x00otp\x00\x01\x0149171\x00" + submitTail, "-", "-", "-"},
		{"cut in the recipient", submitSM, "\x00\x05\x00otp\x00\x01\x0149171", "-", "-", "-"},
		{"cut behind the recipient", submitSM, "\x00\x05\x00otp\x00\x01\x0149171\x00", "49171", "-", "-"},
		{"cut behind esm_class", submitSM, "\x00\x05\x00otp\x00\x01\x0149171\x00\x40\x00\x00", "49171", "\x40", ""},
		{"cut in the destinations", submitMulti, "\x00\x05\x00otp\x00\x02\x01\x01\x0149171\x00\x01", "-", "-", "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			link := NewLink(smppSettings)
			whole := pdu(c.command, 0, 1, c.body)
			if n, ev, err := link.Up().Next(whole); n != len(whole) || ev != Whole || err != nil {
				t.Fatalf("Next = %d, %v, %v", n, ev, err)
			}
			says := link.Up().Message().Submit()
			for _, field := range []struct {
				name string
				got  []byte
				want string
			}{{"recipient", says.Recipient, c.recipient}, {"esm_class", says.ESMClass, c.esm}, {"data_coding", says.DataCoding, c.coded}} {
				got := string(field.got)
				if field.got == nil {
					got = "-"
				}
				if got != field.want && (got != "-" || field.want != "") {
					t.Errorf("%s = %q, want %q", field.name, got, field.want)
				}
			}
		})
	}
}

func TestHTTPFields(t *testing.T) {
	link := NewLink(Settings{Protocol: HTTP})
	head := "POST /v1/x HTTP/1.1\r\nHost: a\r\nX-Api-Key:  one \r\nX-API-KEY: two\r\n\r\n"
	if _, _, err := link.Up().Next([]byte(head)); err != nil {
		t.Fatal(err)
	}
	if got, want := string(link.Up().Message().Fields), "Host: a\r\nX-Api-Key:  one \r\nX-API-KEY: two\r\n\r\n"; got != want {
		t.Errorf("fields = %q, want %q", got, want)
	}
}
