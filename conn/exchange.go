package conn

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/unit"
)

// exchange is what a session of a protocol with messages has instead of two streams
// of bytes: it finds the messages, has those that count wait for their class one by
// one, and lets the others pass between them. The lock of the session guards it.
//
// Its files stand in the order of a message's way: lane, which reads and finds it;
// message, which enters its class and leaves it; backlog, where it waits; exchange, which
// answers it if it is refused, and learns from the answer of the provider.
type exchange struct {
	session  *tcpSession
	protocol policy.Protocol
	link     frame.Link
	up, down lane

	rules   policy.MessageRules
	tags    []uint16        // of the classes that they lead to
	classes []*shaper.Class // by the tag of a message, all that the session has joined
	own     uint16          // the tag of its own one
	passing uint16          // the tag of the request whose body passes

	answering uint16 // the tag of the message whose answer is passing
	answers   bool   // there is one
	number    uint32 // of that message
	throttled frame.Throttle
	status    int  // of that answer
	closing   bool // a refusal ends the connection: what the client sends is thrown away
	closed    bool // and that has been written

	origin *frame.Origin // that requests ask for; nil: as the client has written them

	refused frame.Message // whose answer is due
	current frame.Message // what the link is to know of the message that leaves or is refused
	refusal []byte        // room for one, once there has been one
}

func newExchange(t *tcpSession) *exchange {
	x := &exchange{session: t, protocol: t.conf.Protocol, link: frame.NewLink(settingsOf(t.conf))}
	x.up.init(x, &t.up.direction, x.link.Up())
	x.down.init(x, &t.down.direction, x.link.Down())
	x.classes = []*shaper.Class{t.up.flow.Class()}
	return x
}

// settingsOf returns how the messages of a listener are framed. Package policy has
// checked them.
func settingsOf(l *policy.Listener) frame.Settings {
	return frame.Settings{
		Protocol: frame.Protocol(l.Protocol), Prefix: frame.Prefix(l.LengthPrefix),
		IncludesPrefix: l.LengthIncludesItself, Header: l.HeaderLength,
	}
}

// obey takes the rules about messages that a policy has for the session.
func (x *exchange) obey(r *routes, who policy.Conn) {
	now := time.Now()
	x.rules, x.tags = r.classifier.Messages(who), x.tags[:0]
	for _, rule := range x.rules {
		tag := x.own
		if class := r.classes[rule.Class]; class != nil {
			tag = x.tag(class.Join(now, who), now)
		}
		x.tags = append(x.tags, tag)
	}
}

// tag returns the number of a class, which the session has joined.
func (x *exchange) tag(class *shaper.Class, now time.Time) uint16 {
	for i, known := range x.classes {
		if known == class {
			class.Quit(now) // once is enough
			return uint16(i)
		}
	}
	if len(x.classes) > math.MaxUint16 {
		class.Quit(now)
		return x.own
	}
	x.classes = append(x.classes, class)
	return uint16(len(x.classes) - 1)
}

// classify returns the tag of the class of a message.
func (x *exchange) classify(m *frame.Message) uint16 {
	msg := seen(m)
	if i := x.rules.First(&msg); i >= 0 {
		return x.tags[i]
	}
	return x.own
}

// seen returns what rules see of a message.
func seen(m *frame.Message) policy.Message {
	return policy.Message{Path: m.Path, Method: m.Method, Host: m.Host, SystemID: m.SystemID, SourceAddr: m.SourceAddr}
}

// asks reports whether a message that is sent to the provider gets an answer.
func (x *exchange) asks() bool { return x.protocol == policy.SMPP || x.protocol == policy.HTTP }

// boundUnsent bounds what the kernel holds of messages that the provider's one has no room
// for (TCP_NOTSENT_LOWAT, tcp(7)). Else a provider that stalls would get in one burst what
// has left meanwhile. Bodies of HTTP are not messages that wait for their turn.
func (x *exchange) boundUnsent() {
	if x.protocol != policy.HTTP {
		x.session.upstream.end.Set(sock.UnsentLow, mostHeld)
	}
}

// goOn moves what can be moved, in both directions: of each an event in turn, until
// nothing moves or the turn is over. Then it writes what was held for more.
func (x *exchange) goOn(turn int) {
	for progress := true; progress && x.session.stage == relaying; turn-- {
		if turn <= 0 {
			x.session.poller.Revisit(x.session)
			break
		}
		progress = x.up.advance()
		progress = x.session.stage == relaying && x.down.advance() || progress
	}
	x.flush()
}

// flush writes what is held.
func (x *exchange) flush() {
	for _, l := range [...]*lane{&x.up, &x.down} {
		if x.session.stage == relaying {
			l.flush()
		}
	}
}

