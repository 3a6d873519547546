package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// mostLoss is the share by which a figure may be worse than that of the earlier revision.
const mostLoss = 0.02

// before is the way through shaper of the earlier revision.
var before = way{name: "shaper before", config: shaperConfig, program: func(t tools, config string) (tool, []string) {
	return t.Before, []string{"-c", config, "run"}
}}

// against returns the kinds of work that go through shaper, each restricted to two ways: the
// earlier revision and this one, in this order.
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

// losses lists the figures that are worse than those of the earlier revision by more than
// mostLoss, or says that there are none.
//
// The loss is the median over the rounds. The rounds also show the noise: if some are worse
// and some are better, the loss proves nothing.
func losses(results []result) string {
	var b strings.Builder
	all := 0
	for _, r := range results {
		was, is := r.rows[0], r.rows[1] // in the order of against
		if was.failed != nil || is.failed != nil {
			fmt.Fprintf(&b, "| %s | not measured | | |\n", r.label)
			continue
		}
		for i, c := range r.columns {
			if !c.compared() {
				continue
			}
			all++
			if loss := lossOf(c, ratios(is, was, i)); loss != "" {
				fmt.Fprintf(&b, "| %s | %s |\n", r.label, loss)
			}
		}
	}
	if b.Len() == 0 {
		return fmt.Sprintf("\nOf %d figures, none is worse by more than %.0f %%.\n", all, 100*mostLoss)
	}
	return fmt.Sprintf("\nOf %d figures, these are worse by more than %.0f %%:\n\n| work | figure | loss | rounds |\n|---|---|--:|---|\n%s", all, 100*mostLoss, &b)
}

// lossOf describes by how much a figure is worse. It returns "" if that is mostLoss or less.
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
