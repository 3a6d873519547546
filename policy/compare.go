package policy

// print prints the value in a line for people.
func (f field[T]) print(t *T) string { return plain(f.get(t)) }

// same reports whether two sections have the same value.
func (f field[T]) same(a, b *T) bool {
	return f.get(a) == f.get(b) && (f.apart == nil || f.apart(a) == f.apart(b))
}

// identity tells a section, or a table, from all others. It is not for people: secrets are in it.
func identity[T any](t *T, fields []field[T]) string {
	if t == nil {
		return ""
	}
	var all []string
	for _, f := range fields {
		all = append(all, f.get(t))
		if f.apart != nil {
			all = append(all, f.apart(t))
		}
	}
	return quotedList(all)
}
