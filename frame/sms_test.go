package frame

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

// A shortMessage builds a submit_sm, or a data_sm if it has no place for a text.
type shortMessage struct {
	command    uint32
	esm        byte
	coding     byte
	text       []byte
	payload    []byte // as message_payload
	parameters []byte // further TLVs
}

func (s shortMessage) pdu() []byte {
	p := make([]byte, pduHeader)
	binary.BigEndian.PutUint32(p[4:], s.command)
	p = append(p, 0)                      // service_type
	p = append(p, 1, 1, 'A', 0)           // source_addr
	p = append(p, 1, 1, '4', '9', '1', 0) // destination_addr
	if p = append(p, s.esm); s.command == dataSM {
		p = append(p, 0, s.coding)
	} else {
		p = append(p, 0, 0, 0, 0, 0, 0, s.coding, 0, byte(len(s.text)))
		p = append(p, s.text...)
	}
	if s.payload != nil {
		p = append(p, tlv(messagePayload, s.payload)...)
	}
	p = append(p, s.parameters...)
	binary.BigEndian.PutUint32(p, uint32(len(p)))
	return p
}

func tlv(tag uint16, value []byte) []byte {
	p := binary.BigEndian.AppendUint16(nil, tag)
	return append(binary.BigEndian.AppendUint16(p, uint16(len(value))), value...)
}

// texts returns a text as PDUs have it, by data_coding.
func texts(text string) map[byte][]byte {
	all := map[byte][]byte{8: {}}
	for _, u := range utf16.Encode([]rune(text)) {
		all[8] = binary.BigEndian.AppendUint16(all[8], u)
	}
	latin, gsm, isLatin, isGSM := []byte{}, []byte{}, true, true
	for _, r := range text {
		if r > 0xff {
			isLatin = false
		}
		latin = append(latin, byte(r))
		switch {
		case r == '€' || strings.ContainsRune("^{}\\[~]|\f", r):
			gsm = append(gsm, gsmEscape, 'x')
		case r > 0xff || latinInGSM[byte(r)] != 1:
			isGSM = false
		default:
			gsm = append(gsm, 'x')
		}
	}
	if isLatin {
		all[3] = latin
	}
	if isGSM {
		all[0], all[0xf0] = gsm, gsm
	}
	return all
}

// The parts are those that another implementation counts; see testdata/segments.js.
func TestSegmentsOfAnotherImplementation(t *testing.T) {
	file, err := os.ReadFile("testdata/segments.tsv")
	if err != nil {
		t.Fatal(err)
	}
	checked := map[byte]int{}
	for line := range strings.Lines(string(file)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		want, _ := strconv.ParseInt(fields[1], 10, 64)
		var text string
		if err := json.Unmarshal([]byte(fields[2]), &text); err != nil {
			t.Fatal(err)
		}
		for coding, octets := range texts(text) {
			if coding == 8 && fields[0] != "UCS-2" {
				continue // it was sent in the GSM alphabet
			}
			checked[coding]++
			s := shortMessage{command: submitSM, coding: coding, text: octets}
			if len(octets) > 254 {
				s.text, s.payload = nil, octets
			}
			data := shortMessage{command: dataSM, coding: coding, payload: octets}
			for _, pdu := range [][]byte{s.pdu(), data.pdu()} {
				if got := Segments(pdu); got != max(want, 1) {
					t.Errorf("data_coding %d of %d octets: %d parts, want %d: %q", coding, len(octets), got, want, text)
				}
			}
		}
	}
	for _, coding := range []byte{0, 3, 8, 0xf0} {
		if checked[coding] < 50 {
			t.Errorf("only %d texts with data_coding %d", checked[coding], coding)
		}
	}
}

