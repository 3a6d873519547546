package web

import (
	"slices"
	"strings"
	"testing"

	"shaper/stats"
)

// idleClasses returns n classes in which nothing waits.
func idleClasses(n int) (all []Class) {
	for _, s := range crowd(n, 0) {
		all = append(all, Class{Name: s.Name})
	}
	return all
}

// If there are too many classes, the tree has those in which most waits.
func TestTreeIsBounded(t *testing.T) {
	all := idleClasses(mostClasses + 100)
	for i := range 50 {
		all[i*40].Items = int64(i + 1)
	}
	last := &all[len(all)-1]
	last.WaitsFor = &stats.Hold{Class: last.Name, Limit: "max_connections"}
	lastName := last.Name
	got := newTree(all)
	waiting := 0
	for _, c := range got.Classes {
		if c.Items > 0 {
			waiting++
		}
	}
	if got.Total != mostClasses+100 || len(got.Classes) != mostClasses || waiting != 50 {
		t.Errorf("%d of %d classes, something waits in %d", len(got.Classes), got.Total, waiting)
	}
	if !slices.ContainsFunc(got.Classes, func(c Class) bool { return c.Name == lastName }) {
		t.Error("the class in which only sessions wait is missing")
	}
	if !slices.IsSortedFunc(got.Classes, func(a, b Class) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the classes are not in the order of their names")
	}
	if few := newTree(idleClasses(3)); few.Total != 3 || len(few.Classes) != 3 {
		t.Errorf("%v", few)
	}
}
