package conn

import (
	"io"
	"time"

	"shaper/exchange"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// lane carries the messages of a direction. To the direction it is the carrier; to the
// machine, which holds the bytes, it is the exchange.Direction.
type lane struct {
	direction *direction
	messages  *messages

	room []byte // where Read reads to; nil outside of Read
	n    int    // bytes that Read has read
	rest []byte // what Write has still to write; nil outside of Write
}

func (l *lane) init(m *messages, d *direction) {
	l.direction, l.messages = d, m
	d.carrier = l
}

// Readable implements exchange.Direction.
func (l *lane) Readable() bool { return !l.direction.ended && l.direction.src.Readable }

// Read implements exchange.Direction.
func (l *lane) Read(p []byte) (int, error) {
	d := l.direction
	l.room, l.n = p, 0
	d.read()
	l.room = nil
	switch {
	case d.ended && d.fault != stats.OK:
		return 0, exchange.ErrCut
	case d.ended:
		return 0, io.EOF
	}
	return l.n, nil
}

// load implements carrier.
func (l *lane) load(from sock.End) (n int, drained bool, err error) {
	if n, err = from.Read(l.room); n > 0 {
		l.n = n
	}
	return n, n < len(l.room), err
}

// Writable implements exchange.Direction.
func (l *lane) Writable() bool { return l.direction.dst.Writable }

// Write implements exchange.Direction.
func (l *lane) Write(p []byte) (n int, departed time.Time) {
	l.rest = p
	l.direction.write(l)
	n, l.rest = len(p)-len(l.rest), nil
	return n, time.Now()
}

// unload implements unloader.
func (l *lane) unload(to sock.End) (n int, err error) {
	n, err = to.Write(l.rest)
	l.rest = l.rest[n:]
	return n, err
}

// remaining implements unloader.
func (l *lane) remaining() int { return len(l.rest) }

// Shut implements exchange.Direction.
func (l *lane) Shut() bool { return l.direction.shut }

// End implements exchange.Direction.
func (l *lane) End() { l.direction.end() }

// Break implements exchange.Direction.
func (l *lane) Break(err error) {
	d := l.direction
	d.src.unframed(err)
	d.ended, d.fault = true, stats.Unframed
}

// Sent implements exchange.Direction. Once a write has failed, nothing is sent: it counts as dropped, with
// all that is held in the end.
func (l *lane) Sent(class *shaper.Class, cost shaper.Cost) {
	if !l.direction.shut {
		l.direction.count(class, cost)
	}
}

// refused implements carrier.
func (l *lane) refused() int { return 0 }

// drop implements carrier.
func (l *lane) drop(reason stats.Reason) {
	l.messages.lingering.stop() // cutTimeout bounds the rest
	l.messages.machine.Stop(time.Now(), reason)
}

// held implements carrier.
func (l *lane) held() int { return l.messages.machine.Held(l.direction.towards) }
