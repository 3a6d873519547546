package policy

import (
	"fmt"
	"slices"
	"strconv"
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
func unsupported[T any](name string) field[T] { return field[T]{name: name} }

// must marks a field as required.
func require[T any](f field[T]) field[T] {
	f.required = true
	return f
}

// orNone prints a word where the value is left out.
func emptyAs[T any](word string, f field[T]) field[T] {
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
func anyText(s string) (string, error) { return s, nil }

// yesNo is a field that is true or false.
func yesNo[T any](name string, at func(*T) *bool) field[T] {
	f := one(name, boolForm, at, strconv.ParseBool)
	f.takes = booleans
	return f
}

// onlyIntegers lets a field take integers and nothing else.
func onlyIntegers[T any](f field[T]) field[T] {
	f.takes = integers
	return f
}

// nested is a field with a table of its own; where it is left out, it is nil. One
// that may be empty is also written as true, and then printed so.
func nested[T, V any](name, form string, at func(*T) **V, fields []field[V], mayBeEmpty bool) field[T] {
	f := field[T]{name: name, form: form,
		get: func(t *T) string { return inline(*at(t), fields) },
		decodeTable: func(r *report, key string, n *node, into *T, whole bool) {
			*at(into) = new(V)
			decode(r, key, n, *at(into), fields, whole)
		},
	}
	f.set = func(t *T, s string) error {
		if s == "true" {
			*at(t) = new(V)
		}
		return nil
	}
	if mayBeEmpty {
		f.takes = booleans
	}
	return f
}

// inline prints a table as the file could have it, without its defaults; "" for
// nil.
func inline[V any](v *V, fields []field[V]) string {
	if v == nil {
		return ""
	}
	var parts []string
	for _, f := range fields {
		switch s := f.get(v); {
		case s == f.get(new(V)):
		case f.takes&texts != 0:
			parts = append(parts, f.name+" = "+quote(s))
		default:
			parts = append(parts, f.name+" = "+s)
		}
	}
	if len(parts) == 0 {
		return "true"
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}
