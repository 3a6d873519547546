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

// A record is an event where a message begins or ends.
type record struct {
	ev   Event
	end  int64 // where in the stream the bytes of the event end
	what gist
}

// A gist is a message that can be compared.
type gist struct {
	Message string // as describe has it, if the reader is to tell
	kind    Kind
	cost    int64
	answers bool
	status  int
	rest    uint64 // a hash of all else
}

func (r record) String() string { return fmt.Sprintf("%v@%d %s", r.ev, r.end, r.what.Message) }

// A reader hands a stream to a scanner as a session does: what was read behind
// what is left.
type reader struct {
	t       testing.TB
	scanner Scanner
	bound   int
	stream  []byte
	passed  int // bytes of it that the scanner has let pass
	been    int // bytes of it that were read
	records []record
	err     error
	held    bool
	tells   bool           // records have texts
	found   func(*Message) // called with what is whole or a head; may be nil
}

func newReader(t testing.TB, s Settings, scanner Scanner, stream []byte) *reader {
	return &reader{t: t, scanner: scanner, bound: s.Bound(), stream: stream}
}

// read takes n bytes more, and what that makes of the stream.
func (r *reader) read(n int) {
	r.been = min(r.been+n, len(r.stream))
	r.goOn()
}

func (r *reader) left() []byte { return r.stream[r.passed:r.been:r.been] }

func (r *reader) goOn() {
	for r.err == nil {
		left := r.left()
		n, ev, err := r.scanner.Next(left)
		r.held = ev == Hold
		switch {
		case err != nil:
			r.err = err
			if _, _, again := r.scanner.Next(left); n != 0 || again == nil || again.Error() != err.Error() {
				r.t.Fatalf("%v, with %d bytes; then %v", err, n, again)
			}
			return
		case ev == More || ev == Hold:
			if n != 0 || ev == More && r.scanner.Need() <= len(left) {
				r.t.Fatalf("%v with %d bytes of %d, of which %d are needed", ev, n, len(left), r.scanner.Need())
			}
			if ev == More && len(left) >= r.bound {
				r.t.Fatalf("more than %d bytes are needed", len(left))
			}
			return
		case n <= 0 || n > len(left):
			r.t.Fatalf("%v of %d bytes where there are %d", ev, n, len(left))
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
	case ev == Tunnel && last >= 0 && r.records[last].ev == Tunnel: // how much of it comes at once does not matter
		r.records[last].end = int64(r.passed)
	case ev != Body:
		r.records = append(r.records, record{ev: ev, end: int64(r.passed)})
	}
	if r.found != nil && begins {
		r.found(m)
	}
}

func (r *reader) gist(m *Message) gist {
	h := fnv.New64a()
	for _, field := range [][]byte{m.Method, m.Path, m.Host, m.SystemID, m.SourceAddr} {
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
	if r.tells {
		g.Message = describe(m)
	}
	return g
}

// end is the end of the stream.
func (r *reader) end() {
	if r.err != nil || r.held {
		return
	}
	ev, err := r.scanner.End(r.left())
	switch r.err = err; ev {
	case Whole:
		r.note(ev, len(r.left()))
	case End:
		r.note(ev, 0)
	}
}

// describe prints what matters of a message.
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
	}{{"method", m.Method}, {"path", m.Path}, {"host", m.Host}, {"system_id", m.SystemID}, {"source_addr", m.SourceAddr}} {
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

// A way is how to get at the scanner under test.
type way func(r *reader, l Link) Scanner

// up scans the stream as the client's: what is counted is sent, and answered at
// once by a provider that never leaves the protocol.
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

// answer is of a provider that stays in the protocol.
var answer = []byte("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n")

// scan reads a stream in pieces; cut says how long each is.
func scan(t testing.TB, s Settings, w way, stream []byte, cut func() int) *reader {
	t.Helper()
	return newReader(t, s, nil, stream).scan(s, w, cut)
}

func (r *reader) scan(s Settings, w way, cut func() int) *reader {
	r.t.Helper()
	r.scanner = w(r, NewLink(s))
	for r.been < len(r.stream) && r.err == nil {
		r.read(max(cut(), 1))
	}
	r.end()
	if r.err == nil && !r.held && r.passed != len(r.stream) {
		r.t.Fatalf("of %d bytes %d have passed", len(r.stream), r.passed)
	}
	return r
}

func whole() int { return 1 << 30 }

// sameHowever scans a stream at once, byte by byte, and cut once at each place
// that is asked for, and fails unless all tell the same and the bytes stay as they
// are. It returns what.
func sameHowever(t testing.TB, s Settings, w way, stream []byte, cuts []int) *reader {
	t.Helper()
	before := string(stream)
	want := scan(t, s, w, stream, whole)
	same := func(got *reader, how string, at int) {
		t.Helper()
		if !slices.Equal(got.records, want.records) || !sameError(got.err, want.err) {
			t.Fatalf("%q\n%s %d: %v, %v\nat once: %v, %v", stream, how, at, got.records, got.err, want.records, want.err)
		}
	}
	same(scan(t, s, w, stream, func() int { return 1 }), "by pieces of", 1)
	for _, at := range cuts {
		first := at
		same(scan(t, s, w, stream, func() int {
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

// everyCut scans a stream however it may be cut, and returns a reader that tells.
func everyCut(t testing.TB, s Settings, w way, stream []byte) *reader {
	t.Helper()
	var cuts []int
	for i := range stream {
		cuts = append(cuts, i+1)
	}
	sameHowever(t, s, w, stream, cuts)
	r := newReader(t, s, nil, stream)
	r.tells = true
	return r.scan(s, w, whole)
}

// sameError compares what two scanners of the same stream found wrong.
func sameError(a, b error) bool {
	var one, other *Error
	if errors.As(a, &one) != errors.As(b, &other) {
		return false
	}
	return one == nil || *one == *other
}

// reasonOf returns why a scanner gave up; fine if it did not.
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
