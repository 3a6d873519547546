package shaper

import (
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/stats"
	"shaper/unit"
)

// A trialShadow is the shadow of a class that enforces nothing. It is another class, in a
// trial of its own. It gets copies of what really leaves, and does with them what the
// policy says. It needs no lock: both fields are set when it is made.
type trialShadow struct {
	in    *Class // the class that gets the copies
	trial *Trial // drives in
}

// newShadow is the shadowMaker of all real classes.
func newShadow(now time.Time, conf policy.Class, l limit.Limiter, counters *stats.Class) shadow {
	conf = shadowPolicy(conf)
	c := newClass(conf, &Tally{Stats: counters}, nil)
	c.trial = &Trial{latest: now, classes: []*Class{c}}
	p := paceOf(conf)
	c.install(now, conf, &p, l)
	return &trialShadow{in: c, trial: c.trial}
}

// shadowPolicy returns the policy of the class in the trial. It has no parent: the classes above
// the real one really do what their policies say.
func shadowPolicy(conf policy.Class) policy.Class {
	conf.Shadow, conf.Parent, conf.Learn = false, "", policy.Learn{} // the real one hears the provider
	conf.Rate, conf.Ceil = conf.Limit(), unit.Rate{}
	return conf
}

// tracks reports whether the policy bounds what is in flight. If so, the trial keeps a copy
// of each item that gets an answer until the answer comes.
func (s *trialShadow) tracks() bool { return s.in.maxInFlight > 0 }

// offer implements shadow.
func (s *trialShadow) offer(now time.Time, cost Cost, from *Source, asks bool) {
	s.trial.mirror(now, s.in, cost, from, asks && s.tracks())
}

// answered implements shadow.
func (s *trialShadow) answered(now time.Time) {
	if s.tracks() {
		s.trial.answered(now)
	}
}

// moveInFlight implements shadow.
func (s *trialShadow) moveInFlight(now time.Time, n int) {
	if s.tracks() {
		s.trial.moveInFlight(now, n)
	}
}

// occupy implements shadow.
func (s *trialShadow) occupy(patient bool) *Permit {
	permit := new(Permit)
	if !permit.Acquire(s.in, nobody{}) && !patient {
		permit.Release()
		s.in.tally.lose(stats.QueueFull, &Cost{})
		return nil
	}
	return permit
}

// nobody waits for a permit that only counts.
type nobody struct{}

func (nobody) Acquired()                 {}
func (nobody) Protocol() policy.Protocol { return policy.TCP }

// isBusy implements shadow.
func (s *trialShadow) isBusy(now time.Time) bool {
	s.trial.CatchUp(now)
	return s.in.queue.Len() > 0
}

// isUsed implements shadow. Sessions, permits and what is in flight are those of the real class.
func (s *trialShadow) isUsed(now time.Time) bool {
	defer s.trial.at(now).Unlock()
	root := s.in.lock()
	defer root.mu.Unlock()
	m, _ := s.in.limiter.Memory(now)
	return m.Until.After(now) || s.trial.trees.first() != limit.Never
}

// set implements shadow.
func (s *trialShadow) set(now time.Time, conf policy.Class, inFlight int) {
	tracked := s.tracks()
	s.put(now, conf)
	if s.tracks() != tracked {
		s.trial.resetInFlight(now, inFlight)
	}
}

// put is set, without telling the trial what is in flight.
func (s *trialShadow) put(now time.Time, conf policy.Class) {
	defer s.trial.at(now).Unlock()
	s.in.Set(s.trial.latest, shadowPolicy(conf))
	s.trial.expect(s.in)
}

// end implements shadow. Somebody may still read the counters and so drive the trial,
// which therefore gets another limiter.
func (s *trialShadow) end(now time.Time) *gate {
	defer s.trial.at(now).Unlock()
	root := s.in.lock()
	defer root.mu.Unlock()
	had := s.in.gate
	s.in.limiter = limitless{}
	return &had
}

// class implements shadow.
func (s *trialShadow) class() *Class { return s.in }

// shadowsOf returns the shadows' classes for a class and its buckets, that of the class
// first.
func shadowsOf(c *Class) (all []*Class) {
	defer c.lock().mu.Unlock()
	if c.shadow != nil {
		withBuckets(c, func(c *Class) { all = append(all, c.shadow.class()) })
	}
	return all
}

// mirror offers a copy of what costs so much to a class of the trial. from and asks are
// those of shadow.offer.
func (t *Trial) mirror(now time.Time, c *Class, cost Cost, from *Source, asks bool) {
	defer t.at(now).Unlock()
	switch {
	case asks:
		x := t.copy(c, cost)
		x.item.Patient, x.item.Asks, x.sent = from != nil, true, now
		t.unanswered = append(t.unanswered, x)
		x.enter()
	case from != nil && cost.Messages == 0 && cost.Bytes > 0 && c.Counts(unit.Bytes):
		from.twin(t, c).send(cost.Bytes)
	default:
		t.enterDatagrams(c, cost, from != nil)
	}
}

// answered is shadow.answered.
func (t *Trial) answered(now time.Time) {
	defer t.at(now).Unlock()
	if t.othersInFlight > 0 {
		t.othersInFlight--
	} else {
		t.answerFirst(now)
	}
}

// answerFirst answers the first copy that has no answer yet, if there is one.
func (t *Trial) answerFirst(now time.Time) {
	if len(t.unanswered) > 0 {
		x := t.unanswered[0]
		t.unanswered = t.unanswered[1:]
		x.answeredAt(now)
	}
}

// moveInFlight is shadow.moveInFlight.
func (t *Trial) moveInFlight(now time.Time, n int) {
	defer t.at(now).Unlock()
	t.othersInFlight += n
	for ; t.othersInFlight < 0 && len(t.unanswered) > 0; t.othersInFlight++ {
		t.answerFirst(now)
	}
	t.othersInFlight = max(t.othersInFlight, 0)
}

// resetInFlight says that n items are in flight, of which the trial has no copies. It
// answers all copies that wait for an answer.
func (t *Trial) resetInFlight(now time.Time, n int) {
	defer t.at(now).Unlock()
	for t.othersInFlight = n; len(t.unanswered) > 0; {
		t.answerFirst(now)
	}
}
