package limit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// hintStart is when the tests of this file begin.
var hintStart = time.Date(2026, 11, 22, 22, 0, 0, 0, time.UTC)

func hintAt(d time.Duration) time.Time { return hintStart.Add(d) }

// expectNext checks when an item of n units may leave.
func expectNext(t *testing.T, h *Hints, now, n, want int64) {
	t.Helper()
	got := h.Next(hintAt(time.Duration(now)*time.Second), 0, n)
	if wanted := hintAt(time.Duration(want) * time.Second); want > now && !got.Equal(wanted) || want <= now && got.After(hintAt(time.Duration(now)*time.Second)) {
		t.Errorf("at %ds, %d units may leave at %v, want %ds", now, n, got.Sub(hintStart), want)
	}
}

// hear tells the limiter a hint at so many seconds, in the answer to a unit that left at then.
func hear(h *Hints, now, then, remaining, until int64) {
	at, left := hintAt(time.Duration(now)*time.Second), hintAt(time.Duration(then)*time.Second)
	h.Answered(at, left, 1)
	h.Tell(at, left, Hint{ID: 1, Remaining: remaining, Until: hintAt(time.Duration(until) * time.Second)})
}

func send(h *Hints, now, n int64) {
	at := hintAt(time.Duration(now) * time.Second)
	h.Take(at, at, n)
}

func TestHintHoldsUntilItsLimitIsRenewed(t *testing.T) {
	h := new(Hints)
	expectNext(t, h, 0, 1000, 0) // nobody has said anything
	send(h, 0, 1)
	hear(h, 1, 0, 3, 30)
	expectNext(t, h, 1, 3, 1)
	expectNext(t, h, 1, 4, 30)
	if at := h.Next(hintAt(time.Second), 2, 2); !at.Equal(hintAt(30 * time.Second)) {
		t.Errorf("behind 2 units, 2 may leave at %v, want 30s", at.Sub(hintStart))
	}
	send(h, 2, 2)
	expectNext(t, h, 2, 1, 2)
	expectNext(t, h, 2, 2, 30)
	send(h, 3, 1)
	expectNext(t, h, 29, 1, 30)
	expectNext(t, h, 30, 1000, 30) // it is gone
	send(h, 30, 5)
	expectNext(t, h, 30, 1000, 30)
}

func TestHintCountsWhatHasNoAnswer(t *testing.T) {
	h := new(Hints)
	send(h, 0, 1)
	send(h, 1, 2)
	send(h, 2, 3)
	hear(h, 3, 1, 10, 30) // one of the units of second 1 is answered: 1, 1 and 3 are not
	expectNext(t, h, 3, 5, 3)
	expectNext(t, h, 3, 6, 30)
	hear(h, 4, 0, 8, 30) // an older answer that came late only lowers: 8 less the 4 without an answer
	expectNext(t, h, 4, 4, 4)
	expectNext(t, h, 4, 5, 30)
	hear(h, 5, 1, 100, 30) // this unit left before the last answer came
	expectNext(t, h, 5, 4, 5)
	expectNext(t, h, 5, 5, 30)
	send(h, 6, 1)
	hear(h, 7, 6, 90, 31) // this one left later: 90 less 3
	expectNext(t, h, 7, 87, 7)
	expectNext(t, h, 7, 88, 31)
}

// An answer that overtakes others may tell the next window before this one.
func TestHintsOfTwoWindows(t *testing.T) {
	h := new(Hints)
	send(h, 0, 1)
	send(h, 1, 1)
	hear(h, 2, 0, 20, 100)
	hear(h, 3, 1, 0, 10)
	expectNext(t, h, 3, 1, 10)
	expectNext(t, h, 10, 19, 10)
	expectNext(t, h, 10, 20, 100)
	send(h, 10, 1)
	hear(h, 11, 10, 30, 101)
	expectNext(t, h, 11, 30, 11)
	expectNext(t, h, 11, 31, 101)
}

