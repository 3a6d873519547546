package shaper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A sessionScript is what clients do, whatever becomes of it: when each opens its session,
// what it sends, and when it ends. Every message gets an answer.
type sessionScript struct {
	protocol policy.Protocol
	holds    int64 // bytes of its connection's memory that a message takes while it waits
	sessions []scripted
}

type scripted struct {
	opens, closes time.Duration
	messages      []scriptedMessage
}

type scriptedMessage struct {
	at      time.Duration
	class   int
	latency time.Duration // until its answer
}

// ends returns when a session ends if nothing holds it up.
func (s *scripted) ends() time.Duration {
	end := s.closes
	for _, m := range s.messages {
		end = max(end, m.at+m.latency)
	}
	return end + 1
}

// A proxy enforces a policy on a script, as sessions with messages do. It is the model of
// package conn that a trial is compared with.
type proxy struct {
	now      time.Time
	protocol policy.Protocol
	holds    int64
	resumed  int // how many parked messages have entered their class
	stuck    int // how often a session stopped reading
	classes  []*Class
	agenda   []planned
	sessions []*proxied
}

type planned struct {
	at time.Time
	do func()
}

type proxied struct {
	proxy   *proxy
	class   *Class
	permit  Permit
	open    bool
	over    bool
	input   []scriptedMessage // what has come and was not taken yet
	kept    map[*Class]*kept
	held    int // how many messages are in all of these
	flying  int
	closing bool
}

// kept is what a session keeps for a class: messages in its queue, and parked messages
// until one of those leaves.
type kept struct{ waiting, parked []*held }

type held struct {
	item    Item
	class   *Class
	session *proxied
	latency time.Duration
}

// runs runs the script until nothing more happens.
func (p *proxy) runs(s sessionScript) {
	p.holds = s.holds
	for _, one := range s.sessions {
		x := &proxied{proxy: p, class: p.classes[0], kept: map[*Class]*kept{}}
		p.sessions = append(p.sessions, x)
		p.plan(at(one.opens), x.begin)
		for _, m := range one.messages {
			p.plan(at(m.at), func() { x.input = append(x.input, m); x.drive() })
		}
		p.plan(at(one.ends()), func() { x.closing = true; x.drive() })
	}
	p.drive()
}

// drive follows the plan, and lets everything leave that may, until nothing more happens.
func (p *proxy) drive() {
	for range 1_000_000 {
		next, root := time.Time{}, (*Class)(nil)
		for _, c := range p.classes {
			if c.Parent() == nil {
				if t := later(c.Next(p.now), p.now); root == nil || t.Before(next) {
					next, root = t, c
				}
			}
		}
		i := p.first()
		switch {
		case i >= 0 && !p.agenda[i].at.After(next):
			e := p.agenda[i]
			p.agenda = slices.Delete(p.agenda, i, i+1)
			p.now = later(p.now, e.at)
			e.do()
		case next.After(at(24 * time.Hour)):
			return
		default:
			p.now = later(p.now, next)
			if it := root.Release(p.now); it != nil {
				it.Owner.Leave(p.now)
			}
		}
	}
}

func (p *proxy) plan(at time.Time, do func()) { p.agenda = append(p.agenda, planned{at, do}) }

// all follows the plan to the end.
func (p *proxy) all() {
	for i := p.first(); i >= 0; i = p.first() {
		e := p.agenda[i]
		p.agenda = slices.Delete(p.agenda, i, i+1)
		p.now = e.at
		e.do()
	}
}

func (p *proxy) first() int {
	first := -1
	for i, e := range p.agenda {
		if first < 0 || e.at.Before(p.agenda[first].at) {
			first = i
		}
	}
	return first
}

// begin asks for a permit.
func (x *proxied) begin() {
	conf := x.class.Policy()
	switch {
	case x.permit.Acquire(x.class, x):
		x.open = true
	case conf.OverflowFor(x.proxy.protocol) != policy.Wait:
		x.refuse(stats.QueueFull)
	case conf.MaxWait > 0:
		x.proxy.plan(x.proxy.now.Add(time.Duration(conf.MaxWait)), func() {
			if !x.open && !x.over {
				x.refuse(stats.MaxWait)
			}
		})
	}
}

func (x *proxied) refuse(reason stats.Reason) {
	x.class.tally.lose(reason, &Cost{})
	x.end()
}

func (x *proxied) end() {
	x.over = true
	x.permit.Release()
}

func (x *proxied) Protocol() policy.Protocol { return x.proxy.protocol }

func (x *proxied) Acquired() {
	x.open = true
	x.proxy.plan(x.proxy.now, x.drive)
}

