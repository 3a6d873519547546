package human

import "iter"

// InTreeOrder yields classes in the order of their tree, each with the number of classes above it:
// each after its parent, siblings in the order given. A class whose parent is unknown is at the top.
func InTreeOrder[T any](classes []T, names func(T) (name, parent string)) iter.Seq2[int, T] {
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
	return func(yield func(int, T) bool) {
		var walk func(parent string, depth int) bool
		walk = func(parent string, depth int) bool {
			for _, c := range under[parent] {
				name, _ := names(c)
				if !yield(depth, c) || !walk(name, depth+1) {
					return false
				}
			}
			return true
		}
		walk("", 0)
	}
}
