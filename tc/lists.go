package tc

import (
	"cmp"
	"maps"
	"slices"
)

// If the new list differs from the one in force only in the classes that the filters lead to, the
// filters change in place. Otherwise the differ makes the new list beside the old one, and then
// deletes the old one. It makes a list from the first filter on, and deletes it from the last
// filter on. A packet that finds no match in the list that the kernel tries first goes on to the
// other list. So at every moment the first match of a packet is that of the old list or that of the new.

// filters changes single filters, deletes surplus ones, and then changes lists.
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
		if stranger := isListed(o.Pref) && !isOfList(o); stranger || !isListed(o.Pref) && !d.wanted[o.place()] {
			d.deleteFilter(o)
			delete(d.have, o.place())
		}
	}

	for _, device := range d.devices() {
		for _, f := range []family{ipv4, ipv6} {
			d.list(device, f)
		}
	}
}

// deleteFilter deletes a filter. If it is the last one of ours at ingress, the whole list goes:
// beside lists of others the kernel would keep it, empty.
func (d *differ) deleteFilter(o Object) {
	if last := !d.wanted[Object{Type: Qdisc, Device: o.Device, Handle: ingressHandle}.place()]; last && o.Parent == ingressHandle {
		o.Handle, o.Params = 0, wholeList{}
	}
	d.do(del, o)
}

// isListed reports whether a preference belongs to a list.
func isListed(p Pref) bool {
	_, _, ok := slotOf(p)
	return ok
}

// isOfList reports whether a filter is of the kind that its list has.
func isOfList(o Object) bool {
	_, kind, ok := slotOf(o.Pref)
	return ok && kind == o.Kind
}

// rootGoes reports whether the root above a filter or a class is to be deleted, and they
// with it.
func (d *differ) rootGoes(o Object) bool {
	return (o.Type == Class || o.Parent.major() == htbHandle) && !d.wanted[Object{Type: Qdisc, Device: o.Device, Handle: htbHandle}.place()]
}

// devices returns the devices of the plan and of the snapshot, in a fixed order.
func (d *differ) devices() []string {
	names := map[string]bool{}
	for _, o := range slices.Concat(d.want, d.ours) {
		names[o.Device] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// listID names a list of filters.
type listID struct {
	device string
	slot   slot
}

// present returns the filters of a list that the kernel has.
func (d *differ) present(id listID) (all []Object) {
	for _, o := range d.ours {
		if _, there := d.have[o.place()]; !there || o.Type != Filter || o.Device != id.device || o.Parent != htbHandle {
			continue
		}
		if s, _, ok := slotOf(o.Pref); ok && s == id.slot {
			all = append(all, o)
		}
	}
	return all
}

// list makes the list in one slot of a family equal to the plan, and deletes the other one.
func (d *differ) list(device string, f family) {
	var want []Object
	for _, o := range d.want {
		if s, _, ok := slotOf(o.Pref); ok && o.Type == Filter && o.Device == device && s.family == f {
			want = append(want, o)
		}
	}
	ids := [2]listID{{device, slot{f, 0}}, {device, slot{f, 1}}}
	have := [2][]Object{d.present(ids[0]), d.present(ids[1])}
	if len(want) == 0 {
		for i := range ids {
			if len(have[i]) > 0 && !d.rootGoes(have[i][0]) {
				d.dropList(ids[i])
			}
		}
		return
	}
	for i := range ids {
		if changes, ok := changesInPlace(have[i], moveList(want, ids[i].slot)); ok {
			d.ops = append(d.ops, changes...)
			d.dropList(ids[1-i])
			return
		}
	}
	into := 0 // the slot of the shorter list: the other list is complete
	if len(have[0]) > len(have[1]) {
		into = 1
	}
	d.dropList(ids[into])
	for _, o := range moveList(want, ids[into].slot) {
		d.do(add, o)
	}
	d.dropList(ids[1-into])
}

// changesInPlace returns the changes that make one list equal to another; ok is false if they
// differ in more than the classes of their filters.
func changesInPlace(have, want []Object) (changes []op, ok bool) {
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
		class, key := leadsTo(o.Params)
		if _, before := leadsTo(was.Params); class == 0 || key != before {
			return nil, false
		}
		changes = append(changes, op{change, o})
	}
	return changes, true
}

// leadsTo returns the class that a filter leads to, 0 for none, and the filter without it.
func leadsTo(p Params) (class Handle, rest Params) {
	switch k := p.(type) {
	case u32Key:
		class, k.Class = k.Class, 0
		return class, k
	case flowerKey:
		class, k.Class = k.Class, 0
		return class, k
	}
	return 0, p
}

// moveList returns a copy of a list for another slot.
func moveList(all []Object, to slot) []Object {
	moved := slices.Clone(all)
	for i := range moved {
		o := &moved[i]
		from, kind, _ := slotOf(o.Pref)
		if kind == "flower" {
			o.Pref.Priority += flowerPriority(to) - flowerPriority(from)
			continue
		}
		o.Pref = u32Pref(to)
		by := firstTable(to) - firstTable(from)
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

// dropList deletes a list from its last filter on: first the filters that lead to tables,
// then the tables, then the rest of each preference at once.
func (d *differ) dropList(id listID) {
	all := d.present(id)
	slices.SortFunc(all, func(a, b Object) int {
		return cmp.Or(cmp.Compare(b.Pref.Priority, a.Pref.Priority), cmp.Compare(b.Handle, a.Handle))
	})
	if slices.ContainsFunc(all, func(o Object) bool { return o.Kind == "u32" && o.Handle.table() != 0 }) {
		for _, o := range all {
			if o.Kind == "u32" && o.Handle.table() == 0 {
				d.do(del, o)
			}
		}
		for _, o := range all {
			if _, ok := o.Params.(u32Table); ok {
				d.do(del, o)
			}
		}
	}
	var last Pref
	for _, o := range all {
		if o.Pref != last {
			d.dropAll(o)
		}
		last = o.Pref
		delete(d.have, o.place())
	}
	if pref := u32Pref(id.slot); last == (Pref{}) && d.tables[tableID{id.device, pref}] != 0 && !d.emptied[id] { // an empty list
		d.dropAll(Object{Device: id.device, Kind: "u32", Pref: pref})
	}
	d.emptied[id] = true
}

// dropAll deletes all filters at the preference of the one that is given.
func (d *differ) dropAll(of Object) {
	d.do(del, Object{Type: Filter, Device: of.Device, Parent: htbHandle, Kind: of.Kind, Pref: of.Pref, Params: wholeList{}})
}
