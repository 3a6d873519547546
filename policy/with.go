package policy

import (
	"fmt"
	"slices"
	"strings"
)

// onlyInFile says what to do about what With does not change.
const onlyInFile = "change it in the policy file, and reload"

// With returns a copy of the policy in which keys of one class have other values. Values are
// written as in the file: {"rate": "40mbit"}. With checks the result like a file. Its error is
// of type [Errors] and holds every mistake, without positions. It warns of a rate of 0 that does not stop
// the class. The policy itself does not change, and the copy keeps its path and hash.
func (p *Policy) With(class string, values map[string]string) (with *Policy, warnings Errors, err error) {
	r := &report{at: map[string]int{}, bad: map[string]bool{}}
	i := slices.IndexFunc(p.Classes, func(c Class) bool { return c.Name == class })
	if i < 0 {
		r.wrongAt(0, join("class", class), noClass(class),
			Hint(class, "classes", namesOf(p.Classes, className)))
		return nil, nil, r.errs
	}
	changed := *p
	changed.Classes = slices.Clone(p.Classes)
	was, is := &p.Classes[i], &changed.Classes[i]
	is.setAll(r, values)
	is.setWindow(r)
	_, rate := values["rate"]
	if rate || values["ceil"] != "" {
		is.At = nil // the new value holds at all times
	}
	if p.mayBecome(r, was, is) {
		limits := timesChecker{check(r, &changed)}
		if is.Window == was.Window && is.Algorithm == was.Algorithm { // else it begins with another window anyway
			limits.sameWindow(is.limitKey(), was, is.Limit(), "set window=%v too, or a rate for each %[1]v")
		}
		if _, ceil := values["ceil"]; rate && !ceil {
			limits.warnUnstopped(join(join("class", class), "rate"), is)
		}
	}
	if len(r.errs) > 0 {
		return nil, nil, r.errs
	}
	return &changed, r.warnings, nil
}

// setAll sets keys of the class, which are then given like those of a file. It reports those that cannot be set.
func (c *Class) setAll(r *report, values map[string]string) {
	name := c.Name
	for _, key := range sortedKeys(values) {
		at := join(join("class", name), key)
		r.at[at] = 0
		f, err := find(classFields, key)
		switch {
		case err != nil:
		case f.takes&lists != 0:
			err = complain(onlyInFile, "a list cannot be set")
		case f.takes == 0, f.decodeTable != nil && strings.HasPrefix(values[key], "{"):
			err = complain(onlyInFile, "a table cannot be set")
		default:
			err = f.set(c, values[key])
		}
		if err != nil {
			c := complaintOf(err)
			r.wrongAt(0, at, c.problem, c.allowed)
		}
	}
}

// mayBecome reports whether a live class can become what another policy says. If not, it reports the
// first key that stands in the way.
func (p *Policy) mayBecome(r *report, was, is *Class) bool {
	wrong := func(key, problem, allowed string) bool {
		r.wrongAt(0, join(join("class", was.Name), key), problem, allowed)
		return false
	}
	switch {
	case was.Rate.Kind() != is.Rate.Kind():
		return wrong("rate", fmt.Sprintf("the class counts %v, not %v", was.Rate.Kind(), is.Rate.Kind()), "set a rate of the same unit; the policy file can change the unit")
	case was.Parent != is.Parent:
		return wrong("parent", "a live class stays where it is", onlyInFile)
	case was.Shared != is.Shared:
		return wrong("shared", "a live class stays in its fleet", onlyInFile)
	case was.Per != is.Per:
		return wrong("per", "a live class cannot change what has a bucket", onlyInFile)
	case was.MaxKeys != is.MaxKeys && p.hasKeys(is.Parent):
		return wrong("max_keys", fmt.Sprintf("%q has keys, and so have the classes beneath it", is.Parent), fmt.Sprintf("set it of %q", is.Parent))
	}
	return true
}

// hasKeys reports whether the class of a name has a bucket for each key.
func (p *Policy) hasKeys(name string) bool {
	class, _ := p.Class(name)
	return class.Per != (Per{})
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
