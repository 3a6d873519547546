package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A field is one key of a section: how it is read and printed. Load, With, Diff and WriteTree
// use the same fields, so a key in the tables of schema.go is known to all of them.
type field[T any] struct {
	name     string
	required bool
	// isQuantity says that the value is a rate, a size or a time, which has several spellings.
	isQuantity bool
	// isSecret says that the value may be the key of a client, or a secret in place of its path. Errors go
	// to logs and do not repeat it.
	isSecret bool
	takes    takes
	form     string                 // says what is allowed if the value has the wrong type
	set      func(*T, string) error // reads one value or one item of a list
	get      func(*T) string        // prints the value as the file would have it, without secrets
	// apart tells apart values that get prints alike; nil: there are none.
	apart func(*T) string
	// family reads a value of one of the keys whose names begin as name does, before "NAME";
	// rest is the rest of that name. It is nil if the field is a single key.
	family func(rest string, into *T, value string) error
	// decodeTable reads a value that is a table, or an item of a list that is one; nil if
	// neither can be a table.
	decodeTable func(r *report, key string, n *node, into *T, whole bool)
	// keys describes the keys of that table; nil if they are not known.
	keys func() []Setting
}

// takes says which types of value a field accepts.
type takes uint8

const (
	texts takes = 1 << iota
	integers
	booleans
	lists
)

// one returns a field with a single value.
func one[T any, V comparable](name, form string, at func(*T) *V, parse func(string) (V, error)) field[T] {
	return field[T]{
		name: name, takes: texts, form: form,
		set: func(t *T, s string) error { return assign(at(t), s, parse) },
		get: func(t *T) string { return fmt.Sprint(*at(t)) },
	}
}

// group returns a field whose value is a table of fields. whole has the values of those
// fields that the table leaves out.
func group[T any, V comparable](name, form string, at func(*T) *V, whole V, fields []field[V]) field[T] {
	f := one(name, form, at, func(string) (V, error) { return whole, complain(form, "it is not text") })
	f.takes = 0
	f.apart = func(t *T) string { return identity(at(t), fields) }
	f.keys = func() []Setting { return keysOf(fields, whole) }
	f.decodeTable = func(r *report, key string, n *node, into *T, wholeFile bool) {
		*at(into) = whole
		decode(r, key, n, at(into), fields, wholeFile)
	}
	return f
}

// quantity returns a field whose type is from package unit. The error of parse says what is
// allowed.
func quantity[T any, V comparable](name string, at func(*T) *V, parse func(string) (V, error)) field[T] {
	_, err := parse("")
	f := one(name, complaintOf(err).allowed, at, parse)
	f.isQuantity = true
	return f
}

// many returns a field with one value or a list of values.
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
		get:   func(t *T) string { return list(*at(t)) },
		apart: func(t *T) string { return quotedList(*at(t)) },
	}
}

// require marks a field as required.
func require[T any](f field[T]) field[T] {
	f.required = true
	return f
}

// emptyAs makes a field print a word if the value is left out. The word is no value: what is spelled
// like it, such as the name of a class, is printed in quotes.
func emptyAs[T any](word string, f field[T]) field[T] {
	get, none := f.get, f.get(new(T))
	f.get = func(t *T) string {
		switch s := get(t); s {
		case none:
			return word
		case word:
			return quote(s)
		default:
			return s
		}
	}
	return f
}

// emptyMeans makes a field print the value that it has if the value is left out.
func emptyMeans[T any](value string, f field[T]) field[T] {
	get, none := f.get, f.get(new(T))
	f.apart = nil
	f.get = func(t *T) string {
		if s := get(t); s != none {
			return s
		}
		return value
	}
	return f
}

// alsoIntegers lets a field accept integers, too.
func alsoIntegers[T any](f field[T]) field[T] {
	f.takes |= integers
	return f
}

// filePath returns a field with the path of a file.
func filePath[T any](name, form string, at func(*T) *string) field[T] {
	return one(name, form, at, parsePath(form))
}

// secretPath returns a field with the path of a file that holds a secret.
func secretPath[T any](name, form string, at func(*T) *string) field[T] {
	f := filePath(name, form, at)
	f.isSecret = true
	return f
}

// assign parses s into at. It does not change at if that fails.
func assign[V any](at *V, s string, parse func(string) (V, error)) error {
	v, err := parse(s)
	if err != nil {
		return complaintOf(err)
	}
	*at = v
	return nil
}

// choice returns a parser for one of the words in supported.
func choice[V ~string](form string, supported []V) func(string) (V, error) {
	names := make([]string, len(supported))
	for i, v := range supported {
		names[i] = string(v)
	}
	return func(s string) (V, error) {
		if slices.Contains(supported, V(s)) {
			return V(s), nil
		}
		if near := nearest(s, names); near != "" {
			return "", complain(fmt.Sprintf("did you mean %q?", near), "%q is not known", s)
		}
		return "", within(domain{words: names}, complain(form, "%q is not known", s))
	}
}

// anyText reads any text. A check may look at it later.
func anyText(s string) (string, error) { return s, nil }

// yesNo returns a field that is true or false.
func yesNo[T any](name string, at func(*T) *bool) field[T] {
	f := one(name, boolForm, at, parseBool)
	f.takes = booleans
	return f
}

// parseBool reads true or false, as TOML has them.
func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, complain(boolForm, "%q is neither", s)
	}
	return s == "true", nil
}

// onlyIntegers makes a field accept only integers, or lists of them if it accepts lists.
func onlyIntegers[T any](f field[T]) field[T] {
	f.takes = integers | f.takes&lists
	return f
}

// nested returns a field whose value is a table, and nil if it is left out. If mayBeEmpty is
// set, the file may have true for a table without keys.
func nested[T, V any](name, form string, at func(*T) **V, fields []field[V], mayBeEmpty bool) field[T] {
	f := field[T]{name: name, form: form,
		get:   func(t *T) string { return inline(*at(t), fields) },
		apart: func(t *T) string { return identity(*at(t), fields) },
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
	f.keys = func() []Setting { return keysOf(fields, *new(V)) }
	if mayBeEmpty {
		f.takes = booleans
	}
	return f
}

// tables returns a field with one value or a list of values, each of them text or a table of
// fields. See numbered for the keys of items. defaults sets what a table leaves out.
func tables[T, V any](name, form string, at func(*T) *[]V, fields []field[V], parse func(string) (V, error), defaults func(r *report, key string, v *V)) field[T] {
	f := many(name, form, at, parse)
	f.decodeTable = func(r *report, key string, n *node, into *T, whole bool) {
		var v V
		decode(r, key, n, &v, fields, whole)
		defaults(r, key, &v)
		*at(into) = append(*at(into), v)
	}
	f.keys = func() []Setting { return keysOf(fields, *new(V)) }
	return f
}

// inline prints a table in one line, without default values. It returns "" for nil.
func inline[V any](v *V, fields []field[V]) string {
	if v == nil {
		return ""
	}
	var parts []string
	for _, f := range fields {
		switch s := f.get(v); {
		case f.same(v, new(V)):
		case f.takes&lists != 0:
			parts = append(parts, f.name+" = "+f.apart(v))
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
