package shaper

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A class with learn in the shadow delays nothing, and reports what the provider accepts of what is
// too much for it.
func TestLearnInTheShadow(t *testing.T) {
	x := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name    string
		rate    float64 // of what comes, at random moments
		accepts hidden
		want    float64 // 0: nothing is found
	}{
		{"a window", 40, windowOf(17), 17},
		{"a bucket", 40, bucketOf(17, 30), 17},
		{"a window that is nearly enough", 19, windowOf(17), 17},
		{"less than the floor", 40, windowOf(1), 2},
		{"enough", 40, everything, 0},
		{"1 % at random", 40, noisy(0.01, x, everything), 0},
		{"nothing is accepted", 40, func(float64) bool { return false }, 0},
	} {
		l := newLearning("50 messages/s", "shadow = true\n", c.accepts)
		for l.now.Sub(l.begin) < 2*time.Minute {
			it := &Item{Cost: Cost{Messages: 1}, Asks: true, Settles: true}
			if verdict := l.class.Enter(l.now, it); verdict == Waits {
				t.Fatalf("%s: a class in the shadow lets a message wait", c.name)
			}
			it.Left(l.now)
			ok := c.accepts(l.now.Sub(l.begin).Seconds())
			if !ok {
				l.class.Provider().Throttled(l.now, 0, "0x58")
			}
			l.class.Provider().Answered(l.now, ok)
			l.now = l.now.Add(time.Duration(x.ExpFloat64() / c.rate * float64(time.Second)))
		}
		if got := l.class.Provider().Learned(); math.Abs(got-c.want) > 0.05*c.want {
			t.Errorf("%s: the class has found %.4g/s, want %.4g/s", c.name, got, c.want)
		}
	}
}