// After a minute an answer is not expected any more.
func TestHintForgetsWhatIsNeverAnswered(t *testing.T) {
	h := new(Hints)
	send(h, 0, 7)
	send(h, 59, 1)
	hear(h, 59, 59, 10, 600)
	expectNext(t, h, 59, 4, 600)
	send(h, 60, 1)
	hear(h, 61, 60, 10, 600)
	expectNext(t, h, 61, 10, 61)
	expectNext(t, h, 61, 11, 600)
}

// If a provider names more limits than a class keeps, the strictest of them hold.
func TestTooManyHints(t *testing.T) {
	h, now := new(Hints), hintAt(0)
	tell := func(id uint64, remaining, seconds int64) {
		h.Tell(now, now, Hint{ID: id, Remaining: remaining, Until: hintAt(time.Duration(seconds) * time.Second)})
	}
	for id := range uint64(mostHints) {
		tell(id, 100+int64(id), 1000)
	}
	tell(mostHints, 0, 10)
	expectNext(t, h, 0, 1, 10)
	expectNext(t, h, 10, 100, 10)
	expectNext(t, h, 10, 101, 1000)
	tell(mostHints+1, 200, 20)
	expectNext(t, h, 0, 1, 10)
}

func TestHintsOfSeveralLimits(t *testing.T) {
	h := new(Hints)
	now := hintAt(0)
	h.Tell(now, now, Hint{ID: 1, Remaining: 5, Until: hintAt(10 * time.Second)})
	h.Tell(now, now, Hint{ID: 2, Remaining: 8, Until: hintAt(60 * time.Second)})
	expectNext(t, h, 0, 5, 0)
	expectNext(t, h, 0, 6, 10)
	expectNext(t, h, 0, 9, 60)
	send(h, 1, 5)
	expectNext(t, h, 1, 1, 10)
	expectNext(t, h, 10, 3, 10)
	expectNext(t, h, 10, 4, 60)
	if n, until, ok := h.Remaining(hintAt(time.Second)); n != 0 || !until.Equal(hintAt(10*time.Second)) || !ok {
		t.Errorf("the least that remains is %d until %v, %v", n, until.Sub(hintStart), ok)
	}
	for id := range uint64(100) { // more than there is room for are ignored
		h.Tell(now, now, Hint{ID: 10 + id, Remaining: 0, Until: hintAt(20 * time.Second)})
	}
	if len(h.told) != mostHints {
		t.Errorf("it remembers %d hints", len(h.told))
	}
}

func TestHintIsCorrected(t *testing.T) {
	h := new(Hints)
	send(h, 0, 1)
	hear(h, 1, 0, 10, 30)
	h.Amend(hintAt(2*time.Second), hintAt(0), 4)
	expectNext(t, h, 2, 6, 2)
	expectNext(t, h, 2, 7, 30)
	h.Amend(hintAt(2*time.Second), hintAt(0), -4) // the provider says what it gives back
	expectNext(t, h, 2, 7, 30)
}

// A hint that has passed already says nothing. Time that goes back stands still.
func TestHintOfThePast(t *testing.T) {
	h := new(Hints)
	send(h, 10, 1)
	hear(h, 12, 10, 0, 11)
	hear(h, 12, 10, 0, 12)
	expectNext(t, h, 12, 9, 12)
	hear(h, 5, 10, 0, 20)
	expectNext(t, h, 5, 1, 20)
}

func TestHintsAreRemembered(t *testing.T) {
	h, now := new(Hints), hintAt(0)
	if m, whole := h.Memory(now); !whole || m.Until.After(now) {
		t.Fatalf("there is something to remember: %+v, %v", m, whole)
	}
	h.Tell(now, now, Hint{ID: 1 << 63, Remaining: 5, Until: hintAt(10 * time.Second)})
	m, whole := h.Memory(now)
	next := new(Hints)
	next.Remember(m)
	expectNext(t, next, 0, 5, 0)
	expectNext(t, next, 0, 6, 10)
	next.Tell(now, now, Hint{ID: 1 << 63, Remaining: 7, Until: hintAt(10 * time.Second)})
	if expectNext(t, next, 0, 7, 0); !whole || len(next.told) != 1 {
		t.Errorf("the memory of one hint is whole: %v; later there are %d hints", whole, len(next.told))
	}
	h.Tell(now, now, Hint{ID: 2, Remaining: 5, Until: hintAt(20 * time.Second)})
	if m, whole := h.Memory(now); whole || !m.Until.Equal(hintAt(20*time.Second)) {
		t.Errorf("the memory of two hints is whole: %v, until %v", whole, m.Until)
	}
	copied := h.Clone().(*Hints)
	send(copied, 1, 5)
	expectNext(t, copied, 1, 1, 20)
	expectNext(t, h, 1, 5, 1)
}

