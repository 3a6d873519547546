package limit

import (
	"testing"
	"time"

	"shaper/unit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns an instant of the test's clock.
func at(d time.Duration) time.Time { return start.Add(d) }

// wantNext fails unless n units may leave at d and no earlier.
func wantNext(t *testing.T, l Limiter, now time.Duration, n int64, d time.Duration) {
	t.Helper()
	if got := l.Next(at(now), 0, n); !got.Equal(at(d)) {
		t.Errorf("at %v, %d may leave at %v, want %v", now, n, got.Sub(start), d)
	}
}

func perSecond(n int64) unit.Rate { return unit.NewRate(unit.Packets, n, time.Second) }

const second = time.Second

func TestTokenBurstThenRate(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	for range 5 {
		wantNext(t, l, 0, 1, 0)
		l.Take(at(0), at(0), 1)
	}
	for i := range time.Duration(20) {
		due := (i + 1) * 100 * time.Millisecond
		wantNext(t, l, due-1, 1, due)
		l.Take(at(0), at(due), 1)
	}
}

func TestTokenFillsUpAndNoFurther(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	l.Take(at(0), at(0), 5)
	wantNext(t, l, time.Hour, 5, time.Hour)
	l.Take(at(0), at(time.Hour), 5)
	wantNext(t, l, time.Hour, 5, time.Hour+second/2)
}

func TestTokenAhead(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	l.Take(at(0), at(0), 5)
	if got := l.Next(at(0), 20, 1); !got.Equal(at(2100 * time.Millisecond)) {
		t.Errorf("behind 20 one leaves at %v, want 2.1s", got.Sub(start))
	}
}

func TestTokenLargerThanTheBucket(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	l.Take(at(0), at(0), 1)
	wantNext(t, l, 0, 25, second/10) // a full bucket will do
	l.Take(at(0), at(second/10), 25) // 20 in debt
	wantNext(t, l, second/10, 1, second/10+2100*time.Millisecond)
	wantNext(t, l, second/10, 25, second/10+2500*time.Millisecond)
}

func TestTokenLargestDebt(t *testing.T) {
	l := NewToken(at(0), perSecond(1), 1)
	l.Take(at(0), at(0), 1<<43)                   // at once, however many buckets that is
	if got := l.Next(at(0), 0, 1); got != Never { // in 278,000 years
		t.Errorf("the next may leave at %v", got)
	}
}

func TestTokenStaleTimesEarnNothing(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	l.Take(at(0), at(second), 5)
	for range 10 { // rate.Limiter would go back and fill the second again
		l.Take(at(0), at(0), 1)
	}
	wantNext(t, l, second, 1, second+1100*time.Millisecond)
	l.SetRate(at(0), perSecond(20), 5)
	wantNext(t, l, 0, 1, second+550*time.Millisecond)
}

func TestTokenRateZeroBlocks(t *testing.T) {
	l := NewToken(at(0), perSecond(0), 5)
	if got := l.Next(at(time.Hour), 0, 1); got != Never {
		t.Errorf("a full bucket at a rate of 0 lets one leave at %v", got)
	}
	l.SetRate(at(time.Hour), perSecond(10), 5)
	l.Take(at(0), at(time.Hour), 5)
	l.SetRate(at(time.Hour), perSecond(0), 5)
	l.Take(at(0), at(time.Hour), 7) // nobody should, but it must not hang or grant
	l.SetRate(at(2*time.Hour), perSecond(10), 5)
	wantNext(t, l, 2*time.Hour, 1, 2*time.Hour+800*time.Millisecond)
}

func TestTokenSetRateGivesNoBurst(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  int64
		burst int64
		n     int64 // may leave at
		next  time.Duration
	}{
		{"faster", 100, 5, 1, second + 10*time.Millisecond},
		{"slower", 1, 5, 1, 2 * second},
		{"deeper", 10, 1000, 10, 2 * second},
		{"shallower", 10, 1, 1, second + second/10},
		{"the same", 10, 5, 1, second + second/10},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewToken(at(0), perSecond(10), 5)
			l.Take(at(0), at(second), 5)
			l.SetRate(at(second), perSecond(c.rate), c.burst)
			wantNext(t, l, second, c.n, c.next)
		})
	}
}

func TestTokenShallowerLosesWhatIsAbove(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 100)
	l.SetRate(at(0), perSecond(10), 5)
	l.SetRate(at(0), perSecond(10), 100)
	l.Take(at(0), at(0), 5)
	wantNext(t, l, 0, 1, second/10)
}

func TestTokenEmpty(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	l.Empty(at(0))
	wantNext(t, l, 0, 1, second/10)
	l.Take(at(0), at(0), 10)
	l.Empty(at(0)) // forgives no debt
	wantNext(t, l, 0, 1, 1100*time.Millisecond)
}

func TestTokenHasAtLeastOne(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 0)
	l.Take(at(0), at(0), 1)
	wantNext(t, l, 0, 1, second/10)
}

func TestTokenAllocatesNothing(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	if n := testing.AllocsPerRun(100, func() {
		l.Next(at(0), 0, 1)
		l.Take(at(0), at(0), 1)
		l.Take(at(0), at(0), 9)
	}); n != 0 {
		t.Errorf("Take allocates %v times", n)
	}
}

func TestAfter(t *testing.T) {
	if got := After(start, 1<<63-1); got != Never {
		t.Errorf("the longest Duration ends at %v", got)
	}
	if got := After(start, second); !got.Equal(at(second)) {
		t.Errorf("a second ends at %v", got)
	}
	if !start.Add(1<<63 - 1).Before(Never) {
		t.Error("Never comes")
	}
}

func BenchmarkToken(b *testing.B) {
	l, now := NewToken(at(0), perSecond(1000), 5), start
	for b.Loop() {
		if next := l.Next(now, 0, 1); next.After(now) {
			now = next
		}
		l.Take(now, now, 1)
	}
}
