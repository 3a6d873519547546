package limit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A settled limiter is one whose items cost less after all, as answers say that come in any order and
// however late.
type settled struct {
	algorithm
	setting
	limiter    Limiter
	now        time.Duration
	events     []event // with what each item costs by the answers until now
	unanswered []int   // which of these have no answer yet
}

// step lets an item leave, or an answer come.
func (l *settled) step(t *rapid.T, largest int64) {
	l.now += anyPause(t, l.setting)
	if len(l.unanswered) == 0 || rapid.Bool().Draw(t, "leaves") {
		n := anyCost(t, l.whole(l.setting)*largest)
		l.now = leave(l.limiter, l.now, n)
		l.unanswered, l.events = append(l.unanswered, len(l.events)), append(l.events, event{l.now, n})
		return
	}
	i := rapid.IntRange(0, len(l.unanswered)-1).Draw(t, "which")
	e := &l.events[l.unanswered[i]]
	l.unanswered = append(l.unanswered[:i], l.unanswered[i+1:]...)
	back := rapid.Int64Range(1, e.n).Draw(t, "back")
	Amend(l.limiter, at(l.now), at(e.at), -back)
	e.n -= back
}

// rounded returns how much sooner an item may leave because a bucket rounds to a nanosecond with each
// answer.
func (l *settled) rounded() time.Duration {
	if l.isBucket() {
		return time.Duration(len(l.events) - len(l.unanswered))
	}
	return 0
}

func (l *settled) isBucket() bool { return l.name == "token" || l.name == "gcra" }

func forEachSettled(t *testing.T, property func(t *rapid.T, l *settled, largest int64)) {
	for _, a := range amending {
		t.Run(a.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s, largest := anySetting(t), rapid.SampledFrom([]int64{1, 1, 4}).Draw(t, "largest")
				property(t, &settled{algorithm: a, setting: s, limiter: a.make(start, s)}, largest)
			})
		})
	}
}

// Whenever answers come, what has left keeps to the promise with what it costs after all.
func TestAmendKeepsThePromise(t *testing.T) {
	forEachSettled(t, func(t *rapid.T, l *settled, largest int64) {
		for range rapid.IntRange(2, 24).Draw(t, "steps") {
			l.step(t, largest)
		}
		for i, first := range l.events {
			if at := first.at + l.rounded(); l.allowed != nil && !l.allowed(l.setting, l.events[:i], at, first.n) {
				t.Fatalf("%+v: %v left too early, after %v", l.setting, first, l.events[:i])
			}
			sum := int64(0)
			for _, e := range l.events[i:] {
				sum += e.n
				if largest == 1 && l.most != nil && big.NewRat(sum, 1).Cmp(l.most(l.setting, e.at-first.at+l.rounded())) > 0 {
					t.Fatalf("%+v: %d left from %v to %v: %v", l.setting, sum, first.at, e.at, l.events)
				}
			}
		}
	})
}

// After some answers, a limiter goes on as one that was charged what the items cost after all, or
// later. Fixed windows do so exactly, and buckets give back whole units only.
func TestAmendIsAsIfChargedRightly(t *testing.T) {
	forEachSettled(t, func(t *rapid.T, l *settled, largest int64) {
		for range rapid.IntRange(2, mostEbbs+1).Draw(t, "steps") {
			l.step(t, largest)
		}
		rightly := l.make(start, l.setting)
		for _, e := range l.events {
			if e.n > 0 {
				rightly.Take(at(e.at), at(e.at), e.n)
			}
		}
		late := l.rounded()
		switch {
		case l.isBucket():
			late += l.rate().Time(int64(late))
		case l.name != "fixed-window" && l.name != "calendar":
			late = math.MaxInt64
		}
		for range 4 {
			now, n := at(l.now+anyPause(t, l.setting)), anyCost(t, l.whole(l.setting))
			got, want := latest(l.limiter.Next(now, 0, n), now), latest(rightly.Next(now, 0, n), now)
			if diff := got.Sub(want); diff < -l.rounded() || diff > late {
				t.Fatalf("%+v, after %v: %d leaves at %v, want %v", l.setting, l.events, n, got.Sub(start), want.Sub(start))
			}
		}
	})
}
