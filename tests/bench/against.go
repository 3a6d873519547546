package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// mostLoss is the share that a revision may lose to the one before.
const mostLoss = 0.02

// before is the way through shaper as an earlier revision has it.
var before = way{name: "shaper before", config: shaperConfig, files: func(t tools, config string) (tool, []string) {
	return t.Before, []string{"-c", config, "run"}
}}

// against has kinds of work go through shaper and through the earlier revision only.
func against(chosen []kind) (compared []kind) {
	for _, k := range chosen {
		if !slices.ContainsFunc(k.ways, func(w way) bool { return w.name == shaper.name }) {
			continue
		}
		k.ways = []way{before, shaper}
		compared = append(compared, k)
	}
	return compared
}

// revision builds shaper as a revision of this repository has it.
func revision(rev, dir string) tool {
	path := filepath.Join(dir, "before")
	return found(path, func(path string) error { return buildRevision(rev, path) }, func(string) (string, error) {
		version, err := command("", "git", "describe", "--always", rev)
		return strings.TrimSpace(version), err
	})
}

func buildRevision(rev, path string) error {
	tree := path + ".tree"
	if _, err := command("", "git", "worktree", "add", "--detach", tree, rev); err != nil {
		return err
	}
	defer command("", "git", "worktree", "remove", "--force", tree)
	_, err := command(tree, "go", "build", "-o", path, "./cmd/shaper")
	return err
}

// losses lists what this tree does worse than the revision before by more than mostLoss,
// of everything that was compared, or says that there is nothing.
//
// The loss is the median over the rounds. What noise there is the rounds themselves
// show: if they do not agree on the side, nothing is known.
func losses(results []result) string {
	var b strings.Builder
	all := 0
	for _, r := range results {
		was, is := r.rows[0], r.rows[1] // as against has put them
		if was.failed != nil || is.failed != nil {
			fmt.Fprintf(&b, "| %s | not measured | | |\n", r.label)
			continue
		}
		for i, c := range r.columns {
			if !c.ratio && !c.lower { // it describes the measurement
				continue
			}
			all++
			if loss := lossOf(c, ratios(is, was, i)); loss != "" {
				fmt.Fprintf(&b, "| %s | %s |\n", r.label, loss)
			}
		}
	}
	if b.Len() == 0 {
		return fmt.Sprintf("\nOf %d figures none is worse by more than %.0f %%.\n", all, 100*mostLoss)
	}
	return fmt.Sprintf("\nOf %d figures these are worse by more than %.0f %%:\n\n| work | figure | loss | rounds |\n|---|---|--:|---|\n%s", all, 100*mostLoss, &b)
}

// lossOf describes by how much a figure is worse; "" if it is not, or not by much.
func lossOf(c column, ratios []float64) string {
	worse := func(ratio float64) float64 {
		if c.lower {
			return ratio - 1
		}
		return 1/ratio - 1
	}
	middle, least, most := worse(median(ratios)), math.Inf(1), math.Inf(-1)
	for _, ratio := range ratios {
		least, most = min(least, worse(ratio)), max(most, worse(ratio))
	}
	if math.IsNaN(middle) || middle <= mostLoss {
		return ""
	}
	agree := "all worse"
	if least <= 0 {
		agree = "do not agree"
	}
	return fmt.Sprintf("%s | %.1f %% | %s: %+.1f to %+.1f %%", c.name, 100*middle, agree, 100*least, 100*most)
}
