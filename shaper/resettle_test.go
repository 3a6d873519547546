package shaper

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// underWay is what a class has let go and the provider has not answered.
type underWay struct {
	class *Class
	left  []time.Time
}

// send lets so many messages leave that leave at once, and returns how many these are.
func (u *underWay) send(c *Class, most int) (n int) {
	for u.class = c; n < most; n++ {
		it := &Item{Cost: Cost{Messages: 1, Tokens: 100}}
		if c.Enter(time.Now(), it) != Leaves {
			c.Cancel(time.Now(), it)
			return n
		}
		u.left = append(u.left, it.Departed())
	}
	return n
}

// answer says of each that it has cost one token.
func (u *underWay) answer() {
	for _, then := range u.left {
		u.class.Provider().Settle(time.Now(), then, Cost{Tokens: -99})
	}
	u.left = nil
}

// tokensBy returns a class that counts tokens by an algorithm.
func tokensBy(a policy.Algorithm, rate string) policy.Class {
	conf := classBy(a, rate)
	conf.Queue = policy.Queue{}
	if a.HasBurst() {
		conf.Burst = policy.Burst{N: 5000, Kind: conf.Rate.Kind()}
	}
	return named("c", conf)
}

// An answer gives nothing back to a limit that its message was not charged to: one that a reload has
// made, or one of a parent to which it has moved the class.
func TestReloadBeforeTheAnswers(t *testing.T) {
	log := tokensBy(policy.SlidingLog, "10000 tokens/12h")
	for _, a := range []policy.Algorithm{policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow, policy.Token, policy.GCRA} {
		limit := tokensBy(a, "5000 tokens/13h")
		also := log
		also.Also = []policy.Limit{limit.Own()}
		parent := named("p", limit)
		for name, confs := range map[string][2][]policy.Class{
			"rate":   {{log}, {limit}},
			"also":   {{log}, {also}},
			"parent": {{log, parent}, {parent, under("p", log)}},
		} {
			t.Run(fmt.Sprint(a, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := NewOnRuntimeTimer()
					defer s.Close()
					s.Apply(confs[0])
					time.Sleep(time.Hour)
					sent := underWay{}
					if n := sent.send(s.Class("c"), 69); n != 69 {
						t.Fatalf("%d messages leave, want 69", n)
					}
					if p := s.Class("p"); p != nil { // it has let out all that it may
						other := underWay{}
						other.send(p, 100)
					}
					s.Apply(confs[1])
					time.Sleep(time.Second)
					sent.answer()
					if n := sent.send(s.Class("c"), 100); n > 0 {
						t.Errorf("%d messages of 100 tokens leave after the answers, want none", n)
					}
				})
			})
		}
	}
}

// What was charged to a limit that a reload has kept is given back, and so is what left after a reload.
func TestReloadKeepsWhatIsGivenBack(t *testing.T) {
	for name, next := range map[string]policy.Class{
		"rate":     tokensBy(policy.SlidingLog, "8000 tokens/12h"),
		"as it is": tokensBy(policy.SlidingLog, "10000 tokens/12h"),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := NewOnRuntimeTimer()
			defer s.Close()
			s.Apply([]policy.Class{tokensBy(policy.SlidingLog, "10000 tokens/12h")})
			sent := underWay{}
			sent.send(s.Class("c"), 60)
			s.Apply([]policy.Class{next})
			time.Sleep(time.Second)
			sent.answer() // 6,000 tokens become 60
			want := int(next.Rate.Units(12*time.Hour)-60) / 100
			if n := sent.send(s.Class("c"), 100); n != want {
				t.Errorf("%s: %d messages leave after the answers, want %d", name, n, want)
			}
			time.Sleep(time.Second)
			sent.answer()
			if n := sent.send(s.Class("c"), 100); n < want-3 {
				t.Errorf("%s: %d messages leave after more answers, want %d or so", name, n, want-1)
			}
		})
	}
}

// A message that leaves in the turn of a larger one gives bytes back. It gets back what still counts, and no
// more: not what the bucket has earned since.
func TestSettleInBytes(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.Token, policy.GCRA} {
		conf := classBy(a, "100 B/s")
		conf.Burst = policy.Burst{N: 1000, Kind: unit.Bytes}
		sized := func(n int64) *Item { return &Item{Cost: Cost{Messages: 1, Bytes: n}} }
		c := NewClass(start, conf)
		enter(t, c, 0, Leaves, sized(1000))
		c.Provider().Settle(start, start, Cost{Bytes: -900})
		enter(t, c, 0, Leaves, sized(900))
		enter(t, c, 10*second, Leaves, sized(1000))
		c.Provider().Settle(at(10*second), start, Cost{Bytes: -90})
		enter(t, c, 10*second, Waits, sized(90))
	}
}
