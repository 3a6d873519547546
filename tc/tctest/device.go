package tctest

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// device is a network device, with what is queued there.
type device struct {
	netlink.LinkAttrs
	kernel        *Kernel // the one that has it
	kind          string
	root, ingress *qdisc // nil: the kernel's own, or none
	hadIngress    bool   // then the kernel has one of its own there
}

func (d *device) Attrs() *netlink.LinkAttrs { return &d.LinkAttrs }

func (d *device) Type() string { return d.kind }

var _ netlink.Link = &device{}

// named returns the device of a name, or nil.
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
	if d, there := k.devices[int(index)]; there {
		return d.Name
	}
	return ""
}

// qdisc is one that somebody has made: those that the kernel makes itself have no handle,
// and are only told of in dumps.
type qdisc struct {
	handle, parent uint32
	kind           string
	raw            []byte            // options
	classes        map[uint32]*class // of htb
	inner          *qdisc            // of tbf
	block          block
	counted        Counters
}

// class is one of htb.
type class struct {
	handle, parent uint32
	parms          nl.TcHtbCopt
	others         attrs  // options beside the parameters
	leaf           *qdisc // nil: the kernel's own
	counted        Counters
}

// minor is the part of a handle that names a class.
const minor = 0xffff

// qdiscs returns those of a device: parents before their children.
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

// qdisc returns the one of a handle, or nil.
func (d *device) qdisc(handle uint32) *qdisc {
	for _, q := range d.qdiscs() {
		if q.handle == handle {
			return q
		}
	}
	return nil
}

// class returns the one of a handle, or nil.
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
