package policy

import (
	"slices"
	"strings"
)

// isTable reports whether a value is a table. If it is not, that is a mistake.
func isTable(r *report, key string, n *node, header string) bool {
	if n.kind != aTable {
		r.wrong(key, "it is "+string(n.kind), "a section "+header)
	}
	return n.kind == aTable
}

// find returns the field of a key, or an error if there is none. given are the keys that the section has.
func find[T any](fields []field[T], name string, given ...string) (f field[T], err error) {
	for _, f := range fields {
		if f, ok := f.member(name); ok {
			return f, nil
		}
	}
	supported := namesOf(fields, field[T].key)
	if err := checkKey(name, supported, given...); err != nil {
		return f, err
	}
	return fields[slices.Index(supported, name)], nil
}

// key returns the name of the field.
func (f field[T]) key() string { return f.name }

// member returns the field of one key of a family; false if the key is not one of it.
func (f field[T]) member(key string) (field[T], bool) {
	rest, ok := strings.CutPrefix(key, strings.TrimSuffix(f.name, "NAME"))
	if f.family == nil || !ok {
		return f, false
	}
	f.set = func(t *T, s string) error { return f.family(rest, t, s) }
	return f, true
}

// checkKey returns an error if a key is not supported. given are the keys that the section has.
func checkKey(name string, supported []string, given ...string) error {
	if slices.Contains(supported, name) {
		return nil
	}
	return complain(instead(name, supported, given...), "unknown key")
}

// decode reads a table of the file into a value that holds the defaults. It reports a missing
// key only if the whole file is TOML: else the key may be on a line that is not.
func decode[T any](r *report, key string, table *node, into *T, fields []field[T], whole bool) {
	r.at[key] = table.at
	supported := namesOf(fields, field[T].key)
	given := namesOf(table.keys, func(e entry) string { return e.name })
	for _, e := range table.keys {
		f, err := find(fields, e.name, given...)
		if err != nil {
			if near := meant(e.name, supported, given...); near != "" && table.get(near) == nil {
				r.bad[plainKey(join(key, near))] = true // it is probably misspelt, neither missing nor left out
			}
			c := complaintOf(err)
			r.wrongAt(e.at, join(key, e.name), c.problem, c.allowed)
			continue
		}
		f.decode(r, join(key, e.name), e.value, into, whole)
	}
	for _, f := range fields {
		if f.required && table.get(f.name) == nil && r.sound(join(key, f.name)) && whole {
			r.wrong(join(key, f.name), "it is missing", f.form)
		}
	}
}

// decode reads the value of one key, or each item of its list.
func (f field[T]) decode(r *report, key string, n *node, into *T, whole bool) {
	r.at[key] = n.at
	values := []*node{n}
	if n.kind == aList && f.takes&lists != 0 {
		if values = n.items; len(values) == 0 {
			r.wrong(key, "the list is empty", f.form)
		}
	}
	for i, v := range values {
		r.at[item(key, i)] = v.at
		if f.decodeTable != nil {
			at := key
			if n.kind == aList {
				at = numbered(key, i)
			}
			if r.at[at] = v.at; v.kind == aTable {
				f.decodeTable(r, at, v, into, whole)
				continue
			}
		}
		if err := f.read(v, into); err != nil {
			c := complaintOf(err)
			r.wrong(item(key, i), f.told(c.problem, v.text), c.allowed)
		}
	}
}

// told returns a problem as an error tells it: without the value at its beginning, if that is secret.
func (f field[T]) told(problem, value string) string {
	for _, text := range []string{quote(value), value} {
		if rest, found := strings.CutPrefix(problem, text+" "); found && f.isSecret && value != "" {
			return "it " + rest
		}
	}
	return problem
}

// read checks the type of one value and sets it.
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
