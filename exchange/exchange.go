// Package exchange relays the messages of one connection between a client and a provider. It
// finds messages, queues counted messages in their classes, lets all other messages pass, and
// refuses messages for which there is no room.
//
// An [Exchange] is a machine without sockets and clocks. Its [Host] drives it, tells it the time,
// and reads and writes for it through two [Direction]s. So the proxy, a simulation and a test
// drive the same machine. The machine starts no goroutine and takes no lock: its host calls it
// from one goroutine at a time.
//
// Files call downwards only:
//
//	turn      a class lets something go
//	exchange  the machine: both directions, event by event
//	reroute   messages that wait follow a reload
//	advance   what a direction does next: it finds a message and handles it
//	unframed  what comes before the end if bytes cannot be framed
//	retire    how an old connection ends
//	resume    a message that has waited goes on
//	retry     what becomes of a message that the provider has refused
//	enter     a message enters its class, and leaves it
//	hold      a message that must not enter its class yet
//	body      bytes that no class counts as a message: they pass in pieces
//	refuse    the refusal of a message
//	heed      what an answer tells the class of its request, and how the request ends
//	judge     an answer that is held back until its body has been read
//	answer    what answers say about cost and rate
//	hints     what answers say of the limits of the provider
//	price     what a message costs
//	values    numbers and texts in JSON
//	end       how a direction ends
//	keep      messages that may have to be sent again, and the memory of answers that are held back
//	backlog   where messages wait
//	requests  messages that the provider has to answer
//	message   a message on its way, and the memory that it takes
//	memory    how much memory messages take
//	payload   the bytes of a message
//	classes   which class a message enters
//	lane      one direction: its state, and all that it holds
//	found     the message that the input begins with
//	input     what was read and has not been passed on
//	output    what was passed on and has not been written
//	protocol  what the protocols differ in
//	host      what the machine asks of its host
//	run       what time it is, and whether the machine goes on
package exchange

