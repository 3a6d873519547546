package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A field is one key of a section: how it is read and how it is printed.
// Load, With, Diff and WriteTree all go through the same fields, so a key that
// is added to the tables of schema.go is known everywhere.
type field[T any] struct {
	name     string
	required bool
	takes    takes
	form     string                 // what is allowed, for a value of the wrong type
	set      func(*T, string) error // reads one value, of a list each in turn; nil: not in this version
	get      func(*T) string        // prints the value as the file would have it
	// decodeTable reads a value that is a table; nil: it is none.
	decodeTable func(r *report, key string, n *node, into *T, whole bool)
}

// takes says which types of value a field accepts.
type takes uint8

const (
	texts takes = 1 << iota
	integers
	booleans
	lists
)

// one is a field with a single value.
func one[T any, V comparable](name, form string, at func(*T) *V, parse func(string) (V, error)) field[T] {
	return field[T]{
		name: name, takes: texts, form: form,
		set: func(t *T, s string) error { return assign(at(t), s, parse) },
		get: func(t *T) string { return fmt.Sprint(*at(t)) },
	}
}

// group is a field that is a table of fields, over the value that it has where it is
// given without one of them.
func group[T any, V comparable](name, form string, at func(*T) *V, whole V, fields []field[V]) field[T] {
	f := one(name, form, at, func(string) (V, error) { return whole, complain(form, "it is no text") })
	f.takes = 0
	f.decodeTable = func(r *report, key string, n *node, into *T, wholeFile bool) {
		*at(into) = whole
		decode(r, key, n, at(into), fields, wholeFile)
	}
	return f
}

// quantity is a field of package unit, whose errors say what is allowed.
func quantity[T any, V comparable](name string, at func(*T) *V, parse func(string) (V, error)) field[T] {
	_, err := parse("")
	return one(name, complaintOf(err).allowed, at, parse)
}

// many is a field with one value or a list of them.
func many[T, V any](name, form string, at func(*T) *[]V, parse func(string) (V, error)) field[T] {
	return field[T]{
		name: name, takes: texts | lists, form: form,
		set: func(t *T, s string) error {
			var v V
			err := assign(&v, s, parse)
			if err == nil {
				*at(t) = append(*at(t), v)
			}
			return err
		},
		get: func(t *T) string { return list(*at(t)) },
	}
}

// later is a key of the file format that this version does not honour. It is
// refused: a limit that is silently ignored is worse than none.
func later[T any](name string) field[T] { return field[T]{name: name} }

// must marks a field as required.
func must[T any](f field[T]) field[T] {
	f.required = true
	return f
}

// orNone prints a word where the value is left out.
func orNone[T any](word string, f field[T]) field[T] {
	get, none := f.get, f.get(new(T))
	f.get = func(t *T) string {
		if s := get(t); s != none {
			return s
		}
		return word
	}
	return f
}

// alsoIntegers lets a field take integers beside what it takes.
func alsoIntegers[T any](f field[T]) field[T] {
	f.takes |= integers
	return f
}

func assign[V any](at *V, s string, parse func(string) (V, error)) error {
	v, err := parse(s)
	if err != nil {
		return complaintOf(err)
	}
	*at = v
	return nil
}

// choice reads one of a few words. The words in later belong to the format,
// but not to this version.
func choice[V ~string](form string, now, later []V) func(string) (V, error) {
	return func(s string) (V, error) {
		switch {
		case slices.Contains(now, V(s)):
			return V(s), nil
		case slices.Contains(later, V(s)):
			return "", complain(form, "%q is not supported in this version", s)
		}
		names := make([]string, len(now))
		for i, v := range now {
			names[i] = string(v)
		}
		if near := nearest(s, names); near != "" {
			return "", complain(fmt.Sprintf("did you mean %q?", near), "%q is not known", s)
		}
		return "", complain(form, "%q is not known", s)
	}
}

// anything reads a text that is checked later, or not at all.
func anything(s string) (string, error) { return s, nil }

// list prints values as a person lists them.
func list[V any](values []V) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ", ")
}

// names returns the names of the fields that this version honours, and of
// those that it does not.
func names[T any](fields []field[T]) (now, later []string) {
	for _, f := range fields {
		if f.set != nil {
			now = append(now, f.name)
		} else {
			later = append(later, f.name)
		}
	}
	return now, later
}

// known says what is wrong with a key that is not among those of now.
func known(name string, now, later []string) error {
	switch {
	case slices.Contains(now, name):
		return nil
	case slices.Contains(later, name):
		return complain("supported here: "+strings.Join(now, ", "), "not supported in this version")
	}
	return complain(Hint(name, "supported here", now), "unknown key")
}

// find returns the field of a key, or what is wrong with the key.
func find[T any](fields []field[T], name string) (f field[T], err error) {
	now, later := names(fields)
	if err := known(name, now, later); err != nil {
		return f, err
	}
	i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == name })
	return fields[i], nil
}

// decode reads a table of the file over the defaults in into. Unless the whole
// file is TOML, a missing key may be on a line that was not understood.
func decode[T any](r *report, key string, table *node, into *T, fields []field[T], whole bool) {
	r.at[key] = table.at
	now, _ := names(fields)
	meant := map[string]bool{} // by a key that is misspelt
	for _, e := range table.keys {
		f, err := find(fields, e.name)
		if err != nil {
			meant[nearest(e.name, now)] = true
			c := complaintOf(err)
			r.wrongAt(e.at, join(key, e.name), c.problem, c.allowed)
			continue
		}
		f.decode(r, join(key, e.name), e.value, into, whole)
	}
	for _, f := range fields {
		if f.required && table.get(f.name) == nil && !meant[f.name] && whole {
			r.wrong(join(key, f.name), "it is missing", f.form)
		}
	}
}

// decode reads the value of one key, or each value of its list.
func (f field[T]) decode(r *report, key string, n *node, into *T, whole bool) {
	r.at[key] = n.at
	if f.decodeTable != nil && n.kind == aTable {
		f.decodeTable(r, key, n, into, whole)
		return
	}
	values := []*node{n}
	if n.kind == aList && f.takes&lists != 0 {
		if values = n.items; len(values) == 0 {
			r.wrong(key, "the list is empty", f.form)
		}
	}
	for i, v := range values {
		r.at[item(key, i)] = v.at
		if err := f.read(v, into); err != nil {
			c := complaintOf(err)
			r.wrong(item(key, i), c.problem, c.allowed)
		}
	}
}

// read sets one value after a look at its type.
func (f field[T]) read(v *node, into *T) error {
	switch {
	case v.kind == aString && f.takes&texts != 0, v.kind == anInt && f.takes&integers != 0,
		v.kind == aBool && f.takes&booleans != 0:
		return f.set(into, v.text)
	case v.kind == aList || v.kind == aTable:
		return complain(f.form, "it is %s", v.kind)
	case v.kind == aString:
		return complain(f.form, "%q is %s", v.text, v.kind)
	}
	return complain(f.form, "%s is %s", v.text, v.kind)
}
