package daemon

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"shaper/policy"
)

func baseRegime(t *testing.T) regime {
	t.Helper()
	p, warnings, err := policy.Parse("shaper.toml", []byte(base))
	if err != nil {
		t.Fatal(err)
	}
	return newRegime(p, warnings, files{})
}

// A regime does not change when others are made from it.
func TestRegimesDoNotChange(t *testing.T) {
	start := baseRegime(t)
	first, _, err := start.with(Set{Class: "slow", Values: map[string]string{"rate": "1mbit"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, rate := range []string{"2mbit", "3mbit"} {
		if _, _, err := first.with(Set{Class: "slow", Values: map[string]string{"rate": rate}}); err != nil {
			t.Fatal(err)
		}
	}
	slow, _ := first.policy.Class("slow")
	if len(start.sets) != 0 || len(first.sets) != 1 || slow.Rate.String() != "1mbit" || start.policy != start.file {
		t.Errorf("the regimes have changed to %v and %v", start.sets, first.sets)
	}
	if got := first.setClasses(); !maps.Equal(got, map[string]bool{"slow": true}) {
		t.Errorf("the classes with sets are %v", got)
	}
}

// At each moment the rate is that of the last set that has not ended, whatever is set and
// whenever it ends.
func TestSetsAgainstModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	origin := time.Now()
	for range 50 {
		r := baseRegime(t)
		now := origin
		for range 30 {
			now = now.Add(time.Duration(random.IntN(10)) * time.Second)
			r, _ = r.withoutEnded(now)
			s := Set{Class: "slow", Values: map[string]string{"rate": fmt.Sprintf("%dmbit", 1+random.IntN(1000))}}
			if random.IntN(4) > 0 {
				s.Until = now.Add(time.Duration(1+random.IntN(30)) * time.Second)
			}
			var err error
			if r, _, err = r.with(s); err != nil {
				t.Fatal(err)
			}
			checkAt(t, r, now.Add(time.Duration(random.IntN(40))*time.Second))
		}
	}
}

func checkAt(t *testing.T, r regime, now time.Time) {
	t.Helper()
	want := "64KiB/s"
	for _, s := range r.sets {
		if s.Until.IsZero() || s.Until.After(now) {
			want = s.Values["rate"]
		}
	}
	next, ended := r.withoutEnded(now)
	slow, _ := next.policy.Class("slow")
	wantRate, _, _ := next.file.With("slow", map[string]string{"rate": want})
	if c, _ := wantRate.Class("slow"); c.Rate != slow.Rate {
		t.Fatalf("the rate is %v, want %s", slow.Rate, want)
	}
	if len(next.sets)+len(ended) != len(r.sets) {
		t.Fatalf("%d sets and %d ended, of %d", len(next.sets), len(ended), len(r.sets))
	}
	if first := next.firstEnd(); !first.IsZero() && !first.After(now) {
		t.Fatalf("the next set has ended %v ago", now.Sub(first))
	}
}

func TestEarlier(t *testing.T) {
	never, one, two := time.Time{}, time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range [][3]time.Time{{one, two, one}, {two, one, one}, {never, one, one}, {one, never, one}, {never, never, never}} {
		if got := earlier(c[0], c[1]); !got.Equal(c[2]) {
			t.Errorf("of %v and %v the earlier is %v", c[0], c[1], got)
		}
	}
}

// A set that a later one supersedes is forgotten. So a script that sets a rate every minute does
// not fill the memory.
func TestSetsThatAreCoveredAreForgotten(t *testing.T) {
	now := time.Now()
	rate := map[string]string{"rate": "1mbit"}
	both := map[string]string{"rate": "1mbit", "queue": "10 items"}
	for _, c := range []struct {
		name           string
		earlier, later Set
		want           bool
	}{
		{"the same key again", Set{Class: "a", Values: rate}, Set{Class: "a", Values: rate}, true},
		{"of another class", Set{Class: "b", Values: rate}, Set{Class: "a", Values: rate}, false},
		{"more keys before", Set{Class: "a", Values: both}, Set{Class: "a", Values: rate}, false},
		{"more keys now", Set{Class: "a", Values: rate}, Set{Class: "a", Values: both}, true},
		{"it comes back when this one ends", Set{Class: "a", Values: rate}, Set{Class: "a", Values: rate, Until: now}, false},
		{"it ends before", Set{Class: "a", Values: rate, Until: now}, Set{Class: "a", Values: rate, Until: now.Add(1)}, true},
		{"it ends after", Set{Class: "a", Values: rate, Until: now.Add(2)}, Set{Class: "a", Values: rate, Until: now.Add(1)}, false},
	} {
		if got := c.later.supersedes(c.earlier); got != c.want {
			t.Errorf("%s: superseded is %v", c.name, got)
		}
	}
}
