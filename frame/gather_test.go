package frame

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// prefixed returns a message with its length before it.
func prefixed(s Settings, message string) []byte {
	n := len(message)
	if s.IncludesPrefix {
		n += s.Prefix.size()
	}
	digits := fmt.Sprintf("%04d", n)
	switch s.Prefix {
	case ASCII4:
		return []byte(digits + message)
	case BCD2:
		return append([]byte{(digits[0]-'0')<<4 | (digits[1] - '0'), (digits[2]-'0')<<4 | (digits[3] - '0')}, message...)
	case VML:
		return append([]byte{byte(n >> 8), byte(n), 0, 0}, message...)
	}
	return append([]byte{byte(n >> 8), byte(n)}, message...)
}

// allPrefixes returns all ways to frame an ISO 8583 message.
func allPrefixes() (all []Settings) {
	for _, p := range []Prefix{Binary2, ASCII4, BCD2, VML} {
		for _, includes := range []bool{false, true} {
			all = append(all, Settings{Protocol: ISO8583, Prefix: p, IncludesPrefix: includes})
		}
	}
	return all
}

func TestISO8583Prefixes(t *testing.T) {
	for _, s := range allPrefixes() {
		t.Run(fmt.Sprint(s.Prefix, s.IncludesPrefix), func(t *testing.T) {
			messages := []string{"0200B2200000", "0420" + strings.Repeat("x", 1200), "", "0800\x82", "0210ok"}
			var stream []byte
			var want []string
			for i, what := range []string{"counted 1", "counted 1", "control 0", "control 0", "response 0"} {
				stream = append(stream, prefixed(s, messages[i])...)
				want = append(want, fmt.Sprintf("whole@%d %s", len(stream), what))
			}
			expectRecords(t, everyCut(t, s, up, stream), want...)
			cut := scan(t, s, up, stream[:len(stream)-1], whole)
			if reasonOf(cut.err) != CutShort {
				t.Errorf("without its last byte the error is %v", cut.err)
			}
		})
	}
}

// The bytes of each prefix are written out here, so that this test does not depend on
// prefixed.
func TestISO8583Bytes(t *testing.T) {
	for _, c := range []struct {
		prefix   Prefix
		includes bool
		stream   string
	}{
		{Binary2, false, "\x01\x04"}, {Binary2, true, "\x01\x06"},
		{ASCII4, false, "0260"}, {ASCII4, true, "0264"},
		{BCD2, false, "\x02\x60"}, {BCD2, true, "\x02\x62"},
		{VML, false, "\x01\x04\x00\x00"}, {VML, true, "\x01\x08\x07\xff"},
	} {
		s := Settings{Protocol: ISO8583, Prefix: c.prefix, IncludesPrefix: c.includes}
		stream := c.stream + "0200" + strings.Repeat("7", 256)
		r := scan(t, s, up, []byte(stream+"00"), whole) // the second message has only begun
		if len(r.records) != 1 || r.records[0].end != int64(len(stream)) {
			t.Errorf("%s, includes itself %v: %v", c.prefix, c.includes, r.records)
		}
	}
}

func TestISO8583Lengths(t *testing.T) {
	for _, c := range []struct {
		prefix   Prefix
		includes bool
		stream   string
		want     Reason
	}{
		{ASCII4, false, "00a8", BadLength}, {ASCII4, false, " 12x", BadLength}, {ASCII4, false, "-001", BadLength},
		{BCD2, false, "\x0a\x00", BadLength}, {BCD2, false, "\x00\xf0", BadLength},
		{Binary2, true, "\x00\x01", BadLength}, {ASCII4, true, "0003", BadLength}, {VML, true, "\x00\x03\x00\x00", BadLength},
		{BCD2, true, "\x00\x00", BadLength}, {Binary2, true, "\x00\x02", fine}, {ASCII4, true, "0004", fine},
		{Binary2, false, "\x00\x00", fine}, {Binary2, false, "\xff\xff0200", CutShort},
	} {
		s := Settings{Protocol: ISO8583, Prefix: c.prefix, IncludesPrefix: c.includes}
		r := everyCut(t, s, up, []byte(c.stream))
		if got := reasonOf(r.err); got != c.want {
			t.Errorf("%s, includes itself %v, %q: %v", c.prefix, c.includes, c.stream, r.err)
		}
	}
}

func TestISO8583Largest(t *testing.T) {
	for _, s := range allPrefixes() {
		n := s.Prefix.most()
		if s.IncludesPrefix {
			n -= s.Prefix.size()
		}
		stream := prefixed(s, "0200"+strings.Repeat("x", n-4))
		if len(stream) > s.Bound() {
			t.Errorf("%v: a message has %d bytes, and the bound is %d", s, len(stream), s.Bound())
		}
		if r := scan(t, s, up, stream, whole); r.err != nil || len(r.records) != 1 {
			t.Errorf("%v: %v, %v", s, r.records, r.err)
		}
	}
}

