package shaper

import (
	"math"
	"slices"
	"time"

	"shaper/limit"
)

// A Ledger is where the budget of a class lives besides the process, such as a file. It outlives
// the process, and grants leases.
type Ledger interface {
	// Ask asks for a lease in the place of the last one of that name and key, and returns at
	// once. The caller holds the lock of its tree. Later the ledger calls answer, unless that
	// is nil, from a goroutine of its own that holds no lock. granted is how many units may
	// leave from the beginning of the lease on, or limit.NoRoom.
	Ask(lease limit.Lease, answer func(now time.Time, granted int64))
}

// keptFrom is the horizon from which on a class keeps its budget in a ledger while it runs.
// What matters for a shorter time is over when a process that crashed is back.
const keptFrom = 10 * time.Second

// ledgerPatience is how long an item waits for the answer of a ledger. Then it leaves within
// the budget that this process knows: traffic does not stop for a disk.
const ledgerPatience = time.Second

// leastLease is how long a lease lasts at least. It must not end before the answer of a slow
// ledger comes: nothing would ever leave.
const leastLease = 2 * ledgerPatience

// A leased limiter lets out what its ledger has granted, if the limiter within it allows it.
// It asks ahead: for the next lease when half of one is used, in units or in time, and
// something wants to leave. So only what comes first after the class was idle waits for the
// ledger. A lease is a hundredth of what may leave at once, at least one unit, for a
// hundredth of the horizon, at least leastLease. A crash loses what is leased, not more. If a
// class has several limits, the smallest hundredth and the longest horizon count, and of
// limits with a short horizon none.
//
// It never lets out sooner than the limiter within. A ledger that does not answer delays
// what leaves by ledgerPatience once, and not again until it has answered; see silence.
type leased struct {
	limit.Limiter // what this process knows
	class         *Class
	silence       *silence
	part          int64         // how many units to lease at a time
	lasts         time.Duration // how long a lease lasts

	latest time.Time // the latest time at which somebody asked
	units  int64     // what remains of the lease
	until  time.Time // when it ends
	asked  limit.Lease
	asking bool  // the ledger has not answered asked yet
	taken  int64 // how many units have left since asked was asked for
	spills bool  // the ledger has no room for the key: the lease is for all such keys
	listed bool  // it asks when the ledger has answered
}

// A silence tells how long a ledger has not answered a class, or all buckets of one. After
// ledgerPatience nothing waits for the ledger, and nobody asks it for anything else: with many
// keys, the questions would pile up. The lock of the tree guards it.
type silence struct {
	asks  int       // how many questions have no answer yet
	since time.Time // when the first of them was asked, or the ledger has answered last
	owing []*leased // have to ask when the ledger has answered; see cover
}

// asked notes that the ledger is asked for a lease.
func (s *silence) asked(now time.Time) {
	if s.asks == 0 {
		s.since = now
	}
	s.asks++
}

// answered notes that the ledger answers.
func (s *silence) answered(now time.Time) {
	s.asks--
	s.since = now
}

// list notes that l has to ask when the ledger has answered. Keys come and go while the ledger is
// silent. So when there is no more room, list drops those that are gone, and makes room for as many
// as remain.
func (s *silence) list(l *leased) {
	if len(s.owing) == cap(s.owing) {
		s.owing = slices.DeleteFunc(s.owing, (*leased).isGone)
		s.owing = slices.Grow(s.owing, len(s.owing)+1)
	}
	s.owing, l.listed = append(s.owing, l), true
}

// breaks ends the silence: the first limiter of owing that needs a lease asks for it. The next
// limiter asks when the first one has its answer.
func (s *silence) breaks(now time.Time) {
	for asks := s.asks; len(s.owing) > 0 && s.asks == asks; {
		l := s.owing[0]
		s.owing, l.listed = s.owing[1:], false
		l.latest = later(l.latest, now)
		l.cover()
	}
}

// ends returns when nothing waits for the ledger any more, unless it answers before.
func (s *silence) ends() time.Time { return s.since.Add(ledgerPatience) }

// lasts reports whether the ledger owes an answer for which nothing waits any more.
func (s *silence) lasts(now time.Time) bool { return s.asks > 0 && !s.ends().After(now) }

