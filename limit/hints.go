package limit

import (
	"slices"
	"time"

	"shaper/unit"
)

// A Hint is what a provider says of one of its limits: at most so many more units before a time.
type Hint struct {
	ID        uint64 // tells the limits of a provider apart
	Remaining int64  // not negative
	Until     time.Time
}

// Hints is the limits that a provider tells in its answers. It promises: if an answer has said at
// a time that r units remain until t, then at most r units leave before t that the provider had
// not counted when it said so. At t the hint is gone, and without a hint Hints holds nothing up.
//
// The provider has counted a unit if its answer has begun. Units without an answer may or may not
// be among those that it has counted, so they are taken away from what remains. After answerAge
// their answers are not expected any more.
//
// A hint replaces those with its ID that were told before the unit left to which it was told: the
// provider knew then what it had said. Others hold beside each other, since answers may overtake each
// other, and so may units on their way to the provider. If there are more hints than mostHints,
// those of which most remains are forgotten.
type Hints struct {
	clock
	told  []told
	sent  []departures // of units without an answer, in order
	units int64        // in sent
}

// told is a hint that was told, or several that were told in a short time: the strictest of them.
type told struct {
	Hint
	first, last time.Time // when these were told
}

// Departures are units that left at a time, or later and before the next departures.
type departures struct {
	at    time.Time
	units int64
}

const (
	answerAge   = time.Minute
	mostHints   = 16
	mostUnheard = 256 // entries of Hints.sent
)

// HintsOf returns the part of a limiter that takes hints; nil if there is none.
func HintsOf(l Limiter) *Hints {
	for _, part := range Parts(l) {
		if h, ok := part.(*Hints); ok {
			return h
		}
	}
	return nil
}

// Next implements Limiter. What is ahead takes its part of what remains too.
func (h *Hints) Next(now time.Time, ahead, n int64) (at time.Time) {
	now = latest(now, h.now)
	for i := range h.told {
		if q := &h.told[i]; q.Until.After(now) && plus(ahead, n) > q.Remaining {
			at = latest(at, q.Until)
		}
	}
	return at
}

// Take implements Limiter.
func (h *Hints) Take(_, now time.Time, n int64) {
	now = h.forget(now)
	for i := range h.told {
		reduce(&h.told[i].Remaining, n)
	}
	if len(h.sent) == mostUnheard {
		h.thin()
	}
	if last := len(h.sent) - 1; last >= 0 && h.sent[last].at.Equal(now) {
		h.sent[last].units += n
	} else {
		h.sent = append(h.sent, departures{now, n})
	}
	h.units += n
}

// Answered says at now that n units have got an answer, which left at the time then.
func (h *Hints) Answered(now, then time.Time, n int64) {
	h.forget(now)
	for i := len(h.sent) - 1; i >= 0; i-- {
		if h.sent[i].at.After(then) {
			continue
		}
		h.units -= reduce(&h.sent[i].units, n)
		if h.sent[i].units == 0 {
			h.sent = slices.Delete(h.sent, i, i+1)
		}
		return
	}
}

// Tell takes a hint that a provider has told in the answer to a unit which left at the time then.
// The caller has called Answered for that unit.
func (h *Hints) Tell(now, then time.Time, q Hint) {
	now = h.forget(now)
	q.Remaining = max(q.Remaining-h.units, 0)
	h.told = slices.DeleteFunc(h.told, func(o told) bool { return o.ID == q.ID && !o.last.After(then) })
	way := now.Sub(then) // and back
	i := slices.IndexFunc(h.told, func(o told) bool {
		return o.ID == q.ID && (len(h.told) == mostHints || now.Sub(o.first) <= way && o.Until.Sub(q.Until).Abs() <= way)
	})
	switch {
	case i >= 0:
		o := &h.told[i]
		o.Remaining, o.Until, o.last = min(o.Remaining, q.Remaining), latest(o.Until, q.Until), now
	case !q.Until.After(now):
	case len(h.told) < mostHints:
		h.told = append(h.told, told{q, now, now})
	default:
		if o := h.loosest(); o.Remaining > q.Remaining {
			*o = told{q, now, now}
		}
	}
}

// loosest returns the hint of which most remains.
func (h *Hints) loosest() *told {
	most := &h.told[0]
	for i := range h.told {
		if o := &h.told[i]; o.Remaining > most.Remaining {
			most = o
		}
	}
	return most
}

// forget forgets what counts no longer. It returns the time to use.
func (h *Hints) forget(now time.Time) time.Time {
	now = h.see(now)
	h.told = slices.DeleteFunc(h.told, func(q told) bool { return !q.Until.After(now) })
	old := 0
	for ; old < len(h.sent) && now.Sub(h.sent[old].at) >= answerAge; old++ {
		h.units -= h.sent[old].units
	}
	h.sent = slices.Delete(h.sent, 0, old)
	return now
}

// thin makes one entry of each two.
func (h *Hints) thin() {
	for i := 0; i+1 < len(h.sent); i += 2 {
		h.sent[i/2] = departures{h.sent[i].at, h.sent[i].units + h.sent[i+1].units}
	}
	h.sent = h.sent[:len(h.sent)/2]
}

// Remaining returns the least that remains of a hint at now, and until when that holds. It
// returns false if there is no hint.
func (h *Hints) Remaining(now time.Time) (units int64, until time.Time, ok bool) {
	for i := range h.told {
		if q := &h.told[i]; q.Until.After(now) && (!ok || q.Remaining < units) {
			units, until, ok = q.Remaining, q.Until, true
		}
	}
	return units, until, ok
}

// Amend implements Amender. It gives nothing back: the provider says what remains.
func (h *Hints) Amend(now, _ time.Time, n int64) {
	h.forget(now)
	for i := range h.told {
		reduce(&h.told[i].Remaining, max(n, 0))
	}
}

// SetRate implements Limiter. The provider has rates of its own.
func (h *Hints) SetRate(time.Time, unit.Rate, int64) {}

// Memory implements Limiter. It is whole if there is one hint at most. Units without an answer are
// forgotten: the caller keeps the memory of what nobody uses.
func (h *Hints) Memory(now time.Time) (m Memory, whole bool) {
	whole = true
	for i := range h.told {
		switch q := &h.told[i]; {
		case !q.Until.After(now):
		case m.Until.IsZero():
			m = Memory{Until: q.Until, At: q.Until, Used: [2]int64{q.Remaining, int64(q.ID)}}
		default:
			m.Until, whole = latest(m.Until, q.Until), false
		}
	}
	return m, whole
}

// Remember implements Limiter.
func (h *Hints) Remember(m Memory) {
	*h = Hints{clock: h.clock}
	if !m.At.IsZero() {
		h.told = []told{{Hint: Hint{ID: uint64(m.Used[1]), Remaining: m.Used[0], Until: m.At}}}
	}
}

// Clone implements Cloner.
func (h *Hints) Clone() Limiter {
	c := *h
	c.told, c.sent = slices.Clone(h.told), slices.Clone(h.sent)
	return &c
}
