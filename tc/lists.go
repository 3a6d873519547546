package tc

import (
	"cmp"
	"maps"
	"slices"
)

// Lists of filters change in place where only the classes differ that they lead to.
// Else a whole list is made beside the one that is in force, and then that goes. Each
// packet finds the first match in one of the two: a list that stands before is made
// from its first filter on, and what it has no match for yet goes to the other; it
// goes from its last on.

// filters brings filters about.
func (d *differ) filters() {
	for _, o := range d.want {
		if o.Type != Filter || isListed(o.Pref) {
			continue
		}
		switch was, there := d.have[o.place()]; {
		case !there:
			d.do(add, o)
		case was != o:
			d.do(del, was)
			d.do(add, o)
		}
	}
	for _, o := range d.ours {
		_, there := d.have[o.place()]
		if o.Type != Filter || !there || d.rootGoes(o) {
			continue
		}
		if stranger := isListed(o.Pref) && o.Kind != "u32"; stranger || !isListed(o.Pref) && !d.taken[o.place()] {
			d.do(del, o)
			delete(d.have, o.place())
		}
	}

	for _, device := range d.devices() {
		for _, f := range []family{ipv4, ipv6} {
			d.list(device, listPrefs[f])
		}
	}
}

func isListed(p Pref) bool {
	for _, prefs := range listPrefs {
		if p == prefs[0] || p == prefs[1] {
			return true
		}
	}
	return false
}

// rootGoes reports whether a filter or a class goes with its root.
func (d *differ) rootGoes(o Object) bool {
	return o.Parent.major() == htbHandle && !d.taken[Object{Type: Qdisc, Device: o.Device, Handle: htbHandle}.place()]
}

// devices returns the devices of the plan and of what there is, in a fixed order.
func (d *differ) devices() []string {
	names := map[string]bool{}
	for _, o := range slices.Concat(d.want, d.ours) {
		names[o.Device] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// present returns the filters of a list that there are, in the order of the plan.
func (d *differ) present(id listID) (all []Object) {
	for _, o := range d.ours {
		if _, there := d.have[o.place()]; there && o.Type == Filter && o.Device == id.device && o.Pref == id.pref && o.Parent == htbHandle {
			all = append(all, o)
		}
	}
	return all
}

// list makes one of two lists equal to that of the plan, and has the other go.
func (d *differ) list(device string, prefs [2]Pref) {
	var want []Object
	for _, o := range d.want {
		if o.Type == Filter && o.Device == device && o.Pref == prefs[0] {
			want = append(want, o)
		}
	}
	have := [2][]Object{d.present(listID{device, prefs[0]}), d.present(listID{device, prefs[1]})}
	if len(want) == 0 {
		for i, pref := range prefs {
			if len(have[i]) > 0 && !d.rootGoes(have[i][0]) {
				d.dropList(listID{device, pref})
			}
		}
		return
	}
	for i := range prefs {
		if changes, ok := rerouted(have[i], moveList(want, prefs[i])); ok {
			d.ops = append(d.ops, changes...)
			d.dropList(listID{device, prefs[1-i]})
			return
		}
	}
	into := 0 // the shorter list: the other one is complete
	if len(have[0]) > len(have[1]) {
		into = 1
	}
	d.dropList(listID{device, prefs[into]})
	for _, o := range moveList(want, prefs[into]) {
		d.do(add, o)
	}
	d.dropList(listID{device, prefs[1-into]})
}

// rerouted returns the changes that make a list equal to another one, where they only
// differ in the classes of their filters.
func rerouted(have, want []Object) (changes []op, ok bool) {
	if len(have) != len(want) {
		return nil, false
	}
	at := make(map[place]Object, len(have))
	for _, o := range have {
		at[o.place()] = o
	}
	for _, o := range want {
		was := at[o.place()]
		if was == o {
			continue
		}
		wasKey, ok1 := was.Params.(u32Key)
		key, ok2 := o.Params.(u32Key)
		if wasKey.Class = key.Class; !ok1 || !ok2 || key.Class == 0 || wasKey != key {
			return nil, false
		}
		changes = append(changes, op{change, o})
	}
	return changes, true
}

// moveList returns a list of the plan at another preference.
func moveList(all []Object, to Pref) []Object {
	moved := slices.Clone(all)
	for i := range moved {
		o := &moved[i]
		by := firstTable(to) - firstTable(o.Pref)
		o.Pref = to
		if table := o.Handle.table(); table != 0 {
			o.Handle = o.Handle.inTable(table + by)
		}
		if key, ok := o.Params.(u32Key); ok && key.Link != 0 {
			key.Link += by
			o.Params = key
		}
	}
	return moved
}

// dropList deletes a list: links from the last on, then the tables that nothing
// leads to any more, then the rest at once.
func (d *differ) dropList(id listID) {
	all := d.present(id)
	if d.tables[id] == 0 || d.dropped[id] {
		return
	}
	slices.SortFunc(all, func(a, b Object) int { return cmp.Compare(b.Handle, a.Handle) })
	tables := slices.ContainsFunc(all, func(o Object) bool { return o.Handle.table() != 0 })
	if tables {
		for _, o := range all {
			if o.Handle.table() == 0 {
				d.do(del, o)
			}
		}
		for _, o := range all {
			if _, ok := o.Params.(u32Table); ok {
				d.do(del, o)
			}
		}
	}
	d.do(del, Object{Type: Filter, Device: id.device, Parent: htbHandle, Kind: "u32", Pref: id.pref, Params: wholeList{}})
	for _, o := range all {
		delete(d.have, o.place())
	}
	d.dropped[id] = true
}
