package tc

import (
	"fmt"

	"shaper/policy"
)

// Handle is the number of a qdisc or a class: 16 bits each of major and minor.
type Handle uint32

// Handles with a meaning to the kernel.
const (
	rootParent    Handle = 0xffffffff
	ingressParent Handle = 0xfffffff1
	ingressHandle Handle = 0xffff0000
)

// The handles of our root qdiscs. By them we know our qdiscs after a crash, and tell them
// from those of others. Each kind has its own, since a qdisc cannot change its kind.
const (
	htbHandle Handle = policy.Major << 16
	tbfHandle Handle = (policy.Major + 1) << 16
)

func handleOf(major, minor uint16) Handle { return Handle(major)<<16 | Handle(minor) }

// major returns the handle of the qdisc that a class belongs to.
func (h Handle) major() Handle { return h &^ 0xffff }

// String prints the handle as tc(8) does: "5ca0:", "5ca0:1f", "root".
func (h Handle) String() string {
	switch {
	case h == rootParent:
		return "root"
	case h == ingressParent:
		return "ingress"
	case h&0xffff == 0:
		return fmt.Sprintf("%x:", uint32(h>>16))
	}
	return fmt.Sprintf("%x:%x", uint32(h>>16), uint32(h&0xffff))
}

// MarshalText returns the text of String.
func (h Handle) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// Type is a type of objects in the kernel.
type Type string

// The types of objects, in the order in which Apply makes them.
const (
	Link   Type = "link"
	Qdisc  Type = "qdisc"
	Class  Type = "class"
	Filter Type = "filter"
)

// Object is a qdisc, a class or a filter, or the settings of a link. Objects are
// comparable: if the kernel's object == that of the plan, there is nothing to do.
type Object struct {
	Type   Type
	Device string
	Handle Handle // of a u32 filter: table, bucket and place, where the root table is 0; of a link: 0
	Parent Handle // rootParent for a root qdisc, and for a class below no other class
	Kind   string // "htb", "pfifo", "u32", ...; of a link: "ifb", or "sizes" of its packets
	Pref   Pref   // of a filter
	Params Params
}

// Params are the parameters of an object. Values are comparable.
type Params interface {
	options() []byte // as TCA_OPTIONS; nil: none
	words() string   // as tc(8) takes them
}

// Pref is the preference of filters, the smallest first, and the protocol they are for: an
// EtherType in the byte order of the host (ETH_P_IP). To the kernel, all filters of a qdisc with
// the same Pref are one list.
type Pref struct{ Priority, Protocol uint16 }

// place identifies an object: there is at most one at each place.
type place struct {
	typ    Type
	device string
	handle Handle
	parent Handle // of a filter: its qdisc
	pref   Pref
}

func (o Object) place() place {
	p := place{o.Type, o.Device, o.Handle, 0, o.Pref}
	if o.Type == Filter {
		p.parent = o.Parent
	}
	return p
}

// String names the object as errors do.
func (o Object) String() string {
	switch o.Type {
	case Link:
		return o.Kind
	case Filter:
		return fmt.Sprintf("filter %s pref %d %s of %s", o.Kind, o.Pref.Priority, u32Handle(o.Handle), o.Parent)
	}
	return fmt.Sprintf("%s %s %s", o.Type, o.Kind, o.Handle)
}

// within returns the parent of the object, as tc(8) takes it.
func (o Object) within() string {
	if o.Type == Class && o.Parent == rootParent {
		return o.Handle.major().String()
	}
	return o.Parent.String()
}

// opaque are parameters that we cannot read. They never equal those of a plan.
type opaque struct{ raw string }

func (o opaque) options() []byte { return []byte(o.raw) }
func (o opaque) words() string   { return "..." }
