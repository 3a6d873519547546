package policy

import (
	"slices"
	"strings"
)

// isTable reports whether a value is the table that it has to be.
func isTable(r *report, key string, n *node, header string) bool {
	if n.kind != aTable {
		r.wrong(key, "it is "+string(n.kind), "a section "+header)
	}
	return n.kind == aTable
}

// find returns the field of a key, or what is wrong with the key.
func find[T any](fields []field[T], name string) (f field[T], err error) {
	now, later := keyNames(fields)
	if err := checkKey(name, now, later); err != nil {
		return f, err
	}
	i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == name })
	return fields[i], nil
}

// known says what is wrong with a key that is not among those of now.
func checkKey(name string, now, later []string) error {
	switch {
	case slices.Contains(now, name):
		return nil
	case slices.Contains(later, name):
		return complain("supported here: "+strings.Join(now, ", "), "not supported in this version")
	}
	return complain(Hint(name, "supported here", now), "unknown key")
}

// names returns the names of the fields that this version honours, and of
// those that it does not.
func keyNames[T any](fields []field[T]) (now, later []string) {
	for _, f := range fields {
		if f.set != nil {
			now = append(now, f.name)
		} else {
			later = append(later, f.name)
		}
	}
	return now, later
}

// decode reads a table of the file over the defaults in into. Unless the whole
// file is TOML, a missing key may be on a line that was not understood.
func decode[T any](r *report, key string, table *node, into *T, fields []field[T], whole bool) {
	r.at[key] = table.at
	now, _ := keyNames(fields)
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
