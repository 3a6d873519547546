package tctest

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// device is a network device with its qdiscs. The kernel's mu guards it, and everything
// below it: qdiscs, classes and filters.
type device struct {
	netlink.LinkAttrs
	kernel        *Kernel // that has the device
	kind          string
	root, ingress *qdisc // nil: nobody has made one, or somebody has deleted it
	hadIngress    bool   // somebody has made an ingress qdisc. Once it is deleted, Linux has a default one in its place
}

var _ netlink.Link = &device{}

// Attrs implements netlink.Link.
func (d *device) Attrs() *netlink.LinkAttrs { return &d.LinkAttrs }

// Type implements netlink.Link.
func (d *device) Type() string { return d.kind }

// named returns the device with a name, or nil. mu is held.
func (k *Kernel) named(name string) *device {
	for _, d := range k.devices {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// NameOf returns the name of a device; "" if there is none.
func (k *Kernel) NameOf(index uint32) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d, found := k.devices[int(index)]; found {
		return d.Name
	}
	return ""
}

// qdisc is a qdisc that somebody has made. The kernel's default ones have no handle, and
// exist only in dumps.
type qdisc struct {
	handle, parent uint32
	kind           string
	raw            []byte            // its options, for a dump
	classes        map[uint32]*class // only of htb; by handle
	inner          *qdisc            // only of tbf: the queue in it
	block          block             // its filters
	counted        Counters
}

// class is a class of htb.
type class struct {
	handle, parent uint32
	parms          nl.TcHtbCopt // a dump has these in place of the TCA_HTB_PARMS of options
	options        attrs        // as the request had them
	leaf           *qdisc       // nil: the kernel's default
	counted        Counters
}

// minor is the mask of the part of a handle that names a class. The other part names its qdisc.
const minor = 0xffff

// qdiscs returns the qdiscs of a device, parents before their children.
func (d *device) qdiscs() (all []*qdisc) {
	for _, q := range []*qdisc{d.root, d.ingress} {
		if q == nil {
			continue
		}
		all = append(all, q)
		if q.inner != nil {
			all = append(all, q.inner)
		}
		for _, c := range q.classes {
			if c.leaf != nil {
				all = append(all, c.leaf)
			}
		}
	}
	return all
}

// qdisc returns the qdisc with a handle, or nil.
func (d *device) qdisc(handle uint32) *qdisc {
	for _, q := range d.qdiscs() {
		if q.handle == handle {
			return q
		}
	}
	return nil
}

// class returns the class with a handle, or nil.
func (d *device) class(handle uint32) *class {
	if q := d.qdisc(handle &^ minor); q != nil {
		return q.classes[handle]
	}
	return nil
}

// isParent reports whether a class has children.
func (d *device) isParent(c *class) bool {
	for _, other := range d.qdisc(c.handle &^ minor).classes {
		if other.parent == c.handle {
			return true
		}
	}
	return false
}
