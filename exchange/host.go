package exchange

import (
	"errors"
	"time"

	"shaper/frame"
	"shaper/shaper"
	"shaper/stats"
)

// A Host owns an exchange: a session of the proxy, or a connection of a simulation. In each of
// its methods, the host may call Stop or Quit before it returns.
type Host interface {
	// Time returns the present. The exchange asks for it before it offers something to a
	// class: at a high rate, the time at which the last message left is too old for the next
	// one.
	Time() time.Time
	// Turn calls turn.Take(now), now or soon, when nobody else is in a call of the exchange.
	Turn(now time.Time, turn Turn)
	// Revisit calls Drive soon, after others have had their turn.
	Revisit()
	// Fail ends the connection by a fault. The host first calls Flush.
	Fail(stats.Result)
	// Linger ends the connection as Close does, but first gives the client, which has been told that it ends, a
	// while to end it. A further call says that the client still sends: it gets a while more.
	Linger(stats.Result)
	// Close ends the connection well: it is between two messages, what was written still arrives, and both peers see
	// a clean end.
	Close(stats.Result)
}

// A Turn goes on with what a class has let go.
type Turn interface{ Take(now time.Time) }

// A Direction is one direction of the connection: the bytes that are read from its sender are
// written to its receiver.
type Direction interface {
	// Readable reports whether Read may find something.
	Readable() bool
	// Read reads what is there into p. If it returns no bytes and no error, there is nothing
	// yet. io.EOF says that the sender has ended the stream, and ErrCut that a fault has.
	Read(p []byte) (int, error)
	// Writable reports whether Write may have room.
	Writable() bool
	// Write writes as much of p as there is room for. departed is when these bytes left.
	Write(p []byte) (n int, departed time.Time)
	// Shut reports whether a write has failed: the receiver takes nothing more.
	Shut() bool
	// End tells the receiver that nothing more comes, in the way the stream ended: by an end
	// or by a fault.
	End()
	// Break says that the sender's bytes cannot be framed, which is a fault. End follows.
	Break(err error)
	// Sent counts what was sent for a class; nil for none.
	Sent(class *shaper.Class, cost shaper.Cost)
}

// ErrCut says that a fault ended the stream.
var ErrCut = errors.New("exchange: the connection is cut")

// A Watcher is told of the messages that count.
type Watcher interface {
	// Found says that a message was found. It returns the follower that is told what becomes
	// of the message; nil for none.
	Found(now time.Time, f Found) Follower
	// Answered says that the provider has answered the message with a number.
	Answered(now time.Time, number uint32)
	// Expired says that the answers to messages that were sent before a time are not expected
	// any more.
	Expired(now, before time.Time)
}

// Found describes a message that was found.
type Found struct {
	Direction stats.Direction
	Message   *frame.Message // valid until Found returns
	Size      int            // bytes of it that are there: the whole message, or its head
	Class     *shaper.Class  // the class that it will enter; nil: nothing limits it
	Cost      shaper.Cost    // what it costs there
	Asks      bool           // it gets an answer
}

// A Follower is told what becomes of a message. Exactly one of its methods is called, once.
type Follower interface {
	Sent(now time.Time)
	Refused(now time.Time, reason stats.Reason)
	Dropped(now time.Time, reason stats.Reason) // the connection ended
}
