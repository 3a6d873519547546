package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A cast is the shadow of a class that enforces nothing: another class, in a trial of its
// own, that gets copies of what really leaves, and does with them what the policy says.
type cast struct {
	in    *Class
	trial *Trial
}

// newShadow is the caster of all classes.
func newShadow(now time.Time, conf policy.Class, l limit.Limiter, counters *stats.Class) shadow {
	conf = shadowPolicy(conf)
	c := newClass(conf, &tally{Stats: counters}, nil)
	c.trial = &Trial{latest: now, classes: []*Class{c}}
	p := paceOf(conf)
	c.install(now, conf, &p, l)
	return &cast{in: c, trial: c.trial}
}

// shadowPolicy returns the policy of the class in the trial. It has no parent, since the
// classes above the real one do what their policies say.
func shadowPolicy(conf policy.Class) policy.Class {
	conf.Shadow, conf.Parent = false, ""
	conf.Rate, conf.Ceil = conf.Limit(), unit.Rate{}
	return conf
}

// tracks reports whether the cast would hold up what comes while too much is in flight.
// Then it has a copy of what gets an answer until the answer comes.
func (s *cast) tracks() bool { return s.in.mostFlying > 0 }

// offer implements shadow.
func (s *cast) offer(now time.Time, cost Cost, from *Source, asks bool) {
	s.trial.mirror(now, s.in, cost, from, asks && s.tracks())
}

// answered implements shadow.
func (s *cast) answered(now time.Time) {
	if s.tracks() {
		s.trial.answered(now)
	}
}

// moveFlying implements shadow.
func (s *cast) moveFlying(now time.Time, n int) {
	if s.tracks() {
		s.trial.moveFlying(now, n)
	}
}

// occupy implements shadow.
func (s *cast) occupy() *Slot {
	slot := new(Slot)
	if !slot.Acquire(s.in, nobody{}) && s.in.conf.OverflowFor(policy.TCP) != policy.Wait {
		slot.Release()
		s.in.tally.lose(stats.QueueFull, &Cost{})
		return nil
	}
	return slot
}

// nobody waits for a slot that only counts.
type nobody struct{}

func (nobody) Acquired() {}

// isBusy implements shadow.
func (s *cast) isBusy(now time.Time) bool {
	s.trial.CatchUp(now)
	return s.in.queue.Len() > 0
}

// set implements shadow.
func (s *cast) set(now time.Time, conf policy.Class, flying int) {
	tracked := s.tracks()
	s.put(now, conf)
	if s.tracks() != tracked {
		s.trial.resetFlying(now, flying)
	}
}

// put is set, whatever is in flight.
func (s *cast) put(now time.Time, conf policy.Class) {
	defer s.trial.at(now).Unlock()
	s.in.Set(s.trial.latest, shadowPolicy(conf))
	s.trial.expect(s.in)
}

// leave implements shadow. Somebody may still read the counters, and so drive the trial:
// its limiter is another one from now on.
func (s *cast) leave(now time.Time) *gate {
	defer s.trial.at(now).Unlock()
	root := s.in.lock()
	defer root.mu.Unlock()
	had := s.in.gate
	s.in.limiter = limitless{}
	return &had
}

// class implements shadow.
func (s *cast) class() *Class { return s.in }

// Shadow returns the counters of what a class with `shadow` would do, as of now; nil
// if it does what it says.
func (c *Class) Shadow(now time.Time) *stats.Class {
	shadows := shadowsOf(c)
	if len(shadows) == 0 {
		return nil
	}
	for _, s := range shadows { // without the lock of what really leaves: there may be many buckets
		s.trial.CatchUp(now)
	}
	return shadows[0].Stats
}

// shadowsOf returns the classes in the trials of a class and of its buckets.
func shadowsOf(c *Class) (all []*Class) {
	defer c.lock().mu.Unlock()
	if c.shadow != nil {
		each(c, func(c *Class) { all = append(all, c.shadow.class()) })
	}
	return all
}

// mirror offers a class of the trial a copy of what costs so much. from and asks are those
// of shadow.offer.
func (t *Trial) mirror(now time.Time, c *Class, cost Cost, from *Source, asks bool) {
	defer t.at(now).Unlock()
	switch {
	case asks:
		x := t.copy(c, cost)
		x.item.Patient, x.item.Asks, x.sent = from != nil, true, now
		t.asked = append(t.asked, x)
		x.enter()
	case from != nil && cost.Messages == 0 && cost.Bytes > 0 && c.Counts(unit.Bytes):
		from.twin(t, c).send(cost.Bytes)
	default:
		t.each(c, cost, from != nil)
	}
}

// answered is that of shadow.
func (t *Trial) answered(now time.Time) {
	defer t.at(now).Unlock()
	if t.others > 0 {
		t.others--
	} else {
		t.answerFirst(now)
	}
}

// answerFirst answers the first copy that has no answer, if there is one.
func (t *Trial) answerFirst(now time.Time) {
	if len(t.asked) > 0 {
		x := t.asked[0]
		t.asked = t.asked[1:]
		x.answeredAt(now)
	}
}

// moveFlying is that of shadow.
func (t *Trial) moveFlying(now time.Time, n int) {
	defer t.at(now).Unlock()
	t.others += n
	for ; t.others < 0 && len(t.asked) > 0; t.others++ {
		t.answerFirst(now)
	}
	t.others = max(t.others, 0)
}

// resetFlying forgets which answers are to come: n items are in flight, and the trial has
// copies of none of them.
func (t *Trial) resetFlying(now time.Time, n int) {
	defer t.at(now).Unlock()
	for t.others = n; len(t.asked) > 0; {
		t.answerFirst(now)
	}
}
