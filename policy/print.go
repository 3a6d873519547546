package policy

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"shaper/unit"
)

// WriteTree prints the sections of the policy for people, classes below their parents. It
// shows every key that means something in its section, and which values are defaults.
func (p *Policy) WriteTree(w io.Writer) error { return printing{p, nil}.write(w) }

// WriteWritten is WriteTree for only the keys in written, which Written returns of the files. It
// prints quantities as the files have them: 400kB/s, and not 3.2mbit.
func (p *Policy) WriteWritten(w io.Writer, written map[string]string) error {
	return printing{p, written}.write(w)
}

// printing prints a policy: all its keys, or only those in only if that is not nil.
type printing struct {
	*Policy
	only map[string]string
}

func (p printing) write(w io.Writer) error {
	root := branch{title: fmt.Sprintf("%s  %s", p.Path, p.Hash)}
	daemon := DefaultDaemon()
	if lines := table("daemon", &p.Daemon, &daemon, daemonFields, p.only); len(lines) > 0 {
		root.under = append(root.under, branch{"daemon", lines, nil})
	}
	root.under = append(root.under, p.fleets()...)
	root.under = append(root.under, p.classes("", p.byParent())...)
	root.under = append(root.under, p.listeners()...)
	if len(p.Rules) > 0 {
		root.under = append(root.under, p.rules())
	}
	root.under = append(root.under, p.devices()...)
	var b strings.Builder
	root.write(&b, "", "")
	_, err := io.WriteString(w, b.String())
	return err
}

// classes returns the branches of the classes below a parent; "" stands for none.
func (p printing) classes(parent string, byParent map[string][]*Class) (all []branch) {
	for _, class := range byParent[parent] {
		defaults := DefaultClass(class.Name)
		all = append(all, branch{"class " + class.Name, table(join("class", class.Name), class, &defaults, fieldsOf(class), p.only), p.classes(class.Name, byParent)})
	}
	return all
}

func (p printing) fleets() (all []branch) {
	for i := range p.Fleets {
		defaults := DefaultFleet(p.Fleets[i].Name)
		all = append(all, branch{"fleet " + p.Fleets[i].Name, table(join("fleet", p.Fleets[i].Name), &p.Fleets[i], &defaults, fleetFields, p.only), nil})
	}
	return all
}

func (p printing) listeners() (all []branch) {
	for i := range p.Listeners {
		l := &p.Listeners[i]
		defaults := DefaultListener(l.Name, l.Protocol)
		defaults.Protocol = TCP
		all = append(all, branch{"listener " + l.Name, table(join("listener", l.Name), l, &defaults, fieldsOfListener(l), p.only), nil})
	}
	return all
}

func (p printing) rules() branch {
	b := branch{title: "rules, the first match wins"}
	number, widest := len(fmt.Sprint(len(p.Rules))), 0
	for i := range p.Rules {
		widest = max(widest, len(p.lineOf(&p.Rules[i])))
	}
	for i, r := range p.Rules {
		b.lines = append(b.lines, fmt.Sprintf("%*d  %-*s  %v", number, i+1, widest, p.lineOf(&r), r))
	}
	return b
}

// lineOf says where a rule begins: the line, and the file if the policy has several.
func (p *Policy) lineOf(r *Rule) string {
	if len(p.Pieces) == 0 {
		return lineOf("", r.Line)
	}
	return lineOf(r.File, r.Line)
}

// table prints the fields of a section, one in each line, aligned. If only is not nil, it
// prints only those whose key is in it.
func table[T any](section string, t, defaults *T, fields []field[T], only map[string]string) (lines []string) {
	fields = slices.DeleteFunc(slices.Clone(fields), func(f field[T]) bool {
		_, written := only[join(section, f.name)]
		return only != nil && !written
	})
	width, longest := 0, 0
	for _, f := range fields {
		width = max(width, len(f.name))
		if f.same(t, defaults) {
			longest = max(longest, len(f.print(t)))
		}
	}
	for _, f := range fields {
		text := f.print(t)
		if f.isQuantity {
			text = cmp.Or(only[join(section, f.name)], text)
		}
		line := fmt.Sprintf("%-*s  %s", width, f.name, text)
		if f.same(t, defaults) && !f.required && only == nil {
			line = fmt.Sprintf("%-*s  %-*s  (default)", width, f.name, longest, text)
		}
		lines = append(lines, line)
	}
	return lines
}

// A branch is a title with lines of its own and branches below it.
type branch struct {
	title string
	lines []string
	under []branch
}

// write prints a branch. first goes before its title, and rest before all other lines.
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

func (p printing) devices() (all []branch) {
	for i := range p.TC {
		defaults := DefaultTC(p.TC[i].Device)
		all = append(all, branch{"tc " + p.TC[i].Device, table(join("tc", p.TC[i].Device), &p.TC[i], &defaults, tcFields, p.only), nil})
	}
	return all
}

// fieldsOf returns the fields that mean something for a class. Not every algorithm has a burst
// or a window, and a class without a parent has no siblings.
func fieldsOf(class *Class) []field[Class] {
	return slices.DeleteFunc(slices.Clone(classFields), func(f field[Class]) bool {
		switch f.name {
		case "burst":
			return !class.Algorithm.HasBurst()
		case "window":
			return !class.Algorithm.HasWindow()
		case "zone", "reset":
			return class.Window.Period == ""
		case "max_keys":
			return class.Per == (Per{})
		case "quiet":
			return class.Rate.Kind() != unit.Messages
		case "in_flight", "on_throttle", "adapt", "learn", "retry", "cost", "settle", "throttled_by", "hints":
			return !class.Rate.Kind().OfMessages()
		case "ceil", "priority", "weight":
			return class.Parent == ""
		}
		return false
	})
}

// fieldsOfListener returns the fields that mean something for a listener. Datagrams have
// neither TLS nor an end, and only some protocols have a length before their messages.
func fieldsOfListener(l *Listener) []field[Listener] {
	return slices.DeleteFunc(slices.Clone(listenerFields), func(f field[Listener]) bool {
		switch f.name {
		case "protocol", "upstream":
			return l.Mode.IsEntry()
		case "inside", "allow", "deny", "users":
			return !l.Mode.IsEntry()
		case "intercept", "keep_source":
			return l.Mode != Transparent
		case "unix":
			return !l.bindsFiles()
		case "tls", "upstream_tls", "half_close_timeout", "accept_proxy", "health":
			return l.Protocol == UDP
		case "length_prefix", "length_includes_itself", "header_length":
			return l.Protocol != ISO8583
		case "host":
			return l.Protocol != HTTP
		}
		return false
	})
}
