package tc

import (
	"cmp"
	"slices"
)

// diff returns the changes that make our objects in the kernel equal to a plan, in the
// order in which they are possible: an object is added before what refers to it, and
// deleted after it.
func diff(want []Object, s *snapshot) []op {
	d := differ{snapshot: s, want: complete(want, s), have: map[place]Object{}, wanted: map[place]bool{}, emptied: map[listID]bool{}}
	for _, o := range s.ours {
		d.have[o.place()] = o
	}
	for _, o := range d.want {
		d.wanted[o.place()] = true
	}
	d.evict()
	d.links()
	d.roots()
	d.moveClasses()
	d.surplusQueues()
	d.classes()
	d.limitSizes()
	d.filters()
	d.surplus()
	return d.ops
}

// complete completes a plan with what only the kernel knows: the packet sizes that links had
// before we limited them. It puts them into the notes of the plan. If the plan does not
// limit a link any more, complete adds the change that resets it.
func complete(want []Object, s *snapshot) (all []Object) {
	noted := map[string]linkSizes{}
	for _, o := range s.ours {
		if isNote(o) {
			noted[o.Device] = o.Params.(htbClass).noted()
		}
	}
	limits := map[string]linkSizes{}
	for _, o := range want {
		if sizes, ok := o.Params.(linkSizes); ok {
			limits[o.Device] = sizes
		}
	}
	for _, o := range want {
		if isNote(o) {
			sizes, ok := noted[o.Device]
			if !ok {
				sizes = s.before(o.Device, limits[o.Device])
			}
			o.Params = noteOf(sizes)
			delete(noted, o.Device)
		}
		all = append(all, o)
	}
	for device, sizes := range noted { // the plan limits these links no more
		all = append(all, Object{Type: Link, Device: device, Kind: "sizes", Params: sizes})
	}
	return all
}

// before returns the sizes that a link had before we limited it, if there is no note of
// them. If somebody has deleted our root, and the note with it, the link still has our
// limit.
func (s *snapshot) before(device string, limit linkSizes) linkSizes {
	now := s.sizes[device]
	if now != limit {
		return now
	}
	if had, known := s.sizesBefore[device]; known {
		return had
	}
	return linkSizes{gsoUnlimited, gsoUnlimited} // the kernel's default
}

// evict deletes the ingress qdiscs of others. Their root qdisc needs no deletion: ours
// replaces it. The caller has checked that this is allowed.
func (d *differ) evict() {
	for _, o := range d.foreign {
		if o.Parent == ingressParent && d.wanted[Object{Type: Qdisc, Device: o.Device, Handle: ingressHandle}.place()] {
			d.do(del, o)
		}
	}
}

// links makes the ifb or brings it up, and resets links that are limited no more.
func (d *differ) links() {
	limited := map[string]bool{}
	for _, o := range d.want {
		limited[o.Device] = limited[o.Device] || isNote(o)
	}
	for _, o := range d.want {
		was, made := d.have[o.place()]
		switch {
		case o.Type == Link && o.Kind == "ifb" && !made:
			d.do(add, o)
		case o.Type == Link && o.Kind == "ifb" && was != o:
			d.do(change, o)
		case o.Type == Link && o.Kind == "sizes" && !limited[o.Device]:
			d.resize(o)
		}
	}
}

// limitSizes limits the packet sizes of links. Their sizes before are noted by then.
func (d *differ) limitSizes() {
	noted := map[string]bool{}
	for _, o := range d.want {
		noted[o.Device] = noted[o.Device] || isNote(o)
	}
	for _, o := range d.want {
		if o.Type == Link && o.Kind == "sizes" && noted[o.Device] {
			d.resize(o)
		}
	}
}

// resize sets the packet sizes of a link if they differ.
func (d *differ) resize(o Object) {
	if now, known := d.sizes[o.Device]; !known || now != o.Params.(linkSizes) {
		d.do(change, o)
	}
}

// roots makes root qdiscs. It replaces one of ours only by one of the other kind (HTB,
// TBF); then everything below it is gone.
func (d *differ) roots() {
	for _, o := range d.want {
		if o.Type != Qdisc || o.Parent != rootParent {
			continue
		}
		if _, there := d.have[o.place()]; there {
			continue
		}
		v := add
		if d.hasRoot(o.Device) {
			v = replace
			d.forget(func(p place) bool {
				return p.device == o.Device && p.typ != Link && p.parent != ingressHandle && p.handle != ingressHandle
			})
		}
		d.do(v, o)
		d.have[o.place()] = o
	}
}

// hasRoot reports whether a device has a root qdisc other than the kernel's default.
func (d *differ) hasRoot(device string) bool {
	isRoot := func(o Object) bool { return o.Type == Qdisc && o.Device == device && o.Parent == rootParent }
	return slices.ContainsFunc(d.ours, isRoot) || slices.ContainsFunc(d.foreign, isRoot)
}

