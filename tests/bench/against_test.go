package main

import (
	"errors"
	"strings"
	"testing"
)

func TestAgainstComparesShaperOnly(t *testing.T) {
	all, err := choose("", "")
	if err != nil {
		t.Fatal(err)
	}
	compared := against(all)
	if len(compared) == 0 {
		t.Fatal("against returns no kinds of work")
	}
	for _, k := range compared {
		if len(k.ways) != 2 || k.ways[0].name != before.name || k.ways[1].name != shaper.name {
			t.Errorf("%s goes the ways %v", k.name, k.ways)
		}
	}
}

// How much of its rate a class reaches is compared too.
func TestAgainstComparesTheRate(t *testing.T) {
	all, err := choose("", "")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, k := range against(all) {
		for _, c := range k.columns {
			if c.name != "rate ÷ set" {
				continue
			}
			if found++; !c.compared() || c.lower {
				t.Errorf("%s: a lower rate is no loss", k.name)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d kinds of work have a rate", found)
	}
}

// compared returns three rounds of both revisions, with three columns of equal values: one
// where higher is better, one where lower is better, and one that is not compared.
func compared(was, is [3]float64) []result {
	k := kind{label: "work", columns: []column{
		{name: "Gbit/s", format: "%.1f", ratio: true},
		{name: "CPU", format: "%.1f", lower: true},
		{name: "load busy", format: "%.1f"},
	}}
	rows := []row{{way: before}, {way: shaper}}
	for i := range 3 {
		rows[0].rounds = append(rows[0].rounds, []float64{was[i], was[i], was[i]})
		rows[1].rounds = append(rows[1].rounds, []float64{is[i], is[i], is[i]})
	}
	return []result{{kind: k, rows: rows}}
}

func TestLosses(t *testing.T) {
	for _, c := range []struct {
		was, is [3]float64
		want    string
	}{
		{[3]float64{100, 100, 100}, [3]float64{99, 100, 101}, "Of 2 figures, none is worse by more than 2 %"},
		{[3]float64{100, 100, 100}, [3]float64{80, 80, 80}, "| work | Gbit/s | 25.0 % | all worse: +25.0 to +25.0 % |\n"},
		{[3]float64{100, 100, 100}, [3]float64{110, 90, 105}, "| work | CPU | 5.0 % | do not agree: -10.0 to +10.0 % |\n"},
	} {
		got := losses(compared(c.was, c.is))
		if !strings.Contains(got, c.want) || strings.Contains(got, "load busy") {
			t.Errorf("%v before, %v now: want %q, and no \"load busy\", in %s", c.was, c.is, c.want, got)
		}
	}
	failed := compared([3]float64{}, [3]float64{})
	failed[0].rows[1].failed = errors.New("it ended")
	if got := losses(failed); !strings.Contains(got, "| work | not measured") {
		t.Errorf("losses does not list a way that failed: %s", got)
	}
}
