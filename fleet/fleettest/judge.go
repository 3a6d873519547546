// Package fleettest judges what a fleet has let leave. It knows the rules, and nothing of how package fleet keeps to
// them. It also starts the servers that tests need.
//
// Files do not call each other:
//
//	judge   whether departures keep to a rule
//	redis   a redis-server, a cluster, sentinels
package fleettest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// A Departure is an item that has left.
type Departure struct {
	Member string
	At     time.Duration // on a clock that is the same for all members, and that nobody sets
	Stamp  time.Time     // by the store's clock; only windows need it
	Units  int64
	Error  time.Duration // how far the member's idea of the store's clock may be wrong, as it says
	Own    bool          // the member is on its share
}

// Sort puts departures of several members into the order of time.
func Sort(all []Departure) {
	slices.SortStableFunc(all, func(a, b Departure) int { return int(a.At - b.At) })
}

// rounding is what times in whole microseconds may add up to between two departures.
const rounding = 3 * time.Microsecond

// Gaps returns an error if an item leaves sooner after the one before than the units of that take, at a gap for
// each, less late and less what the two members say of their clocks. Members on their shares need not keep to this.
func Gaps(all []Departure, gap, late time.Duration) error {
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.Own || b.Own {
			continue
		}
		least := time.Duration(a.Units)*gap - late - a.Error - b.Error - rounding
		if b.At-a.At < least {
			return fmt.Errorf("%s leaves %v after %s, want at least %v (departure %d, at %v)", b.Member, b.At-a.At, a.Member, least, i, b.At)
		}
	}
	return nil
}

// Sum returns an error if there is a time t over which more than burst + perSecond*t units leave. Between two members
// the time may be longer by what they say of their clocks.
func Sum(all []Departure, perSecond, burst float64) error {
	worst, begin := math.Inf(-1), 0 // of units - perSecond*time, over all times that end at the present departure
	for i, d := range all {
		if i > 0 {
			worst -= perSecond * (d.At - all[i-1].At).Seconds()
		}
		if worst < 0 {
			worst, begin = 0, i
		}
		most := burst + perSecond*(all[begin].Error+d.Error).Seconds() + 1e-6
		if worst += float64(d.Units); worst > most {
			return fmt.Errorf("from departure %d, at %v, to departure %d of %s, at %v, %.2f units leave at once, want at most %.2f",
				begin, all[begin].At, i, d.Member, d.At, worst, most)
		}
	}
	return nil
}

// Windows returns an error if more than limit units leave in a window of the store's clock. window returns when the
// window of a time begins, and when it ends. A departure that is as near to a boundary as the member's clock may be
// wrong counts in the window before it, if that has room.
func Windows(all []Departure, limit int64, window func(time.Time) (from, to time.Time)) error {
	left, vague := map[time.Time]int64{}, map[time.Time]int64{} // vague: at the boundary at which the window begins
	for _, d := range all {
		from, to := window(d.Stamp)
		if to.Sub(d.Stamp) <= d.Error {
			from = to
		}
		if d.Stamp.Sub(from) < d.Error {
			vague[from] += d.Units
		}
		left[from] += d.Units
	}
	for _, from := range slices.SortedFunc(maps.Keys(left), time.Time.Compare) {
		before, _ := window(from.Add(-1))
		moved := max(0, min(vague[from], limit-left[before]))
		left[before] += moved
		if left[from] -= moved; left[from] > limit {
			return fmt.Errorf("%d units leave in the window that begins at %v, want %d", left[from], from, limit)
		}
	}
	return nil
}

// Weighed returns an error if a window, and of the window before it the part that lies within its length, has more
// than limit units: the sliding window of two counters. Windows begin at multiples of length since the zero time. A
// departure that is as near to a boundary as the member's clock may be wrong counts in the window before it.
func Weighed(all []Departure, limit int64, length time.Duration) error {
	left := map[time.Time]int64{}
	for i, d := range all {
		from := d.Stamp.Add(-d.Error).Truncate(length)
		before := float64(left[from.Add(-length)]) * (1 - d.Stamp.Sub(from).Seconds()/length.Seconds())
		left[from] += d.Units
		sure := d.Stamp.Add(d.Error).Truncate(length) == from
		if n := before + float64(left[from]); sure && n > float64(limit)+1e-6 {
			return fmt.Errorf("%.3f units count in the window until %v, want %d (departure %d of %s, at %v)", n, d.Stamp, limit, i, d.Member, d.At)
		}
	}
	return nil
}

// Within returns an error if more than limit units leave in any time of a length.
func Within(all []Departure, limit int64, length time.Duration) error {
	units, first := int64(0), 0
	for i, d := range all {
		for units += d.Units; all[first].At <= d.At-length; first++ {
			units -= all[first].Units
		}
		if units > limit {
			return fmt.Errorf("%d units leave in the %v until %v, want at most %d (departure %d of %s)", units, length, d.At, limit, i, d.Member)
		}
	}
	return nil
}
