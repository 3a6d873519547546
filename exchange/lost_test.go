package exchange_test

import (
	"io"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/policy"
	"shaper/stats"
)

// A request that is lost counts once, as dropped or as refused, though its body is elsewhere than its head. Its bytes
// count, too.
func TestALostRequestCountsOnce(t *testing.T) {
	const class = "[class.c]\nrate = \"1 messages/s\"\n"
	const slow = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nbody"
	for _, c := range []struct {
		name             string
		lose             func(w *wire)
		dropped, refused uint64
	}{
		{"it waits, and the connection ends", func(w *wire) {
			w.send(get)
			w.send(slow)
		}, 1, 0},
		{"it waits, and the client breaks it", func(w *wire) {
			w.send(get)
			w.send(slow)
			w.Up.Ends = exchange.ErrCut
			w.Drive(w.Now)
		}, 1, 0},
		{"it waits, and an earlier answer ends the connection", func(w *wire) {
			w.send(get)
			w.send(slow)
			w.Down.Ends = io.EOF
			w.answer(ok + "\r\nhi")
		}, 1, 0},
		{"it waits, and the server ends", func(w *wire) {
			w.send(get)
			w.answer(fixed(ok, "hi"))
			w.send(slow)
			w.Down.Ends = io.EOF
			w.Drive(w.Now)
		}, 0, 1},
		{"it waits, and the server breaks", func(w *wire) {
			w.send(get)
			w.answer(fixed(ok, "hi"))
			w.send(slow)
			w.Down.Ends = exchange.ErrCut
			w.Drive(w.Now)
		}, 0, 1},
		{"its write fails", func(w *wire) {
			w.Up.Dead = true
			w.send(slow)
			w.Down.Ends = exchange.ErrCut
			w.Drive(w.Now)
		}, 1, 0},
	} {
		w := through(t, policy.HTTP, class)
		c.lose(w)
		w.Finish(stats.OK)
		w.wait(time.Minute)
		of := w.classes["c"].Stats
		if dropped, refused := of.Dropped[stats.Reset].Items.Load(), of.Refused[stats.Reset].Items.Load(); dropped != c.dropped || refused != c.refused {
			t.Errorf("%s: %d count as dropped and %d as refused, want %d and %d", c.name, dropped, refused, c.dropped, c.refused)
		}
	}
}