// A backing is what stands behind the budget of a class outside of this process: the member of
// a fleet, or else a ledger. The limiter of the class asks it before anything leaves. A bucket has
// the backing of its class. The lock of the tree guards it.
type backing struct {
	class  *Class // set when the class is made
	member Member // of the fleet that shares the budget; nil: only this process uses it
	ledger Ledger // keeps the budget of the class; nil: only this process knows it
	known  bool   // the fleet knows what the class has used: this class was shared, or the one that it has replaced
}

// standBehind gives a bucket of the class the same backing. The bucket uses it when it gets a limiter next.
func (b *backing) standBehind(bucket *Class) {
	bucket.backing.ledger, bucket.backing.member = b.ledgerOfKeys(), b.member
}

// ledgerOfKeys returns what keeps the budget of each bucket of the class; nil: nothing does. The class has buckets.
func (b *backing) ledgerOfKeys() Ledger {
	if !b.class.keys.outlives {
		return nil
	}
	return b.ledger
}

// limiter returns a limiter that goes on from l at now. If processes share the budget of the
// class, it is a shared one; else, if the class keeps its budget in a ledger, a leased one.
func (b *backing) limiter(now time.Time, p *pace, l limit.Limiter) limit.Limiter {
	l = bare(l)
	_, none := l.(limitless)
	known := b.known
	b.known = b.member != nil && !none
	switch {
	case none:
		return l
	case b.member != nil:
		s := b.shared(now, p, l)
		if !known && b.class.bucketOf == nil {
			s.owe(now, p, &b.class.pace)
			b.erase(now)
		}
		return s
	case b.ledger == nil, p.horizon() <= keptFrom:
		return l
	}
	s := new(silence)
	if keys := b.class.bucketOf; keys != nil {
		s = keys.silence
	}
	return &leased{Limiter: l, class: b.class, silence: s, part: p.part(), lasts: max(p.horizon()/100, leastLease)}
}

// part returns how many units a class leases at a time.
func (p *pace) part() int64 {
	part := int64(math.MaxInt64)
	for r := range p.restraints() {
		if r.horizon() > keptFrom {
			part = min(part, r.atOnce/100)
		}
	}
	return max(part, 1)
}

// bare implements backed.
func (l *leased) bare() limit.Limiter { return l.Limiter }

// idle implements backed. What no item may use, it does not ask for.
func (l *leased) idle(time.Time) {}

// left implements backed.
func (l *leased) left(time.Time) {}

// over implements backed.
func (l *leased) over() (at time.Time) { return at }

// lost implements backed.
func (l *leased) lost(time.Time, int64) {}

// Estimate implements limit.Estimator.
func (l *leased) Estimate(now time.Time, ahead, n int64) time.Time {
	return l.Limiter.Next(now, ahead, n)
}

// Next implements limit.Limiter. Unlike others it changes something: it asks the ledger if
// something wants to leave soon.
func (l *leased) Next(now time.Time, ahead, n int64) time.Time {
	at := l.Limiter.Next(now, ahead, n)
	l.latest = later(l.latest, now)
	if n == 0 || at.Sub(l.latest) > l.lasts/2 {
		return at
	}
	if l.units-n < l.part/2 || l.until.Sub(l.latest) < l.lasts/2 {
		l.ask(n)
	}
	if n > l.units || later(at, l.latest).After(l.until) {
		at = later(at, l.silence.ends())
	}
	return at
}

// Take implements limit.Limiter.
func (l *leased) Take(since, now time.Time, n int64) {
	l.Limiter.Take(since, now, n)
	l.units -= n
	l.taken += n
}

// Amend implements limit.Amender. What costs less makes the lease no larger: the limiter within may
// have given less back, or nothing. The ledger learns of it with the next lease.
func (l *leased) Amend(now, then time.Time, n int64) {
	limit.Amend(l.Limiter, now, then, n)
	if n > 0 {
		l.latest = later(l.latest, now)
		l.units -= n
		l.taken += n
		l.cover()
	}
}

