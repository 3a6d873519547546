package tc

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
)

// snapshot is what the kernel has for one section: on its device and on the ifb of that. It
// does not change after it is read.
type snapshot struct {
	ours        []Object             // in no order
	foreign     []Object             // qdiscs of others at root or ingress
	sizes       map[string]linkSizes // of links, now
	sizesBefore map[string]linkSizes // of links, before we limited them, as this process has read
	tables      map[tableID]uint32   // number of the root table of a u32 list
	counted     map[place]Counters
	shared      bool // others have filters beside ours at ingress
	partial     bool // read without filters
}

// tableID names a u32 list by its preference.
type tableID struct {
	device string
	pref   Pref
}

// read takes a whole snapshot.
func (k *Kernel) read(d Device) (*snapshot, error) { return k.snap(d, true) }

// snap takes a snapshot, with filters or without. Filters take the longest to read, and
// count nothing.
func (k *Kernel) snap(d Device, filters bool) (*snapshot, error) {
	s := &snapshot{partial: !filters, sizes: map[string]linkSizes{}, sizesBefore: map[string]linkSizes{}, tables: map[tableID]uint32{}, counted: map[place]Counters{}}
	mirror, err := k.link(d.mirror())
	if err != nil && !errors.Is(err, ErrNoDevice) {
		return nil, err
	}
	mirrored := err == nil && mirror.Type() == "ifb" // another type is not ours, whatever its name
	if mirrored {
		s.ours = append(s.ours, Object{Type: Link, Device: d.mirror(), Kind: "ifb", Params: ifb{Down: mirror.Attrs().Flags&net.FlagUp == 0}})
		if err := k.readDevice(s, d.mirror(), true); err != nil {
			return nil, err
		}
	}
	return s, k.readDevice(s, d.Name, mirrored)
}

// readDevice reads what is ours on a device. mirrored says that its ifb exists.
func (k *Kernel) readDevice(s *snapshot, device string, mirrored bool) error {
	link, err := k.link(device)
	if err != nil {
		return err
	}
	l := link.Attrs()
	s.sizes[device] = linkSizes{l.GSOMaxSize, cmp.Or(l.GSOIPv4MaxSize, l.GSOMaxSize)} // before Linux 6.3 there is only one size
	if had, known := k.sizesBefore[l.Index]; known {
		s.sizesBefore[device] = had
	}
	root, err := k.readQdiscs(s, device, mirrored)
	if err != nil || root == 0 || root == tbfHandle {
		return err
	}
	if err := errors.Join(k.readClasses(s, device), k.readFilters(s, device)); err != nil {
		return err
	}
	if i := slices.IndexFunc(s.ours, func(o Object) bool { return isNote(o) && o.Device == device }); i >= 0 {
		k.sizesBefore[l.Index] = s.ours[i].Params.(htbClass).noted()
		s.ours = append(s.ours, Object{Type: Link, Device: device, Kind: "sizes", Params: s.sizes[device]})
	}
	return nil
}

// readQdiscs reads the qdiscs of a device. It returns the root that is ours, 0 if there is none.
func (k *Kernel) readQdiscs(s *snapshot, device string, mirrored bool) (root Handle, err error) {
	qdiscs, err := k.dump(Qdisc, device, 0)
	if err != nil {
		return 0, err
	}
	for _, m := range qdiscs {
		switch o := qdiscOf(m, device); {
		case m.parent == rootParent && isOurs(o):
			root = m.handle
			s.keep(o, m)
		case m.parent == rootParent && m.handle != 0:
			s.foreign = append(s.foreign, o)
		case m.parent == ingressParent && m.kind == "ingress":
			err = k.readIngress(s, o, m, mirrored)
		case m.parent == ingressParent:
			s.foreign = append(s.foreign, o)
		}
		if err != nil {
			return 0, err
		}
	}
	for _, m := range qdiscs {
		if root != 0 && m.parent.major() == root && m.handle != 0 {
			s.keep(qdiscOf(m, device), m)
		}
	}
	return root, nil
}

// qdiscOf returns the qdisc of a device that a message describes.
func qdiscOf(m message, device string) Object {
	return Object{Type: Qdisc, Device: device, Handle: m.handle, Parent: m.parent, Kind: m.kind, Params: parseQdisc(m.kind, m.options)}
}

// isOurs reports whether a root qdisc is one that a plan has made.
func isOurs(o Object) bool {
	_, isTBF := o.Params.(tbf)
	return o.Handle == htbHandle && o.Params == ourRoot || o.Handle == tbfHandle && isTBF
}

