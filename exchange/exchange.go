// Package exchange relays the messages of one connection between a client and a
// provider. It finds them, queues those that count in their classes, lets the others pass
// between them, and refuses what finds no room.
//
// An [Exchange] is a machine without sockets and clocks. Its [Host] drives it, reads and
// writes for it through two [Direction]s, and tells it the time; so the proxy, a
// simulation and a test drive the same one. It starts no goroutine and takes no lock: its
// host calls it from one goroutine at a time.
//
// Files call downwards only:
//
//	turn      a class lets something go: the host takes the turn
//	exchange  the machine: both directions, event by event
//	reroute   messages that wait follow a reload
//	advance   what a direction does next: it finds a message and handles it
//	resume    a message that has waited goes on
//	enter     a message enters its class, and leaves it
//	body      bytes that no class counts as a message: they pass in pieces
//	refuse    the refusal of a message, and what a provider's answer says
//	end       how a direction ends
//	backlog   where messages wait
//	message   a message on its way, and the memory that it takes
//	classes   which class a message enters
//	lane      one direction: its state, and all that it holds
//	input     what was read and has not been passed on
//	output    what was passed on and has not been written
//	protocol  what the protocols differ in
//	host      what the machine asks of its host
package exchange

import (
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// Exchange is the messages of one connection, in both directions.
type Exchange struct {
	host     Host
	watcher  Watcher // nil: nobody watches
	protocol policy.Protocol
	link     frame.Link
	up, down lane
	classes
	origin *frame.Origin // of the server that requests ask for; nil: as the client wrote them

	now     time.Time // the latest that the host has told
	stopped bool      // nothing moves any more; see Stop

	refused frame.Message // the one whose answer is due
	current frame.Message // what the link is told of a message that leaves or is refused
	refusal []byte        // room for the text of a refusal
}

// Config is what an exchange is made of.
type Config struct {
	Host     Host
	Up, Down Direction
	Protocol policy.Protocol
	Link     frame.Link
	// Class is the class of messages to the provider that no rule leads elsewhere, Back
	// that of the other direction; a nil Back limits nothing.
	Class, Back *shaper.Class
}

// New returns an exchange that has seen no bytes. Its host quits Class and Back itself,
// after Quit.
func New(c Config) *Exchange {
	x := &Exchange{host: c.Host, protocol: c.Protocol, link: c.Link}
	x.classes.all = []*shaper.Class{c.Class}
	x.up.init(x, stats.Upstream, c.Up, x.link.Up())
	x.up.body.flow.Init(c.Class.Counting(unit.Bytes), &x.up.body)
	x.down.init(x, stats.Downstream, c.Down, x.link.Down())
	x.down.body.flow.Init(c.Back, &x.down.body)
	return x
}

// Watch has a watcher told of the messages from now on; nil for nobody.
func (x *Exchange) Watch(w Watcher) { x.watcher = w }

// Mirror has copies of all bytes that are no message sent by two sources of a trial; nil
// for none.
func (x *Exchange) Mirror(up, down *shaper.Source) {
	x.up.body.flow.Mirror(up)
	x.down.body.flow.Mirror(down)
}

// AskFor has requests ask for a server, and redirects lead back from it; nil passes both
// on as they are.
func (x *Exchange) AskFor(o *frame.Origin) { x.origin = o }

// turnEvents is how many events of each direction a turn has.
const turnEvents = 64

// Drive does all that can be done at now without waiting. If that takes too long it stops,
// and the host is to revisit it.
func (x *Exchange) Drive(now time.Time) {
	x.tell(now)
	x.goOn(turnEvents)
}

// goOn gives both directions an event in turn, until nothing moves or the turn is over.
// Then it writes what was held for more.
func (x *Exchange) goOn(turn int) {
	for progress := true; progress && !x.stopped; turn-- {
		if turn <= 0 {
			x.host.Revisit()
			break
		}
		progress = x.up.advance()
		progress = !x.stopped && x.down.advance() || progress
	}
	x.Flush()
}

// Flush writes what is held, as far as there is room.
func (x *Exchange) Flush() {
	for _, l := range [...]*lane{&x.up, &x.down} {
		if !x.stopped {
			l.out.flush()
		}
	}
}

// answerPatience is how long a request may be in flight: as long as the most patient
// client waits.
const answerPatience = time.Minute

// Tend forgets requests that have waited for their answer for too long.
func (x *Exchange) Tend(now time.Time) {
	x.tell(now)
	before, late := x.link.InFlight(), now.Add(-answerPatience)
	if x.link.Expire(late, x.unanswered); x.link.InFlight() == before {
		return
	}
	if x.watcher != nil {
		x.watcher.Expired(x.now, late)
	}
	x.host.Revisit() // there is room for others
}

func (x *Exchange) unanswered(tag uint16) { x.classes.all[tag].Answered(x.now, false) }

// Stop has nothing move any more. What has not been written counts as dropped.
func (x *Exchange) Stop(now time.Time, reason stats.Reason) {
	x.tell(now)
	x.stopped = true
	if x.down.body.ends { // the answer has come, though not all of it was passed on
		x.answered()
	}
	x.up.drop(reason)
	x.down.drop(reason)
}

// Quit is Stop for good: the exchange gives up what is in flight, and its classes.
func (x *Exchange) Quit(now time.Time, reason stats.Reason) {
	x.Stop(now, reason)
	x.link.Drop(x.unanswered)
	x.classes.quit(x.now)
	x.Mirror(nil, nil)
}

// Waits reports whether the connection is quiet because of its classes: something waits
// for them, and the provider owes no answer that would let it go.
func (x *Exchange) Waits() bool {
	return x.up.state == waiting || x.down.state == waiting || x.Waiting() > 0 && x.link.InFlight() == 0
}

// Waiting returns how many messages wait.
func (x *Exchange) Waiting() int { return x.up.backlog.n + x.down.backlog.n }

// InFlight returns how many messages have no answer yet.
func (x *Exchange) InFlight() int { return x.link.InFlight() }

// Held returns how many bytes of a direction were read and have not been written.
func (x *Exchange) Held(way stats.Direction) int {
	if way == stats.Upstream {
		return x.up.held()
	}
	return x.down.held()
}
