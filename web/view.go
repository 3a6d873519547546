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
	Classes []Class `json:"classes"` // in the order of their names; if there are too many, those in which most waits
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
		slices.SortStableFunc(all, func(a, b Class) int { return cmp.Compare(b.Items, a.Items) })
		t.Classes = all[:mostClasses]
		slices.SortFunc(t.Classes, func(a, b Class) int { return cmp.Compare(a.Name, b.Name) })
	}
	return t
}
