package main

// placed is a class with the number of classes above it.
type placed[T any] struct {
	of    T
	depth int
}

// asTree returns the classes in the order of a tree: each behind its parent.
func asTree[T any](classes []T, names func(T) (name, parent string)) (all []placed[T]) {
	under, known := map[string][]T{}, map[string]bool{}
	for _, c := range classes {
		name, _ := names(c)
		known[name] = true
	}
	for _, c := range classes {
		_, parent := names(c)
		if !known[parent] { // as when it has been changed while the classes were read
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
