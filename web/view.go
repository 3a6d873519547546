package web

import (
	"cmp"
	"slices"
	"strings"
)

// mostClasses bounds the classes that the tree shows.
const mostClasses = 2000

// Tree is the view "classes".
type Tree struct {
	Total   int     `json:"total"`
	Classes []Class `json:"classes"` // in the order of their names; if there are too many, those in which most items wait, and those in which sessions do
}

// ClassView is the view "class/NAME".
type ClassView[C any] struct {
	Class  C      `json:"class"` // null: there is none
	Why    string `json:"why"`
	Curves Curves `json:"curves"`
}

// view returns what a view shows; nil if there is no such view. "class/NAME" is about one class.
func (d *Dashboard) view(name string) any {
	if name == "classes" {
		return newTree(d.source.Classes())
	}
	if one, ok := strings.CutPrefix(name, "class/"); ok {
		reading, why, ok := d.source.Class(one)
		if !ok {
			return ClassView[any]{}
		}
		return ClassView[any]{reading, why, d.history.read(one)}
	}
	return d.source.List(name)
}

func newTree(all []Class) Tree {
	t := Tree{len(all), all}
	if len(all) > mostClasses {
		slices.SortStableFunc(all, moreWaits)
		t.Classes = all[:mostClasses]
		slices.SortFunc(t.Classes, func(a, b Class) int { return cmp.Compare(a.Name, b.Name) })
	}
	return t
}

// moreWaits orders classes by how many items wait, and those without any by whether sessions wait.
func moreWaits(a, b Class) int {
	sessions := func(c Class) int {
		if c.WaitsFor != nil {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(b.Items, a.Items), cmp.Compare(sessions(b), sessions(a)))
}
