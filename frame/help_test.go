package frame

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A record is an event that begins or ends a message.
type record struct {
	ev   Event
	end  int64 // where the bytes of the event end in the stream
	what gist
}

// A gist is what of a message is compared.
type gist struct {
	Message string // the text of describe, if the reader describes
	kind    Kind
	cost    int64
	answers bool
	status  int
	rest    uint64 // a hash of all other fields
}

func (r record) String() string { return fmt.Sprintf("%v@%d %s", r.ev, r.end, r.what.Message) }

// A reader gives a stream to a scanner as a session does: what remained, and then what was
// read behind it.
type reader struct {
	t         testing.TB
	scanner   Scanner
	bound     int
	stream    []byte
	passed    int // bytes that the scanner has let pass
	arrived   int // bytes that were read
	records   []record
	err       error
	held      bool
	describes bool           // the records have texts
	found     func(*Message) // is called with each Whole or Head; may be nil
}

func newReader(t testing.TB, s Settings, scanner Scanner, stream []byte) *reader {
	return &reader{t: t, scanner: scanner, bound: s.Bound(), stream: stream}
}

// read lets n more bytes arrive, and drives the scanner.
func (r *reader) read(n int) {
	r.arrived = min(r.arrived+n, len(r.stream))
	r.drive()
}

func (r *reader) remaining() []byte { return r.stream[r.passed:r.arrived:r.arrived] }

func (r *reader) drive() {
	for r.err == nil {
		left := r.remaining()
		n, ev, err := r.scanner.Next(left)
		r.held = ev == Hold
		switch {
		case err != nil:
			r.err = err
			if _, _, again := r.scanner.Next(left); n != 0 || again == nil || again.Error() != err.Error() {
				r.t.Fatalf("Next returns %v with %d bytes, and then %v", err, n, again)
			}
			return
		case ev == More || ev == Hold:
			if n != 0 || ev == More && r.scanner.Need() <= len(left) {
				r.t.Fatalf("%v with %d bytes of %d, and Need is %d", ev, n, len(left), r.scanner.Need())
			}
			if ev == More && len(left) >= r.bound {
				r.t.Fatalf("More after %d bytes, which are the bound", len(left))
			}
			return
		case n <= 0 || n > len(left):
			r.t.Fatalf("%v of %d bytes, and there are %d", ev, n, len(left))
		}
		r.note(ev, n)
	}
}

func (r *reader) note(ev Event, n int) {
	r.passed += n
	m, begins := r.scanner.Message(), ev == Whole || ev == Head
	switch last := len(r.records) - 1; {
	case begins:
		r.records = append(r.records, record{ev, int64(r.passed), r.gist(m)})
	case ev == Tunnel && last >= 0 && r.records[last].ev == Tunnel: // it does not matter how a tunnel is cut
		r.records[last].end = int64(r.passed)
	case ev != Body:
		r.records = append(r.records, record{ev: ev, end: int64(r.passed)})
	}
	if r.found != nil && begins {
		r.found(m)
	}
}

func (r *reader) gist(m *Message) gist {
	h, says := fnv.New64a(), m.Submit()
	for _, field := range [][]byte{m.Method, m.Path, m.Host, m.Fields, m.SystemID, says.SourceAddr, says.Recipient, says.ESMClass, says.DataCoding} {
		h.Write(field)
		h.Write([]byte{0})
	}
	rest := h.Sum64() + uint64(m.Command)<<32 + uint64(m.Sequence)
	for i, flag := range []bool{m.InOrder, m.Refusable, m.Close, m.Throttle.Limited} {
		if flag {
			rest ^= 1 << (7 * i)
		}
	}
	g := gist{kind: m.Kind, cost: m.Cost, answers: m.Answers, status: m.Status, rest: rest}
	if r.describes {
		g.Message = describe(m)
	}
	return g
}

// end ends the stream.
func (r *reader) end() {
	if r.err != nil || r.held {
		return
	}
	ev, err := r.scanner.End(r.remaining())
	switch r.err = err; ev {
	case Whole:
		r.note(ev, len(r.remaining()))
	case End:
		r.note(ev, 0)
	}
}

