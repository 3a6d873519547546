package exchange

import (
	"testing"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// foundIn returns the message that the first n bytes of an input are.
func foundIn(text string, n int) *found { return &found{in: inputOf(text), size: n} }

// expectFound compares the bytes of a message and those behind it.
func expectFound(t *testing.T, f *found, head, body string) {
	t.Helper()
	if string(f.bytes()) != head || string(f.body()) != body {
		t.Errorf("the message is %q, and %q follows, not %q and %q", f.bytes(), f.body(), head, body)
	}
}

func TestFoundIsTheFrontOfTheInput(t *testing.T) {
	f := foundIn("one\ntwo\nbody", len("one\ntwo\n"))
	expectFound(t, f, "one\ntwo\n", "body")
	f.insert(len("one\n"), "more\n")
	expectFound(t, f, "one\nmore\ntwo\n", "body")
	if f.consume(); string(f.in.bytes()) != "body" {
		t.Errorf("%q is left", f.in.bytes())
	}
}

func TestFoundIsRedirected(t *testing.T) {
	const head = "HTTP/1.1 302 Found\r\nLocation: http://api.example/there\r\n\r\n"
	f := foundIn(head+"body", len(head))
	origin := frame.NewOrigin("http", "api.example")
	f.redirect(&origin)
	expectFound(t, f, "HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n", "body")
}

// A fate counts what a follower is told.
type fate struct{ sent, refused, dropped int }

func (f *fate) Sent(time.Time)                  { f.sent++ }
func (f *fate) Refused(time.Time, stats.Reason) { f.refused++ }
func (f *fate) Dropped(time.Time, stats.Reason) { f.dropped++ }

// TestFoundIsDroppedOnce tests that the follower of a message is told once, and that the rest of a message that counts
// already adds only bytes.
func TestFoundIsDroppedOnce(t *testing.T) {
	class, heard := shaper.NewTree(time.Unix(0, 0), []policy.Class{{Name: "c"}})[0], new(fate)
	f := &found{open: true, follower: heard}
	for _, bytes := range []int{10, 5, 0} {
		f.drop(time.Unix(0, 0), class, stats.Reset, bytes)
	}
	if *heard != (fate{dropped: 1}) {
		t.Errorf("the follower was told %+v", *heard)
	}
	lost := &class.Tally().Stats.Dropped[stats.Reset]
	if items, bytes := lost.Items.Load(), lost.Bytes.Load(); items != 1 || bytes != 15 {
		t.Errorf("%d messages and %d bytes were dropped, not 1 and 15", items, bytes)
	}
}