// cover asks for another lease if the last one does not hold what was charged: more has left than it
// had, or it is over. Nothing else might ask for long. A ledger that does not answer is asked when it has.
func (l *leased) cover() {
	switch s := l.silence; {
	case l.isGone() || l.units >= 0 && !l.until.Before(l.latest):
	case l.asking || !s.lasts(l.latest):
		l.ask(0)
	case !l.listed:
		s.list(l)
	}
}

// isGone reports whether nobody uses the limiter any more. That of a spare bucket may be another key's
// soon.
func (l *leased) isGone() bool { return l.class.limiter != l || l.class.isSpare }

// owes reports whether the ledger will not know all that was charged when it has answered.
func (l *leased) owes() bool { return l.listed || l.asking && l.asked.Units < l.taken }

// ask asks the ledger for a lease of n units and more, unless it has been asked already, or
// does not answer. The lease is not smaller than what remains of the last one: both hold
// until the answer.
func (l *leased) ask(n int64) {
	if l.asking || l.silence.lasts(l.latest) {
		return
	}
	c := l.class
	if l.spills {
		l.asked = c.bucketOf.class.backing.leaseOfAllKeys(l.latest)
	} else {
		l.asked = c.backing.record(l.latest)
	}
	// A gap begins when the item has left, which may be later than the end of the lease.
	c.pace.grow(&l.asked, max(n+l.part/2, l.part, l.units), l.latest.Add(l.lasts+leavePatience))
	l.asking, l.taken = true, 0
	l.silence.asked(l.latest)
	c.backing.ledger.Ask(l.asked, l.answer)
}

// answer takes the answer of the ledger. A bucket may have been given up meanwhile. So answer locks
// the tree of the class, which guards the silence.
func (l *leased) answer(now time.Time, granted int64) {
	c, owner := l.class, l.class
	if c.bucketOf != nil {
		owner = c.bucketOf.class
	}
	root, now := owner.lockAt(now)
	defer root.mu.Unlock()
	l.asking = false
	l.silence.answered(now)
	if granted == limit.NoRoom && c.bucketOf != nil {
		l.spills = true
	} else {
		l.units, l.until = granted-l.taken, l.asked.Until.Add(-leavePatience)
	}
	if c.limiter == l {
		if l.units < 0 {
			l.cover()
		}
		c.update(now)
		root.wake(now)
	}
	l.silence.breaks(now)
}

// record returns a lease of no units, with what the class or bucket remembers at now.
func (b *backing) record(now time.Time) limit.Lease {
	c := b.class
	per, key := c.conf.Per, ""
	if k := c.bucketOf; k != nil {
		if c == k.common.bucket { // its owner may be anybody
			lease := k.class.backing.leaseOfAllKeys(now)
			if m, _ := c.limiter.Memory(now); !m.Until.After(now) {
				lease.Expires = now
			}
			return lease
		}
		per, key = k.class.conf.Per, keyText(c.key)
	}
	lease := leaseOf(now, c.limiter, &c.pace, c.pacedRate(), per)
	lease.Name, lease.Key = c.name, key
	return lease
}

// leaseOfAllKeys returns a lease of no units for all keys of the class that a ledger does not know. From it, a
// new process makes each of them start as if as much had just left as may leave at once.
func (b *backing) leaseOfAllKeys(now time.Time) limit.Lease {
	k := b.class.keys
	r := record{per: b.class.conf.Per.String(), pace: k.pace, numbers: make([][]int64, 1+len(k.pace.also))}
	lease := limit.Lease{Name: b.class.name, At: now, Record: r.encode()}
	k.pace.grow(&lease, 0, now)
	return lease
}

// erase makes the ledger forget the class: its fleet has taken over what it remembers.
func (b *backing) erase(now time.Time) {
	if b.ledger != nil {
		b.ledger.Ask(limit.Lease{Name: b.class.name, At: now, Until: now, Expires: now}, nil)
	}
}

// note makes the ledger keep what the class remembers, if the ledger keeps its budget and if there
// is something to remember.
func (b *backing) note(now time.Time) {
	if _, ok := b.class.limiter.(*leased); !ok {
		return
	}
	if lease := b.record(now); lease.Expires.After(now) {
		b.ledger.Ask(lease, nil)
	}
}
