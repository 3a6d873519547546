package limit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/tests/trial"
	"shaper/unit"
)

func TestGCRABurstThenRate(t *testing.T) {
	l := NewGCRA(at(0), perSecond(3), 2)
	for _, due := range []time.Duration{0, 0, 333_333_334, 666_666_667, second, 1_333_333_334} {
		if got := leave(l, 0, 1); got != due {
			t.Errorf("a unit left at %v, want %v", got, due)
		}
	}
}

func TestGCRALargerThanTheBucket(t *testing.T) {
	l := NewGCRA(at(0), perSecond(10), 5)
	l.Take(at(0), at(0), 1)
	wantNext(t, l, 0, 25, second/10)
	l.Take(at(0), at(second/10), 25) // 20 in debt
	wantNext(t, l, second/10, 1, second/10+2100*time.Millisecond)
	wantNext(t, l, second/10, 25, second/10+2500*time.Millisecond)
}

func TestGCRAStaleTimesEarnNothing(t *testing.T) {
	l := NewGCRA(at(0), perSecond(10), 5)
	l.Take(at(0), at(second), 5)
	for range 10 {
		l.Take(at(0), at(0), 1)
	}
	wantNext(t, l, second, 1, second+1100*time.Millisecond)
	l.SetRate(at(0), perSecond(20), 5)
	wantNext(t, l, 0, 1, second+550*time.Millisecond)
}

func TestGCRASetRateGivesNoBurst(t *testing.T) {
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
			l := NewGCRA(at(0), perSecond(10), 5)
			l.Take(at(0), at(second), 5)
			l.SetRate(at(second), perSecond(c.rate), c.burst)
			wantNext(t, l, second, c.n, c.next)
		})
	}
}

// A part of a unit that has arrived stays, at whatever rate it arrived.
func TestGCRASetRateKeepsPartsOfAUnit(t *testing.T) {
	l := NewGCRA(at(0), unit.NewRate(unit.Packets, 1, time.Hour), 1)
	l.Take(at(0), at(0), 1)
	l.SetRate(at(45*time.Minute), unit.NewRate(unit.Packets, 1, time.Minute), 1)
	wantNext(t, l, 45*time.Minute, 1, 45*time.Minute+15*second)
}

func TestGCRARateZeroKeepsWhatIsMissing(t *testing.T) {
	l := NewGCRA(at(0), perSecond(10), 5)
	l.Take(at(0), at(time.Hour), 5)
	l.SetRate(at(time.Hour+second/20), perSecond(0), 5) // four and a half are missing, which counts as five
	l.Take(at(0), at(time.Hour+second/20), 7)
	l.SetRate(at(2*time.Hour), perSecond(10), 5)
	wantNext(t, l, 2*time.Hour, 1, 2*time.Hour+800*time.Millisecond)
}

func TestGCRAHasAtLeastOne(t *testing.T) {
	l := NewGCRA(at(0), perSecond(10), 0)
	l.Take(at(0), at(0), 1)
	wantNext(t, l, 0, 1, second/10)
}

// TestGCRANeverDrifts lets 10^9 units leave if sizes are full, a thousand at a time, each as soon
// as it may. A thousand is also the burst. It expects the exact schedule.
func TestGCRANeverDrifts(t *testing.T) {
	const n = 1_000
	items := trial.Size[int64](200_000, 1_000_000)
	for _, rate := range []unit.Rate{
		perSecond(1), perSecond(7), perSecond(999_983), unit.BytesPerSecond(1_000_000_007), unit.NewRate(unit.Packets, 20000, 15*time.Minute),
	} {
		l, now := NewGCRA(start, rate, n), time.Duration(0)
		for range items {
			now = leave(l, now, n)
		}
		exact := new(big.Rat).Quo(big.NewRat((items-1)*n, 1), allows(rate, 1))
		off := new(big.Rat).SetInt64(int64(now))
		if off.Sub(off, exact); off.Sign() < 0 || off.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Errorf("%v: after %d units the schedule is off by %v ns", rate, items*n, off.FloatString(3))
		}
	}
}

