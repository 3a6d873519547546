package shaper

import (
	"fmt"
	"slices"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// Why says why a class waits, at one moment: what holds up the next item of the class or beneath
// it, on each class of the path to the root.
type Why struct {
	Backlog           // what waits in the class and beneath it; if nothing does, Path is about an item that would come now
	From    string    // the class in which the next item waits
	At      time.Time // when it leaves, if nothing else comes; limit.Never if time alone never lets it leave
	Exact   bool      // At is no estimate, and no schedule changes a rate before
	Path    []Hold    // what holds it up, from its own class to the root; then the classes that have no permit free
	// Sessions is how many sessions wait for a permit in the class and in those above it (max_connections).
	Sessions int
}

// Hold is what holds an item up in one class.
type Hold struct {
	Class string
	Cause Cause
	Until time.Time // limit.Never: time alone does not end it; zero: nobody knows
	Text  string    // in words
}

// Cause is what kind of thing holds an item up.
type Cause string

// The causes.
const (
	ByLimit    Cause = "limit"           // the limit of the class; of a window, that it is full
	ByQuiet    Cause = "quiet"           // the recipient has quiet hours
	ByPause    Cause = "pause"           // the provider has said "too fast"
	ByHint     Cause = "hints"           // the provider has said how much remains of its limit
	ByStore    Cause = "shared"          // the store of the fleet is away
	ByInFlight Cause = "in_flight"       // so many requests have no answer
	ByWriting  Cause = "writing"         // an item before it is being written
	BySiblings Cause = "siblings"        // others that compete for the class come first
	ByPermits  Cause = "max_connections" // sessions wait until others end
	ByChildren Cause = "children"        // no class beneath it in which something waits lets anything leave
)

// why explains what waits at a node. It lets items leave in another copy of the copy.
func (r *rehearsal) why(of *node) (w Why) {
	w.Backlog = of.backlog()
	play := rehearse(r.now, of.root(), of)
	play.inexact = play.inexact || r.inexact
	if w.Items == 0 {
		at, ahead, exact := play.coming(of)
		w.From, w.At, w.Exact = of.class.name, at, exact
		w.Path = holdsOn(r.now, of, unitCost(of.kind), play.ofOriginals(ahead))
		return w
	}
	last, at, ahead, exact := play.until(of)
	w.At, w.Exact = at, exact
	it := firstOf(of)
	for was, copied := range play.items {
		if copied == last {
			it = was
		}
	}
	if it == nil {
		w.From = of.class.name
		w.Path = []Hold{{w.From, ByChildren, limit.Never, "the classes beneath it in which something waits: none of them lets anything leave until an answer comes, a fleet grants something, or a rate changes"}}
		return w
	}
	w.From, w.Path = it.class.name, holdsOn(r.now, &it.class.node, it.Cost, play.ofOriginals(ahead))
	return w
}

// changesBefore reports whether a schedule changes a class of the tree before a time. Up to when a class
// opens again that closes, all is known.
func (r *rehearsal) changesBefore(at time.Time) bool {
	for _, copied := range r.nodes {
		conf := &copied.class.conf
		closed := limit.Span(conf.Closed)
		from := r.now
		if closed.Contains(from) {
			from = closed.Until
		}
		change := nextSection(conf, from)
		if change.Equal(closed.From) {
			change = closed.Until
		}
		if !change.IsZero() && at.After(change) {
			return true
		}
	}
	return false
}

// nextSection returns when another section of the schedule of a class holds than at a time; zero if
// never. The class has the rate of the section that holds now, so it does not know its own any more:
// the sections get rates that tell them apart.
func nextSection(conf *policy.Class, from time.Time) time.Time {
	if len(conf.At) == 0 {
		return time.Time{}
	}
	marked := *conf
	marked.Rate, marked.At = unit.NewRate(unit.Messages, 0, time.Second), slices.Clone(conf.At)
	for i := range marked.At {
		marked.At[i].Rate = unit.NewRate(unit.Messages, int64(i+1), time.Second)
	}
	return marked.NextChange(from)
}

// permitHolds returns the classes that have no permit free, from one to the root, and how many sessions wait there.
// The caller holds the lock of the tree.
func permitHolds(p *permits) (waiting int, all []Hold) {
	for ; p != nil; p = p.above() {
		text := fmt.Sprintf("max_connections allows %d, and all are taken", p.most)
		switch {
		case p.of.keys != nil && p.queued > 0:
			text = fmt.Sprintf("max_connections allows %d for each bucket, and all of some are taken", p.of.conf.MaxConnections)
		case p.most == 0 || !p.isFull():
			continue
		}
		waiting += p.queued
		all = append(all, Hold{p.of.name, ByPermits, time.Time{}, fmt.Sprintf("%s; sessions that wait for one to end: %d", text, p.queued)})
	}
	return waiting, all
}

// firstOf returns an item that waits at the node or beneath it. It returns nil if no feed lists a
// contender in which one waits: time changes nothing for these.
func firstOf(n *node) *Item {
	if it := n.front(); it != nil {
		return it
	}
	if n.feed == nil { // it has its buckets beneath those of another class
		return nil
	}
	for _, h := range n.feed.heaps() {
		for _, a := range *h {
			if a.node != n && a.node.waiting > 0 {
				return firstOf(a.node)
			}
		}
	}
	return nil
}

// holdsOn returns what holds up an item of a cost, from a node to the root. ahead says how many items
// each class lets leave before it.
func holdsOn(now time.Time, n *node, cost Cost, ahead map[*node]int) (all []Hold) {
	for ; n != nil; n = n.parent.Load() {
		if units := cost.In(n.kind); units > 0 && !n.passive {
			all = append(all, n.gate.holds(now, &n.class.conf, units)...)
		}
		if ahead[n] > 0 {
			all = append(all, Hold{n.class.name, BySiblings, time.Time{}, fmt.Sprintf("items that come first among those that compete for it: %d", ahead[n])})
		}
	}
	return all
}

// why explains what the item waits for.
func (a arrival) why() (w Why) {
	c, now := a.class, a.now
	h, behind := a.hold()
	if w.From, w.At = c.name, later(h.until, now); h.by == nil {
		return w
	}
	if in := a.queue(); in != nil {
		w.Backlog = Backlog{Items: int64(in.queue.Len()), Bytes: in.queue.Bytes()}
	}
	if behind != nil {
		w.Path = holdsOn(now, &behind.class.node, behind.Cost, nil)
		return w
	}
	if a.key.group > 0 {
		conf := groupPolicy(c.conf, int(a.key.group-1))
		p := quietPace(conf)
		group := gate{regulator: regulator{pace: p, limiter: p.idle(now)}}
		w.Path = group.holds(now, &conf, 1)
	}
	for k := c.keys; k != nil; k = k.above {
		if !k.conf.Shadow {
			g := k.gate(now, a.key.bucket)
			w.Path = append(w.Path, g.holds(now, &k.conf, 1)...)
		}
	}
	w.Path = append(w.Path, holdsOn(now, &c.node, oneOfEach, nil)...)
	return w
}

// holds returns what holds up an item that costs n and is the next. conf is the policy of the class.
func (g *gate) holds(now time.Time, conf *policy.Class, n int64) (all []Hold) {
	add := func(cause Cause, until time.Time, text string) {
		if until.After(now) {
			all = append(all, Hold{conf.Name, cause, until, text})
		}
	}
	g.regain(now)
	if g.awaitsAnswers() {
		add(ByInFlight, limit.Never, fmt.Sprintf("requests without an answer: %d; in_flight allows %d", g.unanswered(), g.maxInFlight))
	}
	add(ByPause, g.pausedUntil(), `a pause, because the provider has said "too fast"`)
	if !g.leavingSince.IsZero() {
		add(ByWriting, g.leavingSince.Add(leavePatience), "an item that is being written, and may take this long at most")
	}
	part := g.holding(now, 0, n)
	to, away := g.reduced(part, now, n)
	switch {
	case g.awaitsStore(now, n):
		add(ByStore, limit.Never, fmt.Sprintf("the store of the fleet %q, which is away; nothing more leaves without it", conf.Shared))
	case g.pace.quieted:
		add(ByQuiet, g.estimate(now, 0, n), "quiet hours of "+conf.Quieted[0].Text())
	case away:
		add(ByStore, g.estimate(now, 0, n), g.ownText(conf, part, to))
	case part <= len(conf.Also):
		add(ByLimit, g.estimate(now, 0, n), g.limitText(conf, part, to))
	case g.pace.outside(part) == HoldHint:
		remaining, _, _ := limit.HintsOf(bare(g.limiter)).Remaining(now)
		add(ByHint, g.estimate(now, 0, n), fmt.Sprintf("what the provider says remains of its limit: %d", remaining))
	default:
		add(ByLimit, g.estimate(now, 0, n), "a time in which nothing may leave")
	}
	return all
}

// awaitsStore reports whether an item of n units leaves only if the store of a fleet comes back.
func (r *regulator) awaitsStore(now time.Time, n int64) bool {
	return r.isShared() && !r.pace.rate.IsZero() && r.estimate(now, 0, n) == limit.Never
}

// isShared reports whether the budget of the class is in the store of a fleet.
func (r *regulator) isShared() bool {
	switch r.limiter.(type) {
	case *shared, *lent:
		return true
	}
	return false
}

// ownText says that the store of a fleet is away, and what this process has of a limit meanwhile.
func (r *regulator) ownText(conf *policy.Class, part int, own unit.Rate) string {
	text := fmt.Sprintf("the store of the fleet %q, which is away; this shaper has %v", conf.Shared, own)
	if _, of := r.limit(conf, part); of.algorithm.HasWindow() {
		text += " in windows that begin meanwhile" // others may have used up the one that was open
	}
	return text
}

// limit returns a limit of the class, by the number that limit.Holding returns: its rate as in the policy, and how it is kept.
func (r *regulator) limit(conf *policy.Class, part int) (unit.Rate, *restraint) {
	if part > 0 {
		return conf.Also[part-1].Rate, &r.pace.also[part-1]
	}
	return conf.Limit(), &r.pace.restraint
}

// limitText says which limit of the class holds an item up, by the number that limit.Holding
// returns, and to which rate silent members of its fleet reduce that; the zero rate: they do not.
func (r *regulator) limitText(conf *policy.Class, part int, to unit.Rate) (text string) {
	switch rate, of := r.limit(conf, part); {
	case rate.IsZero():
		return "the rate is 0"
	case of.algorithm.HasWindow() && to.Kind() == 0:
		text = fmt.Sprintf("the window is full: it allows %v", rate)
	case of.algorithm.HasBurst():
		text = fmt.Sprintf("the bucket is empty: it fills with %v", rate)
	default:
		text = fmt.Sprintf("the limit of %v", rate)
	}
	if r.isShared() {
		text += fmt.Sprintf(", which all members of the fleet %q share", conf.Shared)
	}
	if to.Kind() != 0 {
		text += fmt.Sprintf("; %v remain, because the shares of silent members are held back", to)
	}
	if l := r.throttle.learner; part == 0 && l != nil && l.level < l.top {
		text += fmt.Sprintf(`, of which the provider seems to take %.4g/s`, l.level)
	}
	if part == 0 && r.throttle.withheld > 0 {
		text += fmt.Sprintf(`, of which the class has %d/%d after "too fast"`, sixteenths-r.throttle.withheld, sixteenths)
	}
	return text
}