// reroute follows a reload: new rules hold for the messages to come, and what waits in
// a class that is gone moves to that of the session.
func (x *exchange) reroute(r *routes, who policy.Conn, gone map[*shaper.Class]bool) {
	x.obey(r, who)
	if x.session.stage != relaying {
		return
	}
	x.up.reroute(gone, x.classes[x.own], x.own)
	x.down.reroute(gone, x.session.down.flow.Class(), 0)
	if x.session.stage != relaying {
		return
	}
	if gone[x.classes[x.passing].Named()] {
		x.passing = x.own
	}
	x.session.up.join(x.classes[x.passing].Counting(unit.Bytes))
	x.session.poller.Revisit(x.session) // to what was behind those that have left
}

// turnEvents is how many events of each direction a session's turn has.
const turnEvents = 64

// refuse answers a message here, which its class has no room for: in the protocol, or
// by ending the session where that has no way to. data is the class's reason.
func (x *exchange) refuse(m *frame.Message, class *shaper.Class, n int, reason stats.Reason) {
	class.CountRefused(reason, int64(n))
	if !m.Refusable {
		x.session.fail(stats.Overflow)
		return
	}
	if x.closing = m.Close; x.link.Refuse(m, x.down.due == 0) {
		x.answer(m)
	}
}

// answerDue writes the refusals whose turn has come among the answers.
func (x *exchange) answerDue() (any bool) {
	for {
		var due bool
		if x.refused, due = x.link.Due(); !due {
			return any
		}
		x.answer(&x.refused)
		any = true
	}
}

// answer writes a refusal to the client, behind the messages that have been passed on.
func (x *exchange) answer(m *frame.Message) {
	class, now := x.classes[m.Tag], time.Now()
	refusal := frame.Refusal{Now: now, Wait: class.Retry(now, shaper.Cost{Messages: max(m.Cost, 1)})}
	if rate := class.Rate(); rate.Kind() == unit.Messages && !rate.IsZero() {
		refusal.Policy, refusal.Window = class.Name(), rate.Period()
		refusal.Quota = rate.Units(refusal.Window)
	}
	x.refusal = x.link.AppendRefusal(x.refusal[:0], m, refusal)
	x.down.send(x.refusal)
	if x.closed = m.Close; x.closed {
		x.session.linger()
	}
}

// congested is the most that SMPP 5.0 can say of a provider's load.
const congested = 101

// answered takes what the message says that the provider has just sent to its end.
func (x *exchange) answered() {
	if !x.answers {
		return
	}
	x.answers = false
	now, class := time.Now(), x.classes[x.answering]
	x.session.copies.answered(x.number, now)
	tooFast := x.throttled.Limited || x.throttled.Congestion == congested
	if tooFast {
		class.Throttled(now, x.throttled.Pause(now), x.signal())
	}
	class.Answered(now, !tooFast)
}

// signal names what the provider has said.
func (x *exchange) signal() string {
	switch {
	case !x.throttled.Limited:
		return "congestion"
	case x.protocol == policy.SMPP:
		return fmt.Sprintf("%#x", x.status)
	}
	return strconv.Itoa(x.status)
}

// unframed counts and logs that what a session carries is no message.
func (x *exchange) unframed(l *lane, err error) {
	t := x.session
	var wrong *frame.Error
	if errors.As(err, &wrong) {
		t.service.stats.Unframed.Add(wrong.Reason.String())
	}
	t.warn(unframed, "from", l.from(), "err", err)
}

// tend forgets requests that have been waiting for an answer for too long.
func (x *exchange) tend(now time.Time) {
	before := x.link.InFlight()
	if x.link.Expire(now.Add(-answerPatience), x.unanswered); x.link.InFlight() < before {
		x.session.copies.expire(now.Add(-answerPatience), now)
		x.session.poller.Revisit(x.session) // there is room for others
	}
}

// answerPatience is how long a request may be in flight: as long as a client waits
// that waits for long.
const answerPatience = time.Minute

func (x *exchange) unanswered(tag uint16) { x.classes[tag].Answered(time.Now(), false) }

// quit ends the exchange with its session.
func (x *exchange) quit(reason stats.Reason) {
	if x.down.last { // the answer has come, if not all of it has been passed on
		x.answered()
	}
	x.answers = false // else the link has it still
	x.up.drop(reason)
	x.down.drop(reason)
	x.link.Drop(x.unanswered)
	now := time.Now()
	for _, class := range x.classes {
		if class != x.session.up.flow.Class() { // which the session quits itself
			class.Quit(now)
		}
	}
}

// waits reports whether something waits for a class.
func (x *exchange) waits() bool { return x.up.backlog.n+x.down.backlog.n > 0 }
