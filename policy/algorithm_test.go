package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"shaper/unit"

	"github.com/google/go-cmp/cmp"
)

func loadAlgorithms(t *testing.T) *Policy {
	t.Helper()
	p, _, err := Load("testdata/good/algorithms.toml")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAlgorithms(t *testing.T) {
	for i, want := range []struct {
		algorithm Algorithm
		burst     string
		window    time.Duration // in force
		units     int64         // in it, below the headroom
	}{
		{Leaky, "one quantum", time.Second, 30},
		{Token, "one quantum", time.Second, 250_000},
		{GCRA, "1MB", time.Second, 187_500_000},
		{FixedWindow, "one quantum", time.Minute, 1746},
		{SlidingLog, "one quantum", 15 * time.Minute, 20_000},
		{SlidingWindow, "one quantum", 10 * time.Second, 5},
		{SlidingWindow, "one quantum", time.Second, 0},
	} {
		c := loadAlgorithms(t).Classes[i]
		if c.Algorithm != want.algorithm || c.Burst.String() != want.burst || c.Own().WindowInForce() != want.window {
			t.Errorf("class %s is %+v, want %+v", c.Name, c, want)
		}
		if units := c.Rate.Below(c.Headroom).Units(c.Own().WindowInForce()); units != want.units {
			t.Errorf("class %s: %d in a window, want %d", c.Name, units, want.units)
		}
	}
}

// Each class prints only the keys that its algorithm has.
func TestAlgorithmsPrint(t *testing.T) {
	p := loadAlgorithms(t)
	var got []string
	for i := range p.Classes {
		line := p.Classes[i].Name + ":"
		for _, f := range fieldsOf(&p.Classes[i]) {
			if f.name == "algorithm" || f.name == "burst" || f.name == "window" {
				line += " " + f.get(&p.Classes[i])
			}
		}
		got = append(got, line)
	}
	want := []string{
		"leaky: leaky",
		"token: token one quantum",
		"gcra: gcra 1MB",
		"per-minute: fixed-window 1min",
		"rolling: sliding-log the period of the rate",
		"counters: sliding-window 10s",
		"blocked: sliding-window the period of the rate",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

func TestAlgorithmsAsJSON(t *testing.T) {
	p := loadAlgorithms(t)
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Policy
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, &back, comparers...); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	for part, want := range map[string]int{`"window":"1min"`: 1, `"window"`: 2, `"burst"`: 1} {
		if n := strings.Count(string(text), part); n != want {
			t.Errorf("%s appears %d times in %s, want %d", part, n, text, want)
		}
	}
}

func TestDiffOfWindows(t *testing.T) {
	p := loadAlgorithms(t)
	changed, _, err := p.With("rolling", map[string]string{"algorithm": "fixed-window", "window": "1h"})
	if err != nil {
		t.Fatal(err)
	}
	want := `
~ class rolling: algorithm sliding-log -> fixed-window
~ class rolling: window the period of the rate -> 1h
`
	if diff := cmp.Diff(want, diffLines(p, changed)); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// A rate contains its window, and prints with it.
func TestPeriodIsTheWindow(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"20000 messages/15min": 15 * time.Minute, "30 messages/s": time.Second, "20mbit": time.Second,
		"1.25MB/s": time.Second, "100 packets/d": 24 * time.Hour, "90 connections/1min30s": 90 * time.Second,
	} {
		c := Class{Rate: rate(text)}
		if got := c.Own().WindowInForce(); got != want {
			t.Errorf("the window of %q is %v, want %v", text, got, want)
		}
		if back := rate(c.Rate.String()); back != c.Rate {
			t.Errorf("%q prints as %q", text, c.Rate)
		}
	}
	c := Class{Rate: rate("30 messages/s"), Window: Window{Length: unit.Duration(10 * time.Second)}}
	if got := c.Rate.Units(c.Own().WindowInForce()); got != 300 {
		t.Errorf("30 messages/s allow %d in 10 s", got)
	}
}