// drive takes messages as long as nothing holds them up. It ends the session when all is
// done.
func (x *proxied) drive() {
	alone := x.proxy.protocol == policy.HTTP
	for x.open && !x.over && len(x.input) > 0 && !(alone && x.held > 0) && x.find(x.input[0]) {
		x.input = x.input[1:]
	}
	if x.closing && !x.over && len(x.input)+x.held+x.flying == 0 {
		x.end()
	}
}

func (x *proxied) of(c *Class) *kept {
	if x.kept[c] == nil {
		x.kept[c] = &kept{}
	}
	return x.kept[c]
}

// find lets a message enter its class. It returns false if the session must not read on
// before something leaves.
func (x *proxied) find(m scriptedMessage) bool {
	c := x.proxy.classes[m.class]
	k, waits := x.of(c), c.Policy().OverflowFor(x.proxy.protocol) == policy.Wait
	room := len(k.waiting)+len(k.parked) == 0 || int64(x.held+1)*x.proxy.holds <= int64(policy.ConnectionHolds)
	if !room && waits {
		x.proxy.stuck++
		return false
	}
	h := &held{class: c, session: x, latency: m.latency}
	h.item = Item{Cost: Cost{Messages: 1, Bytes: 100}, Held: 100, Asks: true, Owner: h}
	verdict := Full
	if room && len(k.parked) == 0 {
		verdict = h.enter(waits)
	}
	switch {
	case verdict == Leaves || verdict == Waits:
	case waits:
		k.parked = append(k.parked, h)
		x.held++
	default:
		c.tally.lose(map[Verdict]stats.Reason{Full: stats.QueueFull, TooLong: stats.MaxWait}[verdict], &h.item.Cost)
	}
	return true
}

// enter offers a message to its class. The class need not have room if it is the only
// message of its session.
func (h *held) enter(waits bool) Verdict {
	k := h.session.of(h.class)
	h.item.Patient = waits && len(k.waiting) == 0
	verdict := h.class.Enter(h.session.proxy.now, &h.item)
	switch verdict {
	case Leaves:
		h.sent()
	case Waits:
		k.waiting = append(k.waiting, h)
		h.session.held++
	}
	return verdict
}

func (h *held) Leave(time.Time) {
	x := h.session
	k := x.of(h.class)
	k.waiting = slices.DeleteFunc(k.waiting, func(o *held) bool { return o == h })
	x.held--
	h.sent()
	for len(k.parked) > 0 {
		if v := k.parked[0].enter(true); v == Full || v == TooLong {
			break
		}
		k.parked = k.parked[1:]
		x.held--
		x.proxy.resumed++
	}
	x.drive()
}

func (h *held) sent() {
	x := h.session
	x.flying++
	x.proxy.plan(x.proxy.now.Add(h.latency), func() {
		h.class.Provider().Answered(x.proxy.now, true)
		x.flying--
		x.drive()
	})
}

// tries runs the script through a trial. Nothing really holds it up.
func (s sessionScript) tries(t *Trial) {
	var agenda proxy
	for _, one := range s.sessions {
		var g *Guest
		agenda.plan(at(one.opens), func() {
			g = t.Guest(agenda.now, policy.Conn{}, t.classes[0], nil)
			g.Open(agenda.now, s.protocol)
		})
		for _, m := range one.messages {
			agenda.plan(at(m.at), func() {
				c := t.classes[m.class]
				copy := g.Up.Offer(agenda.now, Offer{Class: c, Cost: Cost{Messages: 1, Bytes: 100}, Asks: true, Holds: s.holds,
					Waits: c.Policy().OverflowFor(s.protocol) == policy.Wait, Alone: s.protocol == policy.HTTP})
				copy.Sent(agenda.now)
				agenda.plan(at(m.at+m.latency), func() { copy.Answered(agenda.now) })
			})
		}
		agenda.plan(at(one.ends()), func() { g.End(agenda.now, true) })
	}
	agenda.all()
	t.CatchUp(at(24 * time.Hour))
}

// drawPolicy draws a tree of two leaves under an account. All of them have limits of every
// kind. The sessions are in the first leaf.
func drawPolicy(t *rapid.T) []policy.Class {
	draw := func(name string, values ...int) int { return rapid.SampledFrom(values).Draw(t, name) }
	leaf := func(name, rate string) policy.Class {
		c := withQueue(under("account", named(name, leakyClass(rate))), int64(draw(name+" queue", 1, 3, 100)), 0)
		c.Overflow = rapid.SampledFrom([]policy.Overflow{"", policy.Wait, policy.Refuse}).Draw(t, name+" overflow")
		c.MaxWait = unit.Duration(draw(name+" max_wait", 0, 0, 700) * int(ms))
		c.InFlight = draw(name+" in_flight", 0, 0, 1, 3)
		c.MaxConnections = draw(name+" max_connections", 0, 1, 2)
		return c
	}
	account := named("account", leakyClass("20 messages/s"))
	account.InFlight = draw("in_flight", 0, 2, 5)
	account.MaxConnections = draw("max_connections", 0, 2, 3)
	return []policy.Class{leaf("a", "9 messages/s"), leaf("b", "5 messages/s"), account}
}