func TestSegments(t *testing.T) {
	of := func(n int) []byte { return []byte(strings.Repeat("x", n)) }
	with := func(header []byte, n int) []byte { return append(header, of(n)...) }
	sar := append(append(tlv(0x020c, []byte{0, 1}), tlv(sarTotalSegments, []byte{3})...), tlv(sarSegment, []byte{2})...)
	port := []byte{6, 5, 4, 0x0b, 0x84, 0x23, 0xf0} // a header of seven octets, with ports
	for _, c := range []struct {
		name string
		s    shortMessage
		want int64
	}{
		{"octets", shortMessage{coding: 4, text: of(140)}, 1},
		{"many octets", shortMessage{coding: 4, text: of(141)}, 2},
		{"octets by message class", shortMessage{coding: 0xf5, text: of(141)}, 2},
		{"UCS-2 by general data coding", shortMessage{coding: 0x18, text: of(142)}, 2},
		{"message waiting", shortMessage{coding: 0xc8, text: of(160)}, 1},
		{"Cyrillic", shortMessage{coding: 6, text: of(71)}, 2},
		{"a part by its header", shortMessage{esm: 0x40, text: with([]byte{5, 0, 3, 7, 3, 1}, 153)}, 1},
		{"a part by a reference of 16 bits", shortMessage{esm: 0x40, coding: 8, text: with([]byte{6, 8, 4, 0, 7, 3, 1}, 132)}, 1},
		{"a long payload that says it is a part", shortMessage{esm: 0x40, payload: with([]byte{5, 0, 3, 7, 3, 1}, 500)}, 1},
		{"a part by sar", shortMessage{text: of(200), parameters: sar}, 1},
		{"the only one by sar", shortMessage{text: of(200), parameters: append(tlv(sarTotalSegments, []byte{1}), tlv(sarSegment, []byte{1})...)}, 2},
		{"ports", shortMessage{esm: 0x40, coding: 4, text: with(port, 133)}, 1},
		{"ports and one octet more", shortMessage{esm: 0x40, coding: 4, text: with(port, 134)}, 2},
		{"ports and septets", shortMessage{esm: 0x40, text: with(port, 152)}, 1},
		{"ports and one septet more", shortMessage{esm: 0x40, text: with(port, 153)}, 2},
		{"a header that is cut", shortMessage{esm: 0x40, text: []byte{9, 0, 3}}, 1},
		{"a header longer than an SMS", shortMessage{esm: 0x40, text: with([]byte{200}, 200)}, 1},
		{"a header longer than an SMS, and a text", shortMessage{esm: 0x40, coding: 4, text: with([]byte{200}, 203)}, 2},
		{"only escapes", shortMessage{text: []byte(strings.Repeat("\x1b", 200))}, 2},
		{"several recipients", shortMessage{command: submitMulti}, 1},
	} {
		if c.s.command == 0 {
			c.s.command = submitSM
		}
		if got := Segments(c.s.pdu()); got != c.want {
			t.Errorf("%s: %d parts, want %d", c.name, got, c.want)
		}
	}
}

// However a PDU is cut or false, it has at least one part and at most one for each of its octets.
func FuzzSegments(f *testing.F) {
	f.Add(shortMessage{command: submitSM, text: []byte("x")}.pdu())
	f.Add(shortMessage{command: dataSM, esm: 0x40, payload: []byte{5, 0, 3, 7, 3, 1, 'x'}}.pdu())
	f.Add(shortMessage{command: submitSM, esm: 0x40, coding: 8, text: []byte{255}}.pdu())
	f.Add(shortMessage{command: submitSM, esm: 0x40, text: append([]byte{200}, make([]byte, 200)...)}.pdu())
	f.Fuzz(func(t *testing.T, pdu []byte) {
		if n := Segments(pdu); n < 1 || n > int64(max(len(pdu), 1)) {
			t.Fatalf("%d parts of %d octets", n, len(pdu))
		}
	})
}

// A Content is what a client or server has put into a body, however its bytes are cut.
func TestContent(t *testing.T) {
	for _, c := range []struct{ head, body, want string }{
		{"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", "helloGET", "hello"},
		{"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nA: b\r\n\r\nGET", "hello"},
	} {
		for cut := 1; cut < len(c.body); cut++ {
			l := NewLink(httpSettings)
			if _, ev, err := l.Up().Next([]byte(c.head + c.body)); ev != Head || err != nil {
				t.Fatal(ev, err)
			}
			content, got, rest, ended := NewContent(l.Up()), "", []byte(nil), false
			for _, piece := range []string{c.body[:cut], c.body[cut:]} {
				rest = append(rest, piece...)
				for !ended {
					n, data, end := content.Next(rest)
					if n == 0 {
						break
					}
					got, rest, ended = got+string(data), rest[n:], end
				}
			}
			if got != c.want || !ended || string(rest) != "GET" {
				t.Errorf("%q, cut at %d: %q, ended %v, then %q", c.body, cut, got, ended, rest)
			}
		}
	}
}
