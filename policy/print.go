package policy

import (
	"fmt"
	"io"
	"shaper/unit"
	"slices"
	"strings"
)

// WriteTree prints the policy in force as a tree of its sections, for people.
// Every key that means something is shown; what is worth its default says so.
func (p *Policy) WriteTree(w io.Writer) error { return p.writeTree(w, nil) }

// WriteWritten is WriteTree for the keys that the file gives, which Written returns.
func (p *Policy) WriteWritten(w io.Writer, written map[string]bool) error {
	return p.writeTree(w, written)
}

func (p *Policy) writeTree(w io.Writer, only map[string]bool) error {
	root := branch{title: fmt.Sprintf("%s  %s", p.Path, p.Hash)}
	daemon := DefaultDaemon()
	if lines := table("daemon", &p.Daemon, &daemon, daemonFields, only); len(lines) > 0 {
		root.under = append(root.under, branch{"daemon", lines, nil})
	}
	root.under = append(root.under, classBranches("", p.byParent(), only)...)
	root.under = append(root.under, p.listenerBranches(only)...)
	if len(p.Rules) > 0 {
		root.under = append(root.under, p.ruleBranch())
	}
	root.under = append(root.under, p.tcBranches(only)...)
	var b strings.Builder
	root.write(&b, "", "")
	_, err := io.WriteString(w, b.String())
	return err
}

// classBranches returns those of the classes under a parent, "" for none.
func classBranches(parent string, byParent map[string][]*Class, only map[string]bool) (all []branch) {
	for _, class := range byParent[parent] {
		defaults := DefaultClass(class.Name)
		all = append(all, branch{"class " + class.Name, table(join("class", class.Name), class, &defaults, fieldsOf(class), only), classBranches(class.Name, byParent, only)})
	}
	return all
}

func (p *Policy) listenerBranches(only map[string]bool) (all []branch) {
	for i := range p.Listeners {
		l := &p.Listeners[i]
		defaults := DefaultListener(l.Name, l.Protocol)
		defaults.Protocol = TCP
		all = append(all, branch{"listener " + l.Name, table(join("listener", l.Name), l, &defaults, fieldsOfListener(l), only), nil})
	}
	return all
}

func (p *Policy) ruleBranch() branch {
	b := branch{title: "rules, the first match wins"}
	number, line := len(fmt.Sprint(len(p.Rules))), len(fmt.Sprint(p.Rules[len(p.Rules)-1].Line))
	for i, r := range p.Rules {
		b.lines = append(b.lines, fmt.Sprintf("%*d  line %*d  %v", number, i+1, line, r.Line, r))
	}
	return b
}

// table prints each field of a section in a line, aligned: of those alone that only has
// by their keys, if it is not nil.
func table[T any](section string, t, defaults *T, fields []field[T], only map[string]bool) (lines []string) {
	fields = slices.DeleteFunc(slices.Clone(fields), func(f field[T]) bool {
		return f.get == nil || only != nil && !only[join(section, f.name)]
	})
	width, longest := 0, 0
	for _, f := range fields {
		width = max(width, len(f.name))
		if f.get(t) == f.get(defaults) {
			longest = max(longest, len(f.get(t)))
		}
	}
	for _, f := range fields {
		line := fmt.Sprintf("%-*s  %s", width, f.name, f.get(t))
		if f.get(t) == f.get(defaults) && !f.required && only == nil {
			line = fmt.Sprintf("%-*s  %-*s  (default)", width, f.name, longest, f.get(t))
		}
		lines = append(lines, line)
	}
	return lines
}

// A branch is a title with lines of its own and branches under it.
type branch struct {
	title string
	lines []string
	under []branch
}

func (b branch) write(w *strings.Builder, first, rest string) {
	fmt.Fprintf(w, "%s%s\n", first, b.title)
	bar := rest + "   "
	if len(b.under) > 0 {
		bar = rest + "│  "
	}
	for _, line := range b.lines {
		fmt.Fprintf(w, "%s%s\n", bar, line)
	}
	for i, u := range b.under {
		if i == len(b.under)-1 {
			u.write(w, rest+"└─ ", rest+"   ")
		} else {
			u.write(w, rest+"├─ ", rest+"│  ")
		}
	}
}

func (p *Policy) tcBranches(only map[string]bool) (all []branch) {
	for i := range p.TC {
		defaults := DefaultTC(p.TC[i].Device)
		all = append(all, branch{"tc " + p.TC[i].Device, table(join("tc", p.TC[i].Device), &p.TC[i], &defaults, tcFields, only), nil})
	}
	return all
}

// fieldsOf returns the fields that mean something to a class: not every algorithm
// has a burst or a window, and one without a parent has no siblings.
func fieldsOf(class *Class) []field[Class] {
	return slices.DeleteFunc(slices.Clone(classFields), func(f field[Class]) bool {
		switch f.name {
		case "burst":
			return !class.Algorithm.HasBurst()
		case "window":
			return !class.Algorithm.HasWindow()
		case "max_keys":
			return class.Per == (Per{})
		case "in_flight", "on_throttle", "adapt":
			return class.Rate.Kind() != unit.Messages
		case "ceil", "priority", "weight":
			return class.Parent == ""
		}
		return false
	})
}

// fieldsOfListener is fieldsOf for a listener: datagrams have neither TLS nor an end, and
// only some messages a length.
func fieldsOfListener(l *Listener) []field[Listener] {
	return slices.DeleteFunc(slices.Clone(listenerFields), func(f field[Listener]) bool {
		switch f.name {
		case "tls", "upstream_tls", "half_close_timeout":
			return l.Protocol == UDP
		case "length_prefix", "length_includes_itself", "header_length":
			return l.Protocol != ISO8583
		case "host":
			return l.Protocol != HTTP
		}
		return false
	})
}
