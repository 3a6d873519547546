package exchange_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// Whenever its host stops, a connection of HTTP ends at once only between an answer and the next
// request: wherever a byte of either is missing, it goes on.
func TestDrainCutsNoRequest(t *testing.T) {
	type said struct {
		byClient bool
		text     string
		boundary bool // all requests have come, and have their answers
	}
	talk := []said{
		{true, post("", "body"), false}, {false, "HTTP/1.1 100 Continue\r\n\r\n" + fixed(ok, "hi"), true},
		{true, chunked("POST / HTTP/1.1\r\nHost: h\r\n", "bo", "dy"), false}, {false, chunked(ok, "h", "i"), true},
		{true, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nb", false}, {false, fixed("HTTP/1.1 413 No\r\n", ""), false}, {true, "ody", true},
		{true, get + get, false}, {false, fixed(ok, "hi"), false}, {false, fixed(ok, "hi"), true},
	}
	for _, class := range []string{"[class.c]\nrate = \"1000 messages/s\"\n", inBody} {
		for last, piece := range talk {
			for n := 1; n <= len(piece.text); n++ {
				w := through(t, policy.HTTP, class)
				for i, s := range talk[:last+1] {
					if i == last {
						s.text = s.text[:n]
					}
					if s.byClient {
						w.send(s.text)
					} else {
						w.answer(s.text)
					}
					w.wait(time.Second)
				}
				w.Machine.Drain(w.Now, false)
				w.Drive(w.Now)
				if want := piece.boundary && n == len(piece.text); w.Retired != want {
					t.Errorf("after %d bytes of %.20q (%d), it ends: %v, want %v", n, piece.text, last, w.Retired, want)
				}
				w.Finish(stats.OK)
			}
		}
	}
}

// PDUs of these tests.
var (
	enquire   = pdu(0x15, 0, 50, "")
	delivered = pdu(0x80000005, 0, 60, "\x00")
	farewell  = pdu(6, 0, 1<<31-1, "")
	farewells = pdu(0x80000006, 0, 1<<31-1, "")
)

func accepted(id uint32) string { return pdu(0x80000004, 0, id, "id\x00") }

// While messages of an old connection wait for their turns, its keep-alives pass, and so do the answers
// of the client: else a peer would end it, and what waits would be lost. What came after its end had
// begun does not leave.
func TestKeepAlivesPassUntilTheEnd(t *testing.T) {
	for _, protocol := range []policy.Protocol{policy.SMPP, policy.ISO8583} {
		w, first, late, alive := slow(t, protocol)
		w.send(first[0] + first[1] + first[2])
		w.Machine.Retire(w.Now, false)
		w.send(late + alive + late + alive)
		if want := first[0] + alive + alive; string(w.Up.Got) != want {
			t.Errorf("%s: %q has left, want %q", protocol, w.Up.Got, want)
		}
		for id := range uint32(3) {
			if protocol == policy.SMPP {
				w.answer(accepted(id))
			}
			w.wait(time.Second)
		}
		want := first[0] + alive + alive + first[1] + first[2]
		if protocol == policy.SMPP {
			want += farewell
		}
		if w.Machine.Retire(w.Now, true); string(w.Up.Got) != want || w.Lingers == w.Retired || w.Machine.Waits() {
			t.Errorf("%s: %q has left, want %q; it waits: %v", protocol, w.Up.Got, want, w.Machine.Waits())
		}
		w.Finish(stats.Aged)
		if n := w.classes["c"].Stats.Dropped[stats.Reset].Items.Load(); n != 2 || w.Up.Cost.Messages != 3 {
			t.Errorf("%s: %d messages count as dropped, and %d as sent", protocol, n, w.Up.Cost.Messages)
		}
	}
}

// Where only quiet ends an old connection, nothing of the client passes any more once all that may leave
// has left: keep-alives would keep it alive, and the late message would never be answered.
func TestKeepAlivesDoNotPutTheEndOff(t *testing.T) {
	w, first, late, alive := slow(t, policy.ISO8583)
	w.send(first[0] + first[1])
	w.Machine.Retire(w.Now, false)
	w.send(late + alive)
	w.wait(time.Second)
	answer := prefixed("0810")
	w.send(answer)
	want := first[0] + alive + first[1] + answer
	for range 3 {
		w.send(alive)
		w.wait(4 * time.Second)
		if w.Machine.Retire(w.Now, false); string(w.Up.Got) != want || w.Machine.Waits() {
			t.Fatalf("%q has left, want %q; it waits: %v", w.Up.Got, want, w.Machine.Waits())
		}
	}
	if w.Machine.Retire(w.Now, true); !w.Retired {
		t.Error("it goes on")
	}
	w.Finish(stats.Aged)
}

// Answers of the client that stand behind what does not leave any more pass at the end of an old connection, wherever
// they are cut, and whether or not they were read before. Messages that do not leave count as dropped, once, and so
// may a keep-alive.
func TestAnswersPassAtTheQuietEnd(t *testing.T) {
	answer := prefixed("0810")
	for _, waits := range []bool{false, true} { // then the first late message is set aside
		_, first, late, alive := slow(t, policy.ISO8583)
		said := late + answer + alive + answer + late + answer
		for cut := range len(said) + 1 {
			w, _, _, _ := slow(t, policy.ISO8583)
			want := first[0]
			if w.send(first[0]); waits {
				w.send(first[1])
				want += first[1]
			}
			w.Machine.Retire(w.Now, false)
			w.send(said[:cut])
			w.wait(time.Second)
			w.Up.In = append(w.Up.In, said[cut:]...)
			if w.Machine.Retire(w.Now, true); !w.Retired { // a part of the first message has come
				w.Drive(w.Now)
			}
			others := strings.NewReplacer(answer, "", alive, "").Replace(string(w.Up.Got)) // keep-alives may pass, or not
			if answers := strings.Count(string(w.Up.Got), answer); !w.Retired || others != want || answers != 3 {
				t.Fatalf("cut at %d, waits %v: the provider gets %q, and it has ended: %v", cut, waits, w.Up.Got, w.Retired)
			}
			w.Finish(stats.Aged)
			if n := w.classes["c"].Stats.Dropped[stats.Reset].Items.Load(); n < 2 || n > 3 {
				t.Errorf("cut at %d, waits %v: %d messages count as dropped", cut, waits, n)
			}
		}
	}
}

// What the client sends at the end of an old connection and cannot be framed ends it as it does before. Nothing that
// stands behind it passes, since nobody knows where the next message begins.
func TestEndOfWhatCannotBeFramed(t *testing.T) {
	const class = "[class.c]\nrate = \"1 messages/s\"\n"
	for _, c := range []struct {
		name            string
		protocol        policy.Protocol
		before, garbage string
		want            string // gets the provider
		most            int    // bytes that one read returns
	}{
		{"a line that is too long", policy.Lines, "late\n", strings.Repeat("x", 200<<10), "", 2000},
		{"a line that is too long, and others", policy.Lines, "late\n", strings.Repeat("x", 70<<10) + "\nline\n", "", 2000},
		{"a PDU that is too short", policy.SMPP, delivered, pdu(4, 0, 1, "")[4:] + delivered, farewell + delivered, 12},
		{"a PDU that is too long", policy.SMPP, delivered, "\xff" + delivered[1:] + delivered, farewell + delivered, len(delivered)},
	} {
		for _, most := range []int{0, c.most} {
			w := through(t, c.protocol, class)
			w.Machine.Retire(w.Now, false)
			w.send(c.before)
			w.Up.Most, w.Up.In = most, append(w.Up.In, c.garbage...)
			w.Machine.Retire(w.Now, true)
			if w.Drive(w.Now); !w.Over || w.Result != stats.Unframed || w.Retired || string(w.Up.Got) != c.want {
				t.Errorf("%s, %d bytes at a time: it has ended: %v, by %v, and well: %v; the provider gets %.200q, want %q",
					c.name, most, w.Over, w.Result, w.Retired, w.Up.Got, c.want)
			}
			w.Finish(stats.Aged)
		}
	}
}

// Messages that come after the unbind count as dropped in the classes that the rules name.
func TestLateMessagesCountInTheirClasses(t *testing.T) {
	w := through(t, policy.SMPP, "[class.c]\nrate = \"9 messages/s\"\n[class.otp]\nrate = \"9 messages/s\"\n[[rule]]\nsource_addr = \"o*\"\nclass = \"otp\"\n")
	submit := func(from string) string { return pdu(4, 0, 1, "\x00\x00\x00"+from+"\x00\x01\x011\x00") }
	w.Machine.Retire(w.Now, false)
	w.send(submit("otp") + submit("bulk") + submit("otp"))
	w.Finish(stats.Aged)
	for name, want := range map[string]uint64{"c": 1, "otp": 2} {
		if n := w.classes[name].Stats.Dropped[stats.Reset].Items.Load(); n != want {
			t.Errorf("%d messages count as dropped in %s, want %d", n, name, want)
		}
	}
}

// slow returns a connection of a protocol with one message a second, three messages for it, one more, and
// a keep-alive.
func slow(t *testing.T, protocol policy.Protocol) (w *wire, first []string, late, alive string) {
	const class = "[class.c]\nrate = \"1 messages/s\"\nqueue = \"9 messages\"\noverflow = \"wait\"\n"
	if protocol == policy.SMPP {
		submit := func(id uint32) string { return pdu(4, 0, id, "") }
		return through(t, protocol, class), []string{submit(0), submit(1), submit(2)}, submit(3), enquire
	}
	now := time.Unix(0, 0)
	p, classes, roots := world(t, now, class+"[listener.l]\nlisten = \"127.0.0.1:1\"\nprotocol = \"iso8583\"\n"+
		"length_prefix = \"binary2\"\nupstream = \"192.0.2.1:1\"\nclass = \"c\"\n")
	w = &wire{connect(p, classes, now), t, classes, roots}
	return w, []string{prefixed("0200a"), prefixed("0200b"), prefixed("0200c")}, prefixed("0200d"), prefixed("0800")
}

// A client that floods an old connection does not put its end off.
func TestFloodDoesNotPutTheEndOff(t *testing.T) {
	w := through(t, policy.SMPP, "[class.c]\nrate = \"1 messages/s\"\noverflow = \"wait\"\n")
	w.send(pdu(4, 0, 0, ""))
	w.Machine.Retire(w.Now, false)
	flood := strings.Repeat(pdu(4, 0, 1, strings.Repeat("x", 500)), 1000)
	for ; len(flood) > 5000; flood = flood[5000:] {
		w.send(flood[:5000])
	}
	if w.answer(accepted(0)); !w.Lingers {
		t.Errorf("%d messages wait, and it goes on", w.Machine.Waiting())
	}
	w.Finish(stats.Aged)
}

// After the unbind of an old connection, the answers of the client pass, wherever they are cut: to what
// has no answer, the provider would deliver it again.
func TestAnswersPassAfterTheUnbind(t *testing.T) {
	said := delivered + pdu(4, 0, 1, "late") + farewells + enquire + delivered
	for cut := range said {
		for _, ends := range []bool{true, false} {
			w := through(t, policy.SMPP, "[class.c]\nrate = \"1 messages/s\"\n")
			w.Machine.Retire(w.Now, false)
			w.send(said[:cut])
			w.Up.In = append(w.Up.In, said[cut:]...)
			if ends {
				w.Up.Ends = io.EOF
			}
			w.Drive(w.Now)
			if want := farewell + delivered + delivered; string(w.Up.Got) != want || w.Retired != ends {
				t.Fatalf("cut at %d, ends %v: the provider gets %q, want %q", cut, ends, w.Up.Got, want)
			}
			w.Finish(stats.Aged)
		}
	}
}
