package tc

import (
	"fmt"

	"shaper/policy"
)

// Handle is the number of a qdisc or a class: 16 bits each of major and minor.
type Handle uint32

// Handles that the kernel gives a meaning.
const (
	rootParent    Handle = 0xffffffff
	ingressParent Handle = 0xfffffff1
	ingressHandle Handle = 0xffff0000
)

// The handles of our root qdiscs. By them they are known after a crash, and told
// from those of others. A qdisc keeps its kind, so that each kind has its own.
const (
	htbHandle Handle = policy.Major << 16
	tbfHandle Handle = (policy.Major + 1) << 16
)

func handleOf(major, minor uint16) Handle { return Handle(major)<<16 | Handle(minor) }

// major returns the handle of the qdisc that a class is in.
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

// MarshalText is String.
func (h Handle) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// Type is what an object of the kernel's is.
type Type string

// The types of objects, in the order in which they are made.
const (
	Link   Type = "link"
	Qdisc  Type = "qdisc"
	Class  Type = "class"
	Filter Type = "filter"
)

// Object is a qdisc, a class or a filter, or what we set of a link. Objects are
// comparable: one that the kernel has is == to that of the plan where nothing is
// to be done.
type Object struct {
	Type   Type
	Device string
	Handle Handle // of a filter of kind u32: its number there, with 0 for the table at its root
	Parent Handle // rootParent for a qdisc or a class that is in no class
	Kind   string // "htb", "pfifo", "u32", ...
	Pref   Pref   // of a filter
	Params Params
}

// Params is what an object is told beyond its place. The values are comparable.
type Params interface {
	options() []byte // for TCA_OPTIONS
	words() string   // as tc(8) takes them
}

// Pref is the place of filters among others, and the protocol they are for: to the
// kernel these are one list.
type Pref struct{ Priority, Protocol uint16 }

// place is what tells objects apart: there is one at a place.
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

// within names what the object is in, as tc(8) takes it.
func (o Object) within() string {
	if o.Type == Class && o.Parent == rootParent {
		return o.Handle.major().String()
	}
	return o.Parent.String()
}

// opaque is what we do not know, and so never equal to what is planned.
type opaque struct{ raw string }

func (o opaque) options() []byte { return []byte(o.raw) }
func (o opaque) words() string   { return "..." }