// With many more units in flight than it tells apart, it still counts each of them once.
func TestHintsOfManyInFlight(t *testing.T) {
	h := new(Hints)
	const many = 10 * mostUnheard
	for i := range int64(many) {
		at := hintAt(time.Duration(i) * time.Millisecond)
		h.Take(at, at, 1)
	}
	if len(h.sent) > mostUnheard || h.units != many {
		t.Fatalf("of %d units it counts %d, in %d entries", many, h.units, len(h.sent))
	}
	for i := range int64(many) {
		h.Answered(hintAt(many*time.Millisecond), hintAt(time.Duration(i)*time.Millisecond), 1)
	}
	if h.units > many/50 {
		t.Errorf("all %d units are answered, and it takes %d as in flight", many, h.units)
	}
}

// A flight is a request on its way to a provider, or its answer on its way back.
type flight struct {
	at     time.Time // when it arrives
	left   time.Time // when the request left
	answer *answer   // nil: it is a request
}

type answer struct {
	remaining int64
	lasts     time.Duration
	refused   bool
}

// A windowed provider takes so many requests in each window, and tells how many more it takes.
type windowed struct {
	quota, counted int64
	window         time.Duration
	until          time.Time // the end of the window
}

func (p *windowed) answer(now time.Time) *answer {
	for !now.Before(p.until) {
		p.counted, p.until = 0, p.until.Add(p.window)
	}
	refuses := p.counted == p.quota
	if !refuses {
		p.counted++
	}
	return &answer{p.quota - p.counted, p.until.Sub(now), refuses}
}

// Whatever the delays, and in whatever order requests and answers arrive: who obeys the hints is
// never refused, if only one request is under way while there is no hint.
func TestWhoObeysHintsIsNotRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		ms := func(most int64) time.Duration { return time.Duration(1+random.Int64N(most)) * time.Millisecond }
		delay := rapid.Int64Range(1, 300).Draw(t, "delay")
		p := windowed{quota: rapid.Int64Range(1, 20).Draw(t, "quota"), window: time.Duration(rapid.Int64Range(100, 2000).Draw(t, "window")) * time.Millisecond}
		p.until = hintStart.Add(p.window)
		h, now := new(Hints), hintStart
		var flights []flight
		sent := 0
		for range 1000 {
			_, _, told := h.Remaining(now)
			if (told || len(flights) == 0) && !h.Next(now, 0, 1).After(now) {
				h.Take(now, now, 1)
				sent++
				flights = append(flights, flight{at: now.Add(ms(delay)), left: now})
				now = now.Add(ms(20) - time.Millisecond)
			} else if len(flights) == 0 {
				now = h.Next(now, 0, 1)
			} else {
				now = latest(now, slices.MinFunc(flights, byArrival).at)
			}
			slices.SortStableFunc(flights, byArrival)
			for len(flights) > 0 && !flights[0].at.After(now) {
				f := flights[0]
				flights = flights[1:]
				switch a := f.answer; {
				case a == nil:
					flights = append(flights, flight{f.at.Add(ms(delay)), f.left, p.answer(f.at)})
					slices.SortStableFunc(flights, byArrival)
				case a.refused:
					t.Fatalf("request %d is refused", sent)
				default:
					h.Answered(now, f.left, 1)
					h.Tell(now, f.left, Hint{1, a.remaining, now.Add(a.lasts)})
				}
			}
		}
		if sent < 100 {
			t.Fatalf("in 1000 steps only %d requests were sent", sent)
		}
	})
}

func byArrival(a, b flight) int { return a.at.Compare(b.at) }
