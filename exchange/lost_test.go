package exchange_test

import (
	"io"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/frame"
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

// A message whose own write ends the connection counts once, and so do its bytes, wherever they are by then: in the
// input, in a copy, or behind others that are not written yet.
func TestAMessageWhoseWriteEndsTheConnectionCountsOnce(t *testing.T) {
	const slow, burst = "[class.c]\nrate = \"1 messages/s\"\n", "algorithm = \"token\"\nburst = \"9 messages\"\n"
	submit, part, body := pdu(4, 0, 1, ""), pdu(4, 0, 2, "")[:9], post("", "a body")
	rewritten := frame.NewOrigin("http", "g")
	for _, c := range []struct {
		name           string
		protocol       policy.Protocol
		origin         *frame.Origin
		before         string // has left
		waits          string // then this waits in the class
		overtakes      string // this overtakes it, and is held
		comes          string // this leaves at once
		dropped, bytes int
	}{
		{"at once", policy.SMPP, nil, "", "", "", submit, 1, len(submit)},
		{"at once, before another one", policy.SMPP, nil, "", "", "", submit + part, 1, len(submit + part)},
		{"at once, behind what is held", policy.SMPP, nil, "", "", "", enquire + submit, 1, len(enquire + submit)},
		{"it has waited", policy.SMPP, nil, submit, submit, "", "", 1, len(submit)},
		{"it has waited, before another one", policy.SMPP, nil, submit, submit + part, "", "", 2, len(submit + part)},
		{"it has waited, behind what is held", policy.SMPP, nil, submit, submit, enquire, "", 2, len(submit + enquire)},
		{"at once", policy.HTTP, nil, "", "", "", get, 1, len(get)},
		{"at once, with a body", policy.HTTP, nil, "", "", "", body, 1, len(body)},
		{"at once, before another one", policy.HTTP, nil, "", "", "", get + get, 1, len(get + get)},
		{"at once, rewritten", policy.HTTP, &rewritten, "", "", "", get, 1, len(get)},
		{"at once, rewritten, with a body", policy.HTTP, &rewritten, "", "", "", body, 1, len(body)},
		{"it has waited", policy.HTTP, nil, get, get, "", "", 1, len(get)},
		{"it has waited, with a body", policy.HTTP, nil, get, body, "", "", 1, len(body)},
		{"it has waited, rewritten, with a body", policy.HTTP, &rewritten, get, body, "", "", 1, len(body)},
		{"it has waited, before another one", policy.HTTP, nil, get, get + get, "", "", 2, len(get + get)},
	} {
		class := slow
		if c.waits == "" {
			class += burst
		}
		w := through(t, c.protocol, class)
		w.Machine.AskFor(c.origin)
		w.send(c.before)
		w.send(c.waits)
		w.Up.Room = 0
		w.send(c.overtakes)
		w.Up.Room, w.Up.Heard = -1, func([]byte) { w.Finish(stats.OK) }
		if c.comes != "" {
			w.send(c.comes)
		}
		w.wait(time.Second)
		lost := &w.classes["c"].Stats.Dropped[stats.Reset]
		if items, bytes := lost.Items.Load(), lost.Bytes.Load(); !w.Over || int(items) != c.dropped || int(bytes) != c.bytes {
			t.Errorf("%s, %s: over: %v; %d messages and %d bytes are dropped, want %d and %d", c.protocol, c.name, w.Over, items, bytes, c.dropped, c.bytes)
		}
	}
}
