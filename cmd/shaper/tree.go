package main

import "shaper/human"

// placed is a class, and the number of classes above it.
type placed[T any] struct {
	of    T
	depth int
}

// inTreeOrder returns the classes in the order of their tree; see [human.InTreeOrder].
func inTreeOrder[T any](classes []T, names func(T) (name, parent string)) (all []placed[T]) {
	for depth, c := range human.InTreeOrder(classes, names) {
		all = append(all, placed[T]{c, depth})
	}
	return all
}