// forget notes that the objects at some places are gone.
func (d *differ) forget(gone func(place) bool) {
	for p := range d.have {
		if gone(p) {
			delete(d.have, p)
		}
	}
}

// moveClasses deletes classes that have another parent in the plan, and everything below them:
// HTB cannot move a class. Filters go first, since they refer to classes.
func (d *differ) moveClasses() {
	gone := map[place]bool{}
	for _, o := range d.want {
		if was, there := d.have[o.place()]; there && o.Type == Class && was.Parent != o.Parent {
			gone[o.place()] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, o := range d.ours { // in no order: a child may come before its parent
		for p := o; p.Type == Class; {
			if gone[p.place()] {
				gone[o.place()] = true
				break
			}
			above, there := d.have[place{Class, p.Device, p.Parent, 0, Pref{}}]
			if !there {
				break
			}
			p = above
		}
	}
	devices := map[string]bool{}
	for p := range gone {
		devices[p.device] = true
	}
	for device := range devices {
		for _, s := range slots {
			d.dropList(listID{device, s})
		}
	}
	for _, o := range d.bottomUp() {
		if gone[o.place()] {
			d.do(del, o)
			delete(d.have, o.place())
			d.forget(func(p place) bool { return p.typ == Qdisc && p.device == o.Device && p.handle>>16 == o.Handle&0xffff })
		}
	}
}

// bottomUp returns our classes in the kernel, children before their parents.
func (d *differ) bottomUp() (all []Object) {
	for _, o := range d.ours {
		if o.Type == Class {
			all = append(all, o)
		}
	}
	depth := depths(d.have, all)
	slices.SortStableFunc(all, func(a, b Object) int { return cmp.Compare(depth[b.place()], depth[a.place()]) })
	return all
}

// classOf returns the class with a handle, if it is still there.
func (d *differ) classOf(device string, h Handle) (Object, bool) {
	o, there := d.have[place{Class, device, h, 0, Pref{}}]
	return o, there
}

// surplusQueues deletes queues that the plan does not have below their class, if the class
// stays. If the plan has another queue there, that one replaces it later.
func (d *differ) surplusQueues() {
	type seat struct {
		device string
		parent Handle
	}
	seated, planned := map[seat]bool{}, map[place]Object{}
	for _, o := range d.want {
		if o.Type == Qdisc {
			seated[seat{o.Device, o.Parent}] = true
			planned[o.place()] = o
		}
	}
	for _, o := range d.ours {
		_, there := d.have[o.place()]
		if o.Type != Qdisc || !there || o.Parent == rootParent || o.Parent == ingressParent {
			continue
		}
		p, wanted := planned[o.place()]
		_, stays := d.classOf(o.Device, o.Parent)
		if wanted && p.Parent != o.Parent || !wanted && stays && !seated[seat{o.Device, o.Parent}] {
			d.do(del, o)
			delete(d.have, o.place())
		}
	}
}

// classes adds and changes classes and queues. A class that still has children gets no
// queue; it gets it after the next comparison, when they are gone.
func (d *differ) classes() {
	parents := map[place]bool{}
	for _, o := range d.have {
		if o.Type == Class {
			parents[place{Class, o.Device, o.Parent, 0, Pref{}}] = true
		}
	}
	for _, o := range d.want {
		if o.Type != Class && o.Type != Qdisc {
			continue
		}
		was, there := d.have[o.place()]
		switch {
		case there && was == o:
		case o.Type == Qdisc && parents[place{Class, o.Device, o.Parent, 0, Pref{}}]:
		case there && was.Kind != o.Kind:
			d.do(del, was)
			d.do(replace, o)
		case there:
			d.do(change, o)
		case o.Type == Qdisc && o.Parent != ingressParent:
			d.do(replace, o) // the queue that HTB gives each class
		default:
			d.do(add, o)
		}
	}
}

// surplus deletes what the plan does not have. Filters are gone by now.
func (d *differ) surplus() {
	for _, o := range d.bottomUp() {
		if _, there := d.have[o.place()]; there && !d.wanted[o.place()] && !d.rootGoes(o) {
			d.do(del, o)
		}
	}
	isSurplus := func(o Object) bool {
		_, there := d.have[o.place()]
		return there && !d.wanted[o.place()]
	}
	for _, o := range d.ours {
		if o.Type == Qdisc && o.Parent == ingressParent && isSurplus(o) && !d.shared {
			d.do(del, o)
		}
	}
	for _, o := range d.ours {
		if o.Type == Qdisc && o.Parent == rootParent && isSurplus(o) && !d.wanted[d.otherRoot(o).place()] {
			d.do(del, o)
		}
	}
	for _, o := range d.ours {
		if o.Kind == "ifb" && isSurplus(o) {
			d.do(del, o)
		}
	}
}

// otherRoot returns our root qdisc of the other kind: TBF for HTB, HTB for TBF.
func (d *differ) otherRoot(o Object) Object {
	if o.Handle == htbHandle {
		o.Handle = tbfHandle
	} else {
		o.Handle = htbHandle
	}
	return o
}