// drawScript draws a script in which no two things happen at the same moment, so that
// their order is certain.
func drawScript(t *rapid.T) (s sessionScript) {
	s.protocol = rapid.SampledFrom([]policy.Protocol{policy.SMPP, policy.HTTP}).Draw(t, "protocol")
	s.holds = int64(policy.ConnectionHolds) / int64(rapid.SampledFrom([]int{2, 4, 1000}).Draw(t, "room"))
	unique := time.Duration(1)
	draw := func(name string, most int) time.Duration {
		unique = unique*3/2%100_000 + 7
		return time.Duration(rapid.IntRange(0, most).Draw(t, name))*ms + unique
	}
	for range rapid.IntRange(1, 6).Draw(t, "sessions") {
		one := scripted{opens: draw("opens", 3000)}
		now := one.opens
		for range rapid.IntRange(0, 12).Draw(t, "messages") {
			now += draw("gap", 200)
			one.messages = append(one.messages, scriptedMessage{now, rapid.IntRange(0, 1).Draw(t, "class"), draw("latency", 400)})
		}
		one.closes = now + draw("closes", 1000)
		s.sessions = append(s.sessions, one)
	}
	return s
}

// A policy in the shadow counts what it does when it is in force, to the nanosecond: for
// messages in a tree, with in_flight, max_connections, queues, max_wait and every
// overflow.
func TestTrialCountsWhatThePolicyDoes(t *testing.T) {
	delayed, lost, resumed, stuck := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		confs, s := drawPolicy(t), drawScript(t)
		p := &proxy{now: start, protocol: s.protocol, classes: NewTree(start, confs)}
		p.runs(s)
		resumed, stuck = resumed+p.resumed, stuck+p.stuck
		trial := NewTrial(start, confs)
		s.tries(trial)
		for i, c := range trial.Classes() {
			got, want := of(c.Stats), of(p.classes[i].Stats)
			delayed, lost = delayed+int(want.delayed), lost+int(want.full+want.tooLong)
			if !got.is(want) {
				t.Fatalf("%s: the trial counts %s, and the class in force %s", c.Name(), got, want)
			}
			if c.InFlight() != 0 || c.Sessions() != 0 || c.admitted != 0 {
				t.Fatalf("%s: %d items in flight, %d sessions and %d admitted ones remain", c.Name(), c.InFlight(), c.Sessions(), c.admitted)
			}
		}
	})
	if delayed == 0 || lost == 0 || resumed == 0 || stuck == 0 {
		t.Errorf("over all scripts %d items waited, %d were lost, %d were parked, and a session was stuck %d times: the scripts do not cover everything", delayed, lost, resumed, stuck)
	}
}

func (w wouldBe) String() string {
	return fmt.Sprintf("%d delayed, %d full, %d too long, %d waits of %.9f s", w.delayed, w.full, w.tooLong, w.waits.Count, w.waits.Sum)
}

// A class with shadow counts what waits while too much is in flight, and which sessions
// find no permit, as the same class does in force.
func TestShadowOfAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conf := withQueue(leakyClass("20 messages/s"), rapid.Int64Range(1, 10).Draw(t, "queue"), 0)
		conf.InFlight = rapid.IntRange(1, 4).Draw(t, "in_flight")
		latency := time.Duration(rapid.IntRange(1, 300).Draw(t, "latency"))*ms + 7
		does := proxy{now: start, protocol: policy.SMPP, classes: NewTree(start, []policy.Class{conf})}
		var s sessionScript
		s.protocol = policy.SMPP
		one, now := scripted{}, time.Duration(0)
		for n := range rapid.IntRange(1, 40).Draw(t, "messages") {
			now += time.Duration(rapid.SampledFrom([]int{0, 10, 100}).Draw(t, "gap"))*ms + time.Duration(n)*13 + 1
			one.messages = append(one.messages, scriptedMessage{now, 0, latency})
		}
		s.sessions = []scripted{one}
		does.runs(s)

		would := NewClass(start, inShadow(conf))
		var agenda proxy
		for _, m := range one.messages {
			agenda.plan(at(m.at), func() {
				it := &Item{Cost: Cost{Messages: 1, Bytes: 100}, Held: 100, Asks: true}
				if v := would.Enter(agenda.now, it); v != Leaves {
					t.Fatalf("the class in force gives a message the verdict %v", v)
				}
				agenda.plan(at(m.at+latency), func() { would.Provider().Answered(agenda.now, true) })
			})
		}
		agenda.all()
		if got, want := of(would.Status().Shadow(at(time.Hour))), of(does.classes[0].Stats); !got.is(want) {
			t.Fatalf("the shadow counts %s, and the class in force %s", got, want)
		}
		if n := would.shadow.class().InFlight(); n != 0 {
			t.Fatalf("%d copies are in flight at the end", n)
		}
	})
}

