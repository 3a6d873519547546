package fleet

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestSpending compares with a list of single units: of none is told later than it left, and none is forgotten while it counts.
func TestSpending(t *testing.T) {
	const window, grain = 16 * time.Second, time.Second
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var s spending
		var all []time.Time // when each unit left that nobody has heard of
		now := time.Unix(1e9, 0)
		for range 300 {
			now = now.Add(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
			if r.IntN(4) == 0 {
				s.lapse(now)
				all = all[int64(len(all))-s.total():]
			}
			switch {
			case r.IntN(8) == 0 && len(s) > 0:
				told := s.tell(now)[0]
				units, left := told.Units, now.Add(-told.Age)
				s = s[1:]
				for _, at := range all[:units] {
					if at.After(left) {
						t.Fatalf("a unit left at %v, and the store hears that it was %v", at, left)
					}
					if left.Sub(at) > grain+window/1000 {
						t.Fatalf("a unit left at %v, and the store hears that it was as late as %v", at, left)
					}
				}
				all = all[units:]
			default:
				s.note(spent{units: 1, left: now, until: now.Add(window)}, grain)
				all = append(all, now)
			}
			counts := int64(0)
			for _, at := range all {
				if now.Before(at.Add(window)) {
					counts++
				}
			}
			if n := s.units(now); n < counts {
				t.Fatalf("%d units are owed, want %d", n, counts)
			}
			if max := int(window/grain) + 2; len(s) > 0 && now.Before(s[0].until) && len(s) > max {
				t.Fatalf("%d parts, want %d at most", len(s), max)
			}
		}
	}
}

// total is units of all parts, whether they count or not.
func (s spending) total() (units int64) {
	for _, part := range s {
		units += part.units
	}
	return units
}
