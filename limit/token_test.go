package limit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/unit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns the instant d after start.
func at(d time.Duration) time.Time { return start.Add(d) }

// wantNext fails unless n units may leave at d and no earlier.
func wantNext(t *testing.T, l Limiter, now time.Duration, n int64, d time.Duration) {
	t.Helper()
	if got := l.Next(at(now), 0, n); !got.Equal(at(d)) {
		t.Errorf("at %v, %d may leave at %v, want %v", now, n, got.Sub(start), d)
	}
}

func perSecond(n int64) unit.Rate { return unit.NewRate(unit.Messages, n, time.Second) }

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
		t.Errorf("an item behind 20 leaves at %v, want 2.1s", got.Sub(start))
	}
}

func TestTokenLargerThanTheBucket(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	l.Take(at(0), at(0), 1)
	wantNext(t, l, 0, 25, second/10) // a full bucket is enough
	l.Take(at(0), at(second/10), 25) // 20 in debt
	wantNext(t, l, second/10, 1, second/10+2100*time.Millisecond)
	wantNext(t, l, second/10, 25, second/10+2500*time.Millisecond)
}

func TestTokenLargestDebt(t *testing.T) {
	l := NewToken(at(0), perSecond(1), 1)
	l.Take(at(0), at(0), 1<<43)                   // may leave at once, however large it is
	if got := l.Next(at(0), 0, 1); got != Never { // 278,000 years from now
		t.Errorf("the next item may leave at %v, want Never", got)
	}
}

func TestTokenStaleTimesEarnNothing(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 5)
	l.Take(at(0), at(second), 5)
	for range 10 { // rate.Limiter would fill the same second again
		l.Take(at(0), at(0), 1)
	}
	wantNext(t, l, second, 1, second+1100*time.Millisecond)
	l.SetRate(at(0), perSecond(20), 5)
	wantNext(t, l, 0, 1, second+550*time.Millisecond)
}

func TestTokenRateZeroBlocks(t *testing.T) {
	l := NewToken(at(0), perSecond(0), 5)
	if got := l.Next(at(time.Hour), 0, 1); got != Never {
		t.Errorf("at a rate of 0 a full bucket lets an item leave at %v", got)
	}
	l.SetRate(at(time.Hour), perSecond(10), 5)
	l.Take(at(0), at(time.Hour), 5)
	l.SetRate(at(time.Hour), perSecond(0), 5)
	l.Take(at(0), at(time.Hour), 7) // nobody should, but it must neither hang nor grant anything
	l.SetRate(at(2*time.Hour), perSecond(10), 5)
	wantNext(t, l, 2*time.Hour, 1, 2*time.Hour+800*time.Millisecond)
}

func TestTokenSetRateGivesNoBurst(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  int64
		burst int64
		n     int64 // how many may leave at next
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

func TestTokenHasAtLeastOne(t *testing.T) {
	l := NewToken(at(0), perSecond(10), 0)
	l.Take(at(0), at(0), 1)
	wantNext(t, l, 0, 1, second/10)
}

func TestAfter(t *testing.T) {
	if got := After(start, 1<<63-1); got != Never {
		t.Errorf("the longest Duration ends at %v", got)
	}
	if got := After(start, second); !got.Equal(at(second)) {
		t.Errorf("a second ends at %v", got)
	}
	if !start.Add(1<<63 - 1).Before(Never) {
		t.Error("a Duration reaches Never")
	}
}

// bucket is the model. It uses exact fractions in place of float64.
type bucket struct {
	rate   unit.Rate
	burst  *big.Rat
	tokens *big.Rat
	now    time.Duration
}

func (b *bucket) advance(now time.Duration) {
	b.tokens.Add(b.tokens, allows(b.rate, now-b.now))
	if b.now = now; b.tokens.Cmp(b.burst) > 0 {
		b.tokens.Set(b.burst)
	}
}

// after returns how long it takes until n tokens are there, rounded up.
func (b *bucket) after(n int64) time.Duration {
	missing := new(big.Rat).Sub(big.NewRat(n, 1), b.tokens)
	if missing.Sign() <= 0 {
		return 0
	}
	missing.Quo(missing, allows(b.rate, 1))
	ns, rest := new(big.Int).QuoRem(missing.Num(), missing.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		ns.Add(ns, big.NewInt(1))
	}
	return time.Duration(ns.Int64())
}

// precision returns how exact the times of Token are: to two nanoseconds, plus the time
// that 20 rounding errors of a float64 as large as the burst take to fill.
func precision(rate unit.Rate, burst int64) time.Duration {
	ulp := math.Nextafter(float64(burst), math.MaxFloat64) - float64(burst)
	return time.Duration(2 + 20*ulp/rate.PerSecond()*1e9)
}

// TestTokenIsTheModel draws traces of departures at Next or later. It expects each at the
// instant of the model, and expects that rate.Limiter agrees, both to within precision.
func TestTokenIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(t)
		burst := rapid.Int64Range(1, 1<<20).Draw(t, "burst")
		l := NewToken(start, rate, burst)
		model := bucket{rate, big.NewRat(burst, 1), big.NewRat(burst, 1), 0}
		for range rapid.IntRange(1, 40).Draw(t, "items") {
			n := rapid.Int64Range(1, burst).Draw(t, "n")
			got, want := l.Next(at(model.now), 0, n).Sub(at(model.now)), model.after(n)
			if slop := precision(rate, burst); got < want-slop || got > want+slop {
				t.Fatalf("%v, burst %d: %d may leave after %v, want %v", rate, burst, n, got, want)
			}
			model.advance(model.now + got + time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "late")))
			model.tokens.Sub(model.tokens, big.NewRat(n, 1))
			if now := at(model.now); l.bucket.TokensAt(now) < float64(n)-rate.PerSecond()*precision(rate, burst).Seconds() {
				t.Fatalf("%v, burst %d: %d leave although only %v tokens are there", rate, burst, n, l.bucket.TokensAt(now))
			}
			l.Take(start, at(model.now), n)
		}
	})
}

// TestTokenNeverDrifts lets 10^9 units leave, ten thousand at a time, each as soon as it
// may. The bucket is deeper than that: a full one loses what arrives until the next
// whole nanosecond of the clock.
func TestTokenNeverDrifts(t *testing.T) {
	const items, n = 100_000, 10_000
	for _, rate := range []unit.Rate{
		perSecond(1), perSecond(7), perSecond(999_983), unit.BytesPerSecond(1_000_000_007), unit.NewRate(unit.Packets, 20000, 15*time.Minute),
	} {
		l, now := NewToken(start, rate, 2*n), start
		for range items {
			if next := l.Next(now, 0, n); next.After(now) {
				now = next
			}
			l.Take(now, now, n)
		}
		exact := new(big.Rat).Quo(big.NewRat((items-2)*n, 1), allows(rate, 1)) // the first two left at once
		off := new(big.Rat).SetInt64(int64(now.Sub(start)))
		if off.Sub(off, exact).Abs(off).Cmp(big.NewRat(1000, 1)) > 0 {
			t.Errorf("%v: after %d units the schedule is off by %v ns", rate, items*n, off.FloatString(0))
		}
	}
}