import (
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// An Exchange relays the messages of one connection, in both directions. Every method may be
// called only by the host, from one goroutine at a time.
type Exchange struct {
	// Set by New.
	host     Host
	protocol protocol
	link     frame.Link

	origin *frame.Origin // the server that requests ask for; nil: the one that the client wrote; see AskFor

	up, down lane
	classes  // with the methods Obey, Rejoin and Belong
	run
	told stats.Result // the result of the end that the client was told of; see linger

	requests   requests
	retirement retirement
	refusals   refusals

	// Memory that is used again.
	current frame.Message // see message.frame
	text    []byte        // of a refusal or an unbind
}

// A Config says what an exchange is made of.
type Config struct {
	Host     Host
	Up, Down Direction
	Protocol policy.Protocol
	Link     frame.Link
	// Class is the class of the messages to the provider, unless a rule names another one.
	// Back is the class of the other direction; nil limits nothing.
	Class, Back *shaper.Class
}

// New returns an exchange that has seen no bytes. The host has joined Class and Back, and
// quits both itself after Quit.
func New(c Config) *Exchange {
	x := &Exchange{host: c.Host, protocol: protocol(c.Protocol), link: c.Link}
	x.requests = requests{run: &x.run, protocol: x.protocol, link: x.link, classes: &x.classes, answer: &x.down.found}
	x.retirement.x, x.refusals.x = x, x
	x.classes.init(c.Class)
	x.up.found.tag = x.classes.own
	x.classes.use(x.up.found.tag)
	x.up.init(x, stats.Upstream, c.Up, x.link.Up())
	x.up.body.flow.Init(c.Class.Counting(unit.Bytes), &x.up.body)
	x.down.init(x, stats.Downstream, c.Down, x.link.Down())
	x.down.body.flow.Init(c.Back, &x.down.body)
	return x
}

// Watch sets who is told of the messages from now on; nil for nobody.
func (x *Exchange) Watch(w Watcher) { x.requests.watcher = w }

// FollowWaiting calls follow for each of the client's messages that were found before and have not left, and makes what it
// returns the follower of the message. So a watcher hears of all messages that leave from now on, but knows these messages
// only by their followers.
func (x *Exchange) FollowWaiting(follow func() Follower) {
	l := &x.up
	for _, b := range l.backlog.classes {
		b.waiting.follow(follow)
		b.parked.follow(follow)
	}
	l.backlog.behind.follow(follow)
	if l.state == handling && l.hasNew() { // while it is peeking, the watcher has still to find it
		l.found.follower = follow()
	}
}

// Mirror copies all bytes that belong to no counted message to two sources of a trial; nil for
// none.
func (x *Exchange) Mirror(up, down *shaper.Source) {
	x.up.body.flow.Mirror(up)
	x.down.body.flow.Mirror(down)
}

// AskFor rewrites requests so that they ask for a server, and redirects so that they lead back
// through the proxy. With nil, both pass unchanged.
func (x *Exchange) AskFor(o *frame.Origin) { x.origin = o }

// turnEvents bounds the events of each direction in one call of Drive.
const turnEvents = 64

// Drive does what can be done at now without waiting. After turnEvents it stops, and asks the
// host to revisit it.
func (x *Exchange) Drive(now time.Time) {
	x.noteTime(now)
	x.drive(turnEvents)
}

// drive lets the directions advance by turns, until neither can or each has had so many
// events. Then it writes the held bytes.
func (x *Exchange) drive(events int) {
	for progress := true; progress && !x.stopped; events-- {
		if events <= 0 {
			x.host.Revisit()
			break
		}
		progress = x.up.advance()
		progress = !x.stopped && x.down.advance() || progress
		progress = x.forsake() || progress
	}
	x.Flush()
	x.forsake() // if that has found out that the connection is dead
	x.endBroken()
	x.retirement.goOn()
}

// Retire ends the connection at the next boundary between messages, as the protocol says. quiet
// says that nothing has moved for a while. The host calls it now and then once the connection is
// old.
func (x *Exchange) Retire(now time.Time, quiet bool) {
	x.noteTime(now)
	x.retirement.begun, x.retirement.quiet = true, quiet
	x.retirement.goOn()
}

// Drain is Retire for a host that stops. A connection of HTTP does not wait for another request, and
// one of a protocol that does not tell which answer belongs to which request goes on.
func (x *Exchange) Drain(now time.Time, quiet bool) {
	if x.protocol.isHTTP() || x.protocol.isSMPP() {
		x.retirement.drains = true
		x.Retire(now, quiet)
	}
}

// Flush writes the held bytes, as far as there is room.
func (x *Exchange) Flush() {
	for _, l := range [...]*lane{&x.up, &x.down} {
		if !x.stopped {
			l.out.flush()
		}
	}
}

// Tend forgets the requests in flight for longer than answerPatience, so that others may leave.
// Those of HTTP it keeps; but it does not wait for longer for the rest of an answer that is held back
// or thrown away. The host calls it now and then.
func (x *Exchange) Tend(now time.Time) {
	x.noteTime(now)
	x.requests.accounts.hurry(&x.down)
	x.down.waste.hurry()
	before, late := x.link.InFlight(), now.Add(-answerPatience)
	if x.link.Expire(late, x.requests.giveUp); x.link.InFlight() == before {
		return
	}
	x.up.backlog.forget(func(m *message) bool { return m.at.Before(late) })
	x.requests.tellExpired(late)
	x.host.Revisit() // the link has room for others
}

// Stop ends all movement. What is not written counts as dropped for the reason.
func (x *Exchange) Stop(now time.Time, reason stats.Reason) {
	x.noteTime(now)
	x.stopped = true
	if x.down.found.ends { // the answer has come, even if not all of it was passed on
		x.requests.passed()
	}
	x.up.drop(reason)
	x.down.drop(reason)
}

// Quit stops the exchange, gives up the requests in flight, and quits the classes that the
// exchange has joined.
func (x *Exchange) Quit(now time.Time, reason stats.Reason) {
	x.Stop(now, reason)
	x.requests.drop()
	x.refusals.drop()
	x.classes.disuse(x.now, x.up.found.tag)
	x.up.found.tag = unlimited
	x.classes.quit(x.now)
	x.Mirror(nil, nil)
}

// Waits reports whether the connection is quiet because of its classes: something waits for
// them, and no answer of the provider is to come that would let it leave.
func (x *Exchange) Waits() bool {
	return x.up.state == waiting || x.down.state == waiting || x.Waiting() > x.up.backlog.late && x.link.InFlight() == 0
}

// Rests reports whether nothing changes before bytes come or there is room for some: all that was
// read has departed and has its answer.
func (x *Exchange) Rests() bool { return x.up.held()+x.down.held()+x.link.InFlight() == 0 }

// InFlight returns how many requests have no answer yet.
func (x *Exchange) InFlight() int { return x.link.InFlight() }

// AwaitsAnswer reports whether it is the provider's turn: it has whole requests, and has begun no answer, and all
// that came from it before has been written.
func (x *Exchange) AwaitsAnswer() bool {
	asked := x.up.isBetween() || x.up.state == ended && len(x.up.out.held) == 0
	return x.link.InFlight() > 0 && asked && !x.up.found.open && x.down.isBetween() && !x.down.found.open
}

// Held returns how many bytes of a direction were read and are not written.
func (x *Exchange) Held(direction stats.Direction) int {
	if direction == stats.Upstream {
		return x.up.held()
	}
	return x.down.held()
}
