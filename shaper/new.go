package shaper

import (
	"slices"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
)

// NewClass returns an idle class that the caller drives by hand, with Enter, Next and
// Release. At first a leaky class lets one item leave at once, a token class a burst.
func NewClass(now time.Time, conf policy.Class) *Class {
	p := paceOf(conf)
	return newRoot(now, conf, &Tally{Stats: new(stats.Class)}, &p, p.idle(now))
}

// newRoot returns a class with the policy conf, the pace p and the limiter l. It has no parent
// yet, and nobody else knows it, so no lock is held.
func newRoot(now time.Time, conf policy.Class, counters *Tally, p *pace, l limit.Limiter) *Class {
	c := newClass(conf, counters, newShadow)
	c.quiet = newQuiet(c, conf)
	if conf.Per != (policy.Per{}) {
		c.keys = newKeys(now, c, conf)
	}
	c.install(now, conf, p, l)
	return c
}

// NewTree returns idle classes in the order of confs, each under the parent that it names.
// The caller drives them by hand, as with NewClass. Next and Release of a class are those
// of its whole tree.
func NewTree(now time.Time, confs []policy.Class) []*Class {
	classes, byName := make([]*Class, len(confs)), map[string]*Class{}
	for i, conf := range confs {
		classes[i] = NewClass(now, conf)
		byName[conf.Name] = classes[i]
	}
	for i := range confs {
		if parent := parentOf(&confs[i], byName); parent != nil {
			attach(now, classes[i], parent)
		}
	}
	return classes
}

// NewSharedTree is NewTree for a member of a fleet: members are those of its classes, by name. If
// more is in hand of one, the caller calls Told of the class.
func NewSharedTree(now time.Time, confs []policy.Class, members map[string]Member) []*Class {
	classes := NewTree(now, confs)
	for i, c := range classes {
		if member := members[confs[i].Name]; member != nil {
			c.backing.setMember(member)
			c.Share(now, member)
		}
	}
	return classes
}

// parentOf returns the class that a policy names as its parent; nil for none.
func parentOf(conf *policy.Class, byName map[string]*Class) *Class {
	if conf.Parent == "" {
		return nil
	}
	return byName[conf.Parent]
}

// NewTrial returns a trial of the classes of a policy. They are idle at now, and follow their
// schedules.
func NewTrial(now time.Time, confs []policy.Class) *Trial {
	scheduled := slices.Clone(confs)
	for i := range scheduled {
		scheduled[i], _ = confs[i].Scheduled(now)
	}
	t := &Trial{latest: now, classes: NewTree(now, scheduled)}
	for i, c := range t.classes {
		c.trial = t
		t.follow(c, confs[i])
	}
	return t
}

// succeed returns the class that replaces old, to count another unit, to have other buckets or
// other groups. It takes over the counters of old, and what waits in old counts in its backlog. If
// only the groups are others, it goes on from where old is; else it starts without a burst.
//
// The caller holds the lock of the Shaper: nobody else changes former.
func succeed(now time.Time, old *Class, conf policy.Class) *Class {
	p := paceOf(conf)
	next := newRoot(now, conf, &Tally{Stats: old.Stats, lost: old.tally.lost}, &p, p.spent(now))
	if next.keys != nil {
		next.keys.spend(now)
	}
	forget := old.former != nil && old.former.Backlog() == (Backlog{}) // before the lock: Backlog takes another
	defer old.lock().mu.Unlock()
	known := old.backing.member != nil && old.shadow == nil
	if old.kind == next.kind && old.keys == nil && next.keys == nil {
		goOn(now, next, old, conf, &p)
	} else {
		known = true // nothing has left the new class, so there is nothing that the fleet does not know
	}
	next.waker, next.former = old.waker, old
	next.backing.ledger, next.backing.known = old.backing.ledger, known
	if forget {
		old.former = nil
	}
	return next
}

// goOn makes c go on from where old is. From then on old lets nothing out: what waits there
// waits until its owners take it out. Answers to what has left old still come to old, under the
// lock of its tree. c is in another tree, so it gets copies of what old has. The caller holds the
// lock of old's tree.
func goOn(now time.Time, c, old *Class, conf policy.Class, p *pace) {
	had := old.endShadow(now)
	if !had.leavingSince.IsZero() && (had != &old.gate || old.payer.class.owner == old) { // Left does not reach c
		at := now.Add(leaveMargin)
		had.settle(at, at, now, 0)
	}
	since := had.leavingSince
	old.shadow, c.assured, c.throttle = nil, copyOf(old.assured), old.throttle.clone()
	c.install(now, conf, p, had.takeOver(now, p))
	if c.alone {
		c.leavingSince, c.payer = since, old.payer
	}
	old.use(blocked{})
	old.heir = c
}