func TestMessageTypes(t *testing.T) {
	for _, c := range []struct {
		header  int
		message string
		want    Kind
	}{
		{0, "0100", Counted}, {0, "0200rest", Counted}, {0, "0400", Counted}, {0, "0420", Counted}, {0, "0421", Counted},
		{0, "0110", Response}, {0, "0210", Response}, {0, "0430", Response}, {0, "1210", Response}, {0, "0410", Response},
		{0, "0800", Control}, {0, "0804", Control}, {0, "0820", Control}, {0, "1804", Control}, {0, "2804", Control},
		{0, "0810", Response}, {0, "1814", Response},
		{0, "\x02\x00", Counted}, {0, "\x02\x10", Response}, {0, "\x08\x00\x82", Control}, {0, "\x18\x04", Control},
		{0, "\xf0\xf2\xf0\xf0", Counted}, {0, "\xf0\xf8\xf0\xf0", Control}, {0, "\xf0\xf2\xf1\xf0", Response},
		{5, "\x60\x00\x01\x00\x020800", Control}, {5, "\x60\x00\x01\x00\x02\x02\x10", Response},
		{12, "ISO016000075" + "0800", Control},
		{0, "08", Counted}, {0, "8", Counted}, {0, "08:0", Counted}, {0, "\x0f\x00", Counted}, {0, "\x08\x0f", Counted},
		{0, "\xf0\xf8\xf0\xfa", Counted}, {5, "0800", Counted}, {5, "\x60\x00\x01\x00\x02", Counted}, {0, "hello", Counted},
	} {
		s := Settings{Protocol: ISO8583, Prefix: Binary2, Header: c.header}
		r := scan(t, s, up, prefixed(s, c.message), whole)
		if r.err != nil || len(r.records) != 1 {
			t.Fatalf("%q: %v", c.message, r.err)
		}
		if got := r.scanner.Message(); got.Kind != c.want || (got.Cost == 1) != (c.want == Counted) || got.Refusable {
			t.Errorf("%q after a header of %d bytes is %v", c.message, c.header, describe(got))
		}
	}
}

func TestLines(t *testing.T) {
	stream := []byte("one\r\n\n\r\ntwo\n \n\x00\nlast")
	expectRecords(t, everyCut(t, Settings{Protocol: Lines}, up, stream),
		"whole@5 counted 1", "whole@6 control 0 in-order", "whole@8 control 0 in-order", "whole@12 counted 1",
		"whole@14 counted 1", "whole@16 counted 1", "whole@20 counted 1")
	if r := scan(t, Settings{Protocol: Lines}, up, []byte("a\n"), whole); len(r.records) != 1 || r.err != nil {
		t.Errorf("%v, %v", r.records, r.err)
	}
}

func TestLongestLine(t *testing.T) {
	line := append(bytes.Repeat([]byte("x"), maxLine-1), '\n')
	stream := append([]byte("a\n"), line...)
	if r := sameForAllCuts(t, Settings{Protocol: Lines}, up, stream, []int{1, 2, maxLine}); r.err != nil || len(r.records) != 2 {
		t.Errorf("%v, %v", r.records, r.err)
	}
	for _, stream := range [][]byte{append([]byte("a\nx"), line...), append([]byte("a\n"), line[:maxLine-1]...)} {
		stream = append(stream, 'x')
		r := sameForAllCuts(t, Settings{Protocol: Lines}, up, stream, []int{1, 2, maxLine})
		if got := fmt.Sprint(r.err); got != "lines: too-long at byte 2" {
			t.Errorf("%v, %v", r.records, r.err)
		}
	}
}

func TestWhatCannotRefuse(t *testing.T) {
	for _, s := range []Settings{{Protocol: Lines}, {Protocol: ISO8583, Prefix: ASCII4}} {
		l := NewLink(s)
		l.Sent(&Message{}, start)
		if _, due := l.Due(); due || !l.Room() || l.InFlight() != 0 ||
			len(l.AppendRefusal(nil, &Message{}, Refusal{})) != 0 {
			t.Errorf("%s tells of an answer", s.Protocol)
		}
		if l.Up().Opaque() != 0 {
			t.Errorf("%s lets bytes pass without Next", s.Protocol)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		s    Settings
		want string
	}{
		{Settings{Protocol: SMPP}, ""}, {Settings{Protocol: HTTP}, ""}, {Settings{Protocol: Lines}, ""},
		{Settings{Protocol: ISO8583, Prefix: VML, IncludesPrefix: true, Header: 5}, ""},
		{Settings{Protocol: "tcp"}, `frame: "tcp" is not a protocol with messages`},
		{Settings{Protocol: SMPP, Prefix: BCD2}, "frame: smpp takes no length prefix"},
		{Settings{Protocol: ISO8583}, `frame: "" is not a length prefix of ISO 8583`},
		{Settings{Protocol: ISO8583, Prefix: BCD2, Header: 10000}, "frame: a header of 10000 bytes does not fit in a message of at most 9999"},
		{Settings{Protocol: ISO8583, Prefix: BCD2, Header: -1}, "frame: a header of -1 bytes does not fit in a message of at most 9999"},
	} {
		got := ""
		if err := c.s.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q", c.s, got)
		}
	}
}

// Reasons are labels of metrics, so there are few, and no two are equal.
func TestReasonsAreLabels(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reasons() {
		text := r.String()
		if text == "" || seen[text] || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz-2") != "" {
			t.Errorf("reason %d is %q", r, text)
		}
		seen[text] = true
	}
	if len(seen) != int(reasons)-1 {
		t.Errorf("there are %d reasons", len(seen))
	}
}
