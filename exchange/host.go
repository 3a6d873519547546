package exchange

import (
	"errors"
	"time"

	"shaper/frame"
	"shaper/shaper"
	"shaper/stats"
)

// A Host owns an exchange: a session of the proxy, or a connection of a simulation.
// Whatever the exchange calls, the host may stop it by Stop or Quit before it returns.
type Host interface {
	// Time returns the present. It is asked before something is offered to a class: at a
	// high rate, the moment at which the last message left is too early for the next one.
	Time() time.Time
	// Turn has the turn taken at now, or soon, while nobody else calls the exchange.
	Turn(now time.Time, turn Turn)
	// Revisit calls Drive soon, after others have had their turn.
	Revisit()
	// Fail ends the connection by a fault, behind what Flush can write.
	Fail(stats.Result)
	// Cut is Fail behind what has been written: that is to arrive first.
	Cut(stats.Result)
	// Linger ends the connection soon. The client has been told.
	Linger()
}

// A Turn is something whose time has come.
type Turn interface{ Take(now time.Time) }

// A Direction is one way of the connection: what is read from its sender is written to its
// receiver.
type Direction interface {
	// Readable reports whether Read may find something.
	Readable() bool
	// Read reads what is there, as far as p has room. No bytes and no error say that
	// nothing is there yet, io.EOF that nothing more comes, and ErrCut the same after a
	// fault.
	Read(p []byte) (int, error)
	// Writable reports whether Write may have room.
	Writable() bool
	// Write writes as much as there is room for, and says when that had left.
	Write(p []byte) (n int, left time.Time)
	// End tells the receiver that nothing more comes, as the sender has: by an end or by
	// a fault.
	End()
	// Break says that what the sender sends is no message. That is a fault.
	Break(err error)
	// Sent counts what has been sent, for a class; nil for none.
	Sent(class *shaper.Class, cost shaper.Cost)
}

// ErrCut says that no bytes follow because of a fault.
var ErrCut = errors.New("exchange: the connection is cut")

// A Watcher is told of the messages of an exchange that count.
type Watcher interface {
	// Found returns who is told what becomes of a message; nil for nobody.
	Found(now time.Time, f Found) Follower
	// Answered says that the provider has answered a message of a number.
	Answered(now time.Time, number uint32)
	// Expired says that no answer is expected any more to what was sent before a time.
	Expired(now, before time.Time)
}

// Found is a message that has come.
type Found struct {
	Direction stats.Direction
	Message   *frame.Message // valid until Found returns
	Size      int            // bytes of it that are there: all, or its head
	Class     *shaper.Class  // that it is to enter; nil: nothing limits it
	Asks      bool           // it gets an answer
}

// A Follower is told what becomes of a message: one of these.
type Follower interface {
	Sent(now time.Time)
	Refused(now time.Time, reason stats.Reason)
	Dropped(now time.Time, reason stats.Reason) // with the connection
}

// tell notes the time. A host that waits for a lock may be late to tell it.
func (x *Exchange) tell(now time.Time) {
	if now.After(x.now) {
		x.now = now
	}
}
