package policy

import (
	"cmp"
	"slices"
	"strings"
)

// decode fills the policy from the root of its file.
func (p *Policy) decode(r *report, root *node, whole bool) {
	for _, e := range root.keys {
		if err := checkKey(e.name, sections); err != nil {
			if near := meant(e.name, sections); near != "" {
				r.bad[near] = true // what is in this one is not missing there
			}
			c := complaintOf(err)
			r.wrongAt(e.at, join("", e.name), c.problem, c.allowed)
			continue
		}
		r.at[e.name] = e.value.at
		switch e.name {
		case "daemon":
			if isTable(r, e.name, e.value, "[daemon]") {
				decode(r, e.name, e.value, &p.Daemon, daemonFields, whole)
			}
		case "class":
			p.Classes = decodeNamed(r, e, classFields, DefaultClass, whole)
			for i := range p.Classes {
				p.Classes[i].setWindow(r)
			}
		case "listener":
			p.Listeners = decodeNamed(r, e, listenerFields, newListener, whole)
			for i := range p.Listeners {
				p.Listeners[i].setDefaults()
			}
		case "rule":
			p.decodeRules(r, e.value, whole)
		case "tc":
			p.decodeTC(r, e.value, whole)
		case "fleet":
			p.Fleets = decodeNamed(r, e, fleetFields, DefaultFleet, whole)
		}
	}
}

// sections are the keys at the top level of the file.
var sections = []string{"daemon", "class", "listener", "rule", "tc", "fleet"}

// newListener is DefaultListener before the protocol is known. setDefaults adds what depends
// on it.
func newListener(name string) Listener {
	l := DefaultListener(name, TCP)
	l.IdleTimeout, l.HalfCloseTimeout = 0, 0
	return l
}

// setWindow sets the window of a class that leaves it out and has a zone or a reset.
func (c *Class) setWindow(r *report) {
	key := join("class", c.Name)
	if own := c.Own(); r.given(key+".zone", key+".reset") {
		own.setWindow()
		c.Window = own.Window
	}
}

// setDefaults sets the keys that the file leaves out and whose default depends on the
// protocol.
func (l *Listener) setDefaults() {
	if l.Mode.IsEntry() {
		l.Protocol = cmp.Or(l.Inside, TCP)
	}
	if l.Mode == Transparent && l.Intercept == nil {
		l.Intercept = []Traffic{Forwarded}
	}
	defaults := DefaultListener(l.Name, l.Protocol)
	if l.IdleTimeout == 0 {
		l.IdleTimeout = defaults.IdleTimeout
	}
	if l.HalfCloseTimeout == 0 {
		l.HalfCloseTimeout = defaults.HalfCloseTimeout
	}
	if l.LengthPrefix == "" && l.Protocol == ISO8583 {
		l.LengthPrefix = Binary2
	}
}

// decodeNamed reads the sections [class.NAME], [listener.NAME] or [fleet.NAME].
func decodeNamed[T any](r *report, section entry, fields []field[T], defaults func(string) T, whole bool) (all []T) {
	header := "[" + section.name + ".NAME]"
	if !isTable(r, section.name, section.value, header) {
		return nil
	}
	for _, e := range section.value.keys {
		key := join(section.name, e.name)
		if !isName(e.name) || len(e.name) > 64 {
			r.wrongAt(e.at, key, quote(e.name)+" cannot be a name", "a name has at most 64 letters a-z and A-Z, digits, - and _")
			continue
		}
		r.at[key] = e.at
		if isTable(r, key, e.value, header) {
			one := defaults(e.name)
			decode(r, key, e.value, &one, fields, whole)
			all = append(all, one)
		}
	}
	return all
}

// decodeRules reads the sections [[rule]].
func (p *Policy) decodeRules(r *report, rules *node, whole bool) {
	if rules.kind != aList {
		r.wrong("rule", "it is "+string(rules.kind), "each rule begins with [[rule]]")
		return
	}
	p.Rules = slices.Grow(p.Rules, len(rules.items))
	for i, n := range rules.items {
		key := ruleKey(i)
		r.at[key] = n.at
		var rule Rule
		if isTable(r, key, n, "[[rule]]") {
			at := r.place(n.at)
			rule.File, rule.Line = at.file, at.line
			decode(r, key, n, &rule, ruleFields, whole)
		}
		p.Rules = append(p.Rules, rule)
	}
}

// decodeTC reads the sections [tc.DEVICE].
func (p *Policy) decodeTC(r *report, section *node, whole bool) {
	const header = "[tc.DEVICE]"
	if !isTable(r, "tc", section, header) {
		return
	}
	for _, e := range section.keys {
		key := join("tc", e.name)
		if !isDevice(e.name) {
			r.wrongAt(e.at, key, quote(e.name)+" cannot be a device", `a network device has at most 15 characters, as in [tc.eth0] or [tc."eth0.100"]`)
			continue
		}
		r.at[key] = e.at
		if isTable(r, key, e.value, header) {
			t := DefaultTC(e.name)
			decode(r, key, e.value, &t, tcFields, whole)
			p.TC = append(p.TC, t)
		}
	}
}

// isDevice reports whether s is a valid name of a network device (dev_valid_name in the
// kernel's net/core/dev.c).
func isDevice(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." && !strings.ContainsAny(s, "/: \t\n\v\f\r")
}
