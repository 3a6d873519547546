package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// history says who has changed what, and diff what a reload would change.
func TestHistoryAndDiff(t *testing.T) {
	p := begin(t, base)
	next := filepath.Join(filepath.Dir(p.path), "next.toml")
	if err := os.WriteFile(next, []byte(strings.Replace(base, "8KiB/s", "9KiB/s", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := want(t, 0, nil, "diff", next, "-c", p.path); out != "~ class guest: rate 8KiB/s -> 9KiB/s\n" {
		t.Errorf("diff prints %q", out)
	}
	if out := want(t, 0, nil, "diff", "-c", p.path); out != "nothing has changed\n" {
		t.Errorf("diff of the policy file prints %q", out)
	}
	want(t, 66, nil, "diff", "none.toml", "-c", p.path)
	want(t, 0, nil, "set", "slow", "rate=1mbit", "-c", p.path)
	want(t, 0, []string{"1  ", "start by start  - -> ", "2  ", "set by uid=", "   ~ class slow: rate 64KiB/s -> 1mbit\n"}, "history", "-c", p.path)
	if out := want(t, 0, nil, "history", "guest", "-c", p.path); out != "nothing has changed\n" {
		t.Errorf("history of a class that has not changed prints %q", out)
	}
	want(t, 0, []string{`"what": "set"`, `"number": 2`}, "history", "slow", "--json", "-c", p.path)
}
