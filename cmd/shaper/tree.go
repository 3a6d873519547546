package main

// placed is a class, and the number of classes above it.
type placed[T any] struct {
	of    T
	depth int
}

// inTreeOrder returns the classes in the order of their tree: each after its parent, siblings in
// the order given. A class whose parent is unknown has depth 0.
func inTreeOrder[T any](classes []T, names func(T) (name, parent string)) (all []placed[T]) {
	under, known := map[string][]T{}, map[string]bool{}
	for _, c := range classes {
		name, _ := names(c)
		known[name] = true
	}
	for _, c := range classes {
		_, parent := names(c)
		if !known[parent] { // a reload may have come while the classes were read
			parent = ""
		}
		under[parent] = append(under[parent], c)
	}
	var walk func(parent string, depth int)
	walk = func(parent string, depth int) {
		for _, c := range under[parent] {
			all = append(all, placed[T]{c, depth})
			name, _ := names(c)
			walk(name, depth+1)
		}
	}
	walk("", 0)
	return all
}
