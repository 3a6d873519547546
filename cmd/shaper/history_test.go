package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaper/daemon"
	"shaper/policy"
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
	if out := want(t, 0, nil, "history", "echo", "-c", p.path); out != "nothing has changed\n" {
		t.Errorf("history of a listener that has not changed prints %q", out)
	}
	want(t, 64, []string{`there is no class, listener, fleet or device "slwo", now or in the history; did you mean "slow"?`}, "history", "slwo", "-c", p.path)
	want(t, 0, []string{`"what": "set"`, `"number": 2`}, "history", "slow", "--json", "-c", p.path)
}

// Of a change with too many parts the history has the first ones. The others may be about what somebody asks
// for.
func TestHistoryOfOneSaysWhatIsCutOff(t *testing.T) {
	change := func(name string) policy.Change {
		return policy.Change{Op: "~", What: "class", Name: name, Key: "rate", Old: "1mbit", New: "2mbit"}
	}
	for name, shown := range map[string]int{"c2": 1, "c140": 0} {
		all := daemon.History{
			{Number: 1, What: "start", By: "start", Changes: []policy.Change{}},
			{Number: 2, What: "reload", By: "signal", Changes: []policy.Change{change("c1"), change("c2")}, More: 50},
			{Number: 3, What: "set", By: "signal", Changes: []policy.Change{change("c1")}},
		}
		var b strings.Builder
		printHistory(&b, about(all, name))
		got := b.String()
		if !strings.Contains(got, "reload by signal") || !strings.Contains(got, "   and 50 more, ") || strings.Count(got, "~ class "+name+": ") != shown ||
			strings.Contains(got, "c1:") || strings.Contains(got, "set by") {
			t.Errorf("%s: it prints %q", name, got)
		}
	}
}

// A record prints as one, whatever texts somebody has put into it.
func TestHistoryPrintsOneRecordForEach(t *testing.T) {
	forged := "\n2  2026-11-23 08:00:00  reload by uid=0 pid=1\x1b[2J"
	var b strings.Builder
	printHistory(&b, daemon.History{{Number: 1, What: "tc apply", By: "uid=7 pid=7", Changes: []policy.Change{{Op: "+", What: "tc", Name: "eth0" + forged}}, Error: "first" + forged}})
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i, line := range lines {
		if i > 0 && !strings.HasPrefix(line, "   ") || strings.Contains(line, "\x1b") {
			t.Errorf("line %d is %q", i+1, line)
		}
	}
	if len(lines) != 4 {
		t.Errorf("it prints %q", lines)
	}
}