// A session that a class with shadow would have refused takes no permit away from others.
func TestShadowOfPermitsThatAreRefused(t *testing.T) {
	conf := withPermits(inShadow(leakyClass("1KB/s")), 1)
	conf.Overflow = policy.Refuse
	c := NewClass(start, conf)
	var first, refused, next Permit
	for _, s := range []*Permit{&first, &refused} {
		if !s.Acquire(c, nobody{}) {
			t.Fatal("the class with shadow enforces max_connections")
		}
	}
	first.Release()
	next.Acquire(c, nobody{})
	if got := of(c.Status().Shadow(start)); got.full != 1 {
		t.Errorf("the shadow refuses %d sessions, want 1, since the third gets the permit of the first", got.full)
	}
	refused.Release()
	next.Release()
	if n := c.shadow.class().admitted; n != 0 {
		t.Errorf("%d remain admitted", n)
	}
}

// A shadow refuses the sessions that the class itself would refuse: by the session's protocol,
// and by the overflow of its class, also if a class above is full.
func TestShadowRefusesTheSameSessions(t *testing.T) {
	for _, x := range []struct {
		rate     string
		protocol policy.Protocol
		overflow policy.Overflow
		refused  uint64
	}{
		{"5 messages/s", policy.SMPP, "", 1},
		{"5 messages/s", policy.HTTP, "", 1},
		{"5 messages/s", policy.SMPP, policy.Wait, 0},
		{"5 messages/s", policy.Lines, "", 0},
		{"5 messages/s", policy.Lines, policy.Refuse, 1},
		{"1KB/s", policy.HTTP, "", 0},
		{"1KB/s", policy.UDP, "", 1},
	} {
		conf := leakyClass(x.rate)
		conf.Overflow = x.overflow
		own, above := inShadow(withPermits(conf, 1)), inShadow(withPermits(named("above", leakyClass(x.rate)), 1))
		for _, classes := range [][]*Class{NewTree(start, []policy.Class{own}), NewTree(start, []policy.Class{above, under("above", named("c", conf))})} {
			for range 2 {
				new(Permit).Acquire(classes[len(classes)-1], speaker(x.protocol))
			}
			if got := of(classes[0].Status().Shadow(start)); got.full != x.refused {
				t.Errorf("%s, %s, %q, %d classes: the shadow refuses %d sessions, want %d", x.rate, x.protocol, x.overflow, len(classes), got.full, x.refused)
			}
		}
	}
}

// speaker is the owner of a permit, whose session speaks this protocol.
type speaker policy.Protocol

func (speaker) Acquired()                   {}
func (s speaker) Protocol() policy.Protocol { return policy.Protocol(s) }

// A session whose messages never get an answer gives back its permit and what it had in
// flight when it ends. What one session blocks is bounded.
func TestGuestWithoutAnswers(t *testing.T) {
	for _, clean := range []bool{true, false} {
		conf := withPermits(withQueue(leakyClass("100 messages/s"), 10, 0), 1)
		conf.Overflow, conf.InFlight = policy.Wait, 3
		trial := NewTrial(start, []policy.Class{conf})
		c := trial.Classes()[0]
		open := func() *Guest {
			g := trial.Guest(start, policy.Conn{}, c, nil)
			g.Open(start, policy.HTTP)
			return g
		}
		first, second := open(), open()
		for range maxBlocked + 100 {
			for _, g := range []*Guest{first, second} {
				g.Up.Offer(start, Offer{Class: c, Cost: Cost{Messages: 1, Bytes: 10}, Asks: true, Waits: true, Alone: true}).Sent(start)
			}
		}
		if first.Up.blocked > maxBlocked || second.Up.blocked != maxBlocked {
			t.Errorf("%d and %d copies are blocked", first.Up.blocked, second.Up.blocked)
		}
		first.End(at(time.Second), clean)
		second.End(at(2*time.Second), clean)
		trial.CatchUp(at(24 * time.Hour))
		if c.InFlight() != 0 || c.admitted != 0 || c.Backlog().Items != 0 || len(trial.events) != 0 {
			t.Errorf("clean %v: %d items in flight, %d admitted sessions, %d waiting items and %d events remain", clean, c.InFlight(), c.admitted, c.Backlog().Items, len(trial.events))
		}
	}
}
