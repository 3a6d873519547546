package fleettest

import (
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// at returns departures of one unit at so many milliseconds.
func at(all ...int) (d []Departure) {
	for _, t := range all {
		d = append(d, Departure{Member: "m", At: time.Duration(t) * ms, Stamp: time.UnixMilli(int64(t)), Units: 1})
	}
	return d
}

// TestJudges lists what each rule lets pass, and what it objects to.
func TestJudges(t *testing.T) {
	second := func(t time.Time) (from, to time.Time) {
		from = t.Truncate(time.Second)
		return from, from.Add(time.Second)
	}
	vague := func(d []Departure) []Departure {
		for i := range d {
			d[i].Error = 5 * ms
		}
		return d
	}
	own := at(0, 1, 2)
	own[1].Own = true
	first := at(1001, 1500, 1501)
	first[0].Error = 5 * ms
	heavy := at(0, 20)
	heavy[0].Units = 3
	for _, c := range []struct {
		name string
		err  error
		want string // "" is none
	}{
		{"gaps", Gaps(at(0, 10, 20), 10*ms, 0), ""},
		{"short gap", Gaps(at(0, 10, 19), 10*ms, 0), "m leaves 9ms after m, want at least 9.997ms (departure 2, at 19ms)"},
		{"late", Gaps(at(0, 10, 19), 10*ms, ms), ""},
		{"error of the clock", Gaps(vague(at(0, 0)), 10*ms, 0), ""},
		{"on the share", Gaps(own, 10*ms, 0), ""},
		{"several units", Gaps(heavy, 10*ms, 0), "m leaves 20ms after m"},
		{"sum", Sum(at(0, 0, 0, 1000, 2000), 1, 3), ""},
		{"sum of some", Sum(at(0, 5000, 5000, 5500, 5500, 5500), 1, 4), "from departure 1, at 5s, to departure 5 of m, at 5.5s, 4.50 units"},
		{"windows", Windows(at(0, 999, 1000, 1001), 2, second), ""},
		{"full window", Windows(at(0, 999, 1000, 1001, 1002), 2, second), "3 units leave in the window"},
		{"end of a window", Windows(vague(at(0, 999, 999)), 2, second), ""},
		{"begin of a window", Windows(vague(at(1000, 1000, 1001)), 2, second), ""},
		{"room before a window", Windows(first, 2, second), ""},
		{"no room before a window", Windows(append(at(0, 1), first...), 2, second), "3 units"},
		{"clock set back", Windows(at(0, 10, 1000, 1000, 500), 2, second), "3 units"},
		{"weighed", Weighed(at(0, 0, 1500), 2, time.Second), ""},
		{"weighed near a boundary", Weighed(append(vague(at(999)), at(0, 1900)...), 2, time.Second), ""},
		{"weighed too much", Weighed(at(0, 0, 1499), 2, time.Second), "2.002 units count"},
		{"within", Within(at(0, 1, 1000, 1001), 2, time.Second), ""},
		{"not within", Within(at(0, 1, 1000, 1000), 2, time.Second), "3 units leave in the 1s until 1s"},
	} {
		switch {
		case c.want == "" && c.err != nil:
			t.Errorf("%s: %v", c.name, c.err)
		case c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, c.err, c.want)
		}
	}
}