// keep adds an object of ours to the snapshot.
func (s *snapshot) keep(o Object, m message) {
	s.ours = append(s.ours, o)
	s.counted[o.place()] = m.counters
}

// plan returns our objects in the order of a plan, each after what it needs.
func (s *snapshot) plan() []Object {
	all, have := slices.Clone(s.ours), map[place]Object{}
	for _, o := range all {
		have[o.place()] = o
	}
	depth := depths(have, slices.DeleteFunc(slices.Clone(all), func(o Object) bool { return o.Type != Class }))
	rank := func(o Object) int {
		switch {
		case o.Type == Link:
			return 0
		case o.Type == Qdisc && o.Parent == rootParent:
			return 1
		case o.Type == Class:
			return 1 + depth[o.place()]
		case o.Type == Qdisc:
			return math.MaxInt - 2
		case o.Handle.table() != 0:
			return math.MaxInt - 1
		}
		return math.MaxInt // filters of root tables, which may lead to other tables
	}
	slices.SortStableFunc(all, func(a, b Object) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Handle, b.Handle))
	})
	return all
}

// depths returns how deep classes are in their trees, from 1 on.
func depths(have map[place]Object, classes []Object) map[place]int {
	depth := map[place]int{}
	for _, o := range classes {
		n := 0
		for p, there := o, true; there; n++ {
			p, there = have[place{Class, p.Device, p.Parent, 0, Pref{}}]
		}
		depth[o.place()] = n
	}
	return depth
}

// readClasses reads the classes of a tree.
func (k *Kernel) readClasses(s *snapshot, device string) error {
	classes, err := k.dump(Class, device, 0)
	if err != nil {
		return err
	}
	parents := map[Handle]bool{}
	for _, m := range classes {
		parents[m.parent] = true
	}
	for _, m := range classes {
		if m.kind != "htb" || m.handle.major() != htbHandle {
			continue // a flow of a queue
		}
		o := Object{Type: Class, Device: device, Handle: m.handle, Parent: m.parent, Kind: m.kind, Params: parseClass(m.kind, m.options)}
		if c, ok := o.Params.(htbClass); ok && parents[m.handle] {
			c.Prio, c.Quantum = 0, 0 // HTB does not use them
			o.Params = c
		}
		s.keep(o, m)
	}
	return nil
}

// readFilters reads all filters of a tree.
func (k *Kernel) readFilters(s *snapshot, device string) error {
	if s.partial {
		return nil
	}
	filters, err := k.dump(Filter, device, htbHandle)
	if err != nil {
		return err
	}
	for _, m := range filters {
		k.keepFilter(s, device, htbHandle, m)
	}
	return nil
}

// readIngress reads the qdisc of ingress, and our filters there. The qdisc is ours if the
// ifb exists, or if there is a filter at our preference. Such a filter stays when somebody
// deletes the ifb, and then drops all that arrives.
func (k *Kernel) readIngress(s *snapshot, o Object, qdisc message, mirrored bool) error {
	filters, err := k.dump(Filter, o.Device, ingressHandle)
	if err != nil {
		return err
	}
	if !mirrored && !slices.ContainsFunc(filters, func(m message) bool { return m.pref() == ingressPref }) {
		s.foreign = append(s.foreign, o)
		return nil
	}
	s.keep(o, qdisc)
	for _, m := range filters {
		if m.pref() == ingressPref {
			k.keepFilter(s, o.Device, ingressHandle, m)
		} else {
			s.shared = true
		}
	}
	return nil
}

// keepFilter adds a filter to the snapshot. It skips two entries of u32: the list itself
// and its root table, which the kernel makes and deletes with the filters.
func (k *Kernel) keepFilter(s *snapshot, device string, parent Handle, m message) {
	o := Object{Type: Filter, Device: device, Handle: m.handle, Parent: parent, Kind: m.kind, Pref: m.pref()}
	if m.handle == 0 {
		return
	}
	switch m.kind {
	case "u32":
		o.Params = parseU32(m.options, k.nameOf)
		if table := m.handle.table(); table >= 0x800 {
			s.tables[tableID{device, o.Pref}] = table
			if o.Handle = o.Handle.inTable(0); o.Handle == 0 {
				return
			}
		}
	case "flower":
		o.Params = parseFlower(m.options)
	case "bpf":
		o.Params = parseBPF(m.options)
	default:
		o.Params = opaque{string(m.options)}
	}
	s.keep(o, m)
}

// nameOf returns the name of a device that k has read, by its index.
func (k *Kernel) nameOf(index uint32) string {
	for name, i := range k.indexes {
		if i == int(index) {
			return name
		}
	}
	return fmt.Sprint("if", index)
}
