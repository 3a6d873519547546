package unit

import (
	"fmt"
	"testing"
)

// roundTrips fails if parse accepts a text, but reads its printed form differently or not
// at all. The corpus is in testdata/fuzz.
func roundTrips[T interface {
	comparable
	fmt.Stringer
}](f *testing.F, parse func(string) (T, error)) {
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parse(text)
		if err != nil {
			return
		}
		if back, err := parse(v.String()); err != nil || back != v {
			t.Errorf("%q prints as %q, which reads as %v, %v", text, v, back, err)
		}
	})
}

func FuzzRate(f *testing.F)     { roundTrips(f, ParseRate) }
func FuzzSize(f *testing.F)     { roundTrips(f, ParseSize) }
func FuzzDuration(f *testing.F) { roundTrips(f, ParseDuration) }
func FuzzCount(f *testing.F)    { roundTrips(f, ParseCount) }
func FuzzPercent(f *testing.F)  { roundTrips(f, ParsePercent) }

// FuzzBelow checks that headroom makes no rate faster, and that the result prints and reads.
func FuzzBelow(f *testing.F) {
	f.Fuzz(func(t *testing.T, text, headroom string) {
		r, err := ParseRate(text)
		if err != nil {
			return
		}
		p, err := ParsePercent(headroom)
		if err != nil {
			return
		}
		below := r.Below(p)
		if below.Compare(r) > 0 {
			t.Errorf("%v less %v is faster: %v", r, p, below)
		}
		if back, err := ParseRate(below.String()); err != nil || back != below {
			t.Errorf("%v less %v prints as %v, which reads as %v, %v", r, p, below, back, err)
		}
	})
}