// describe prints the fields of a message that matter.
func describe(m *Message) string {
	s := fmt.Sprintf("%v %d", m.Kind, m.Cost)
	for _, flag := range []struct {
		set  bool
		name string
	}{{m.InOrder, "in-order"}, {m.Refusable, "refusable"}, {m.Close, "close"}, {m.Answers, "answers"}, {m.Throttle.Limited, "limited"}} {
		if flag.set {
			s += " " + flag.name
		}
	}
	for _, field := range []struct {
		name  string
		value []byte
	}{{"method", m.Method}, {"path", m.Path}, {"host", m.Host}, {"system_id", m.SystemID}, {"source_addr", m.Submit().SourceAddr}} {
		if field.value != nil {
			s += fmt.Sprintf(" %s=%s", field.name, field.value)
		}
	}
	if m.Command != 0 || m.Sequence != 0 {
		s += fmt.Sprintf(" %#x/%d", m.Command, m.Sequence)
	}
	if m.Status != 0 {
		s += fmt.Sprintf(" status=%d", m.Status)
	}
	return s
}

// A direction chooses the scanner under test.
type direction func(r *reader, l Link) Scanner

// up chooses what the client sends. Counted messages are sent, and a provider that stays in
// the protocol answers them at once.
func up(r *reader, l Link) Scanner {
	r.found = func(m *Message) {
		if m.Kind != Counted {
			return
		}
		l.Sent(m, start)
		if h, ok := l.(*httpLink); ok {
			if n, ev, err := h.down.Next(answer); n != len(answer) || ev != Whole || err != nil {
				r.t.Fatalf("the answer is %v of %d, %v", ev, n, err)
			}
		}
	}
	return l.Up()
}

// answer is the response of a provider that stays in HTTP.
var answer = []byte("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n")

// scan reads a stream in pieces. cut returns the length of each.
func scan(t testing.TB, s Settings, d direction, stream []byte, cut func() int) *reader {
	t.Helper()
	return newReader(t, s, nil, stream).scan(s, d, cut)
}

func (r *reader) scan(s Settings, d direction, cut func() int) *reader {
	r.t.Helper()
	r.scanner = d(r, NewLink(s))
	for r.arrived < len(r.stream) && r.err == nil {
		r.read(max(cut(), 1))
	}
	r.end()
	if r.err == nil && !r.held && r.passed != len(r.stream) {
		r.t.Fatalf("%d bytes were read, and %d have passed", len(r.stream), r.passed)
	}
	return r
}

func whole() int { return 1 << 30 }

// sameForAllCuts scans a stream in one piece, byte by byte, and in two pieces for each of the
// cuts. All must give the same records, and leave the bytes unchanged. It returns the reader
// of the whole piece.
func sameForAllCuts(t testing.TB, s Settings, d direction, stream []byte, cuts []int) *reader {
	t.Helper()
	before := string(stream)
	want := scan(t, s, d, stream, whole)
	same := func(got *reader, how string, at int) {
		t.Helper()
		if !slices.Equal(got.records, want.records) || !sameError(got.err, want.err) {
			t.Fatalf("%q\n%s %d: %v, %v\nat once: %v, %v", stream, how, at, got.records, got.err, want.records, want.err)
		}
	}
	same(scan(t, s, d, stream, func() int { return 1 }), "by pieces of", 1)
	for _, at := range cuts {
		first := at
		same(scan(t, s, d, stream, func() int {
			n := first
			first = len(stream)
			return n
		}), "cut at", at)
	}
	if before != string(stream) {
		t.Fatalf("%q became %q", before, stream)
	}
	return want
}

// everyCut scans a stream for every possible cut, and returns a reader that describes.
func everyCut(t testing.TB, s Settings, d direction, stream []byte) *reader {
	t.Helper()
	var cuts []int
	for i := range stream {
		cuts = append(cuts, i+1)
	}
	sameForAllCuts(t, s, d, stream, cuts)
	r := newReader(t, s, nil, stream)
	r.describes = true
	return r.scan(s, d, whole)
}

// sameError reports whether two scanners of the same stream found the same fault.
func sameError(a, b error) bool {
	var one, other *Error
	if errors.As(a, &one) != errors.As(b, &other) {
		return false
	}
	return one == nil || *one == *other
}

// reasonOf returns the reason of an error; fine if there is none.
func reasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return fine
}

func expectRecords(t *testing.T, r *reader, want ...string) {
	t.Helper()
	var got []string
	for _, one := range r.records {
		got = append(got, one.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", r.err, got, want)
	}
}