// TestGCRASetRateIsTheModel compares GCRA with a bucket in exact fractions while rate and
// burst change.
func TestGCRASetRateIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := bucket{rate: anyRate(t), burst: big.NewRat(rapid.Int64Range(1, 1<<20).Draw(t, "burst"), 1)}
		model.tokens = new(big.Rat).Set(model.burst)
		l := NewGCRA(start, model.rate, model.burst.Num().Int64())
		slop := new(big.Rat) // units that rounding to whole nanoseconds may cost
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			burst := model.burst.Num().Int64()
			n := rapid.Int64Range(1, 2*burst).Draw(t, "n")
			next, want := max(l.Next(at(model.now), 0, n).Sub(at(model.now)), 0), model.after(min(n, burst))
			if !near(model.rate, next, want, slop) {
				t.Fatalf("%v, burst %d: %d may leave after %v, want %v", model.rate, burst, n, next, want)
			}
			model.advance(model.now + next)
			l.Take(start, at(model.now), n)
			model.tokens.Sub(model.tokens, big.NewRat(n, 1))

			model.advance(model.now + time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "pause")))
			slop.Add(slop, allows(model.rate, 1))
			if rapid.Bool().Draw(t, "change") {
				burst := rapid.Int64Range(1, 1<<20).Draw(t, "new burst")
				model.rate = anyRate(t)
				model.burst.SetInt64(burst)
				model.advance(model.now)
				l.SetRate(at(model.now), model.rate, burst)
				slop.Add(slop, allows(model.rate, 1))
			}
		}
	})
}

// near reports whether two waits differ by at most slop units and two nanoseconds.
func near(rate unit.Rate, a, b time.Duration, slop *big.Rat) bool {
	apart := allows(rate, max(a, b)-min(a, b)-2)
	return apart.Cmp(slop) <= 0
}

// TestGCRASetRateIsExact compares what a bucket lacks before and after SetRate, in exact
// fractions. It lacks as many units as before, rounded up to a nanosecond once.
func TestGCRASetRateIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		large := rapid.Int64Range(1, 1<<62)
		g := NewGCRA(at(0), anyRate(t), rapid.OneOf(rapid.Int64Range(1, 100), large).Draw(t, "old burst"))
		for range rapid.IntRange(0, 5).Draw(t, "items") {
			g.Take(at(0), at(0), rapid.OneOf(rapid.Int64Range(1, 1000), large).Draw(t, "n"))
		}
		now := time.Duration(rapid.OneOf(rapid.Int64Range(1, 1e12), large).Draw(t, "now"))
		next := anyRate(t)
		if rapid.IntRange(0, 9).Draw(t, "stop") == 0 {
			next = perSecond(0)
		}
		burst := rapid.OneOf(rapid.Int64Range(1, 100), large).Draw(t, "burst")

		g.arrive(at(now))
		want := lacks(g)
		want.Add(want, big.NewRat(burst-g.burst, 1))
		if want.Sign() < 0 {
			want.SetInt64(0)
		}
		g.SetRate(at(now), next, burst)
		got := lacks(g)
		switch most := big.NewRat(math.MaxInt64/2, 1); {
		case want.Cmp(most) > 0: // for ever
			if got.Cmp(most) < 0 {
				t.Fatalf("the bucket lacks %v, want %v", got, want)
			}
		default:
			more := got.Sub(got, want)
			of := big.NewRat(1, 1)
			if !next.IsZero() {
				of = allows(next, 1)
			}
			if more.Sign() < 0 || more.Cmp(of) >= 0 {
				t.Fatalf("the bucket lacks %v more than %v, want less than %v more", more, want, of)
			}
		}
	})
}

// lacks returns how many units a bucket lacks now.
func lacks(g *GCRA) *big.Rat {
	lacks := big.NewRat(g.owed, 1)
	if !g.rate.IsZero() {
		lacks.Add(lacks, allows(g.rate, g.tat.Sub(g.now)))
	}
	if lacks.Sign() < 0 {
		lacks.SetInt64(0)
	}
	return lacks
}

func BenchmarkGCRASetRate(b *testing.B) {
	g := NewGCRA(start, perSecond(7), 45)
	g.Take(start, start, 30)
	rates := [...]unit.Rate{perSecond(11), perSecond(7)}
	for i := 0; b.Loop(); i++ {
		g.SetRate(start, rates[i%2], 45)
	}
}
