package tc

import (
	"fmt"
	"strconv"
	"strings"
)

// Device is what a plan depends on beside the policy.
type Device struct {
	Name  string
	Index int // names the ifb that shapes what arrives
	MTU   int
	Kinds Kinds
}

// Kinds are the qdiscs and filters that the kernel has beyond htb, tbf, pfifo, bfifo and
// u32.
type Kinds struct{ FQCodel, SFQ, Flower bool }

// frame returns the length of the longest frame.
func (d Device) frame() uint64 { return uint64(d.MTU) + 14 }

const mirrorPrefix = "shaper"

// mirror returns the name of the ifb to which what arrives is moved.
func (d Device) mirror() string { return fmt.Sprint(mirrorPrefix, d.Index) }

// IsMirror reports whether a device is one through which we shape what arrives at
// another.
func IsMirror(name string) bool { return strings.HasPrefix(name, mirrorPrefix) }

// linkSizes is what we set of a link: how large packets may be that are cut into
// frames below the qdiscs, of IPv6 and of IPv4.
type linkSizes struct{ GSO, GSO4 uint32 }

func (linkSizes) options() []byte { return nil }

func (s linkSizes) words() string { return fmt.Sprintf("gso_max_size %d", s.GSO) }

// ifb is the device through which what arrives leaves again. While it is down, all of
// that is lost.
type ifb struct{ Down bool }

func (ifb) options() []byte { return nil }
func (ifb) words() string   { return "" }

// noteHandle is a class that no packet is in. Its rates are what the link's sizes
// were before they were changed: there a crash does not lose them, and who deletes
// the root qdisc by hand can read them first.
const noteHandle = htbHandle | 0xfff0

func isNote(o Object) bool { return o.Type == Class && o.Handle == noteHandle }

// noteOf returns the note of what a link had.
func noteOf(had linkSizes) htbClass {
	burst := htbTicks(uint64(max(had.GSO, 1)), anyQuantum)
	return htbClass{Rate: uint64(had.GSO), Ceil: uint64(had.GSO4), Burst: burst, CBurst: burst, Quantum: anyQuantum}
}

// noted returns what a link had.
func (c htbClass) noted() linkSizes { return linkSizes{uint32(c.Rate), uint32(c.Ceil)} }

// Sweep deletes the ifb devices that were made for devices which are gone, and returns
// how many.
func (k *Kernel) Sweep() (deleted int, err error) {
	all, err := k.conn.LinkList()
	if err != nil {
		return 0, refused("read", "", "links", err)
	}
	indexes := map[int]bool{}
	for _, l := range all {
		indexes[l.Attrs().Index] = true
	}
	for _, l := range all {
		name := l.Attrs().Name
		of, _ := strconv.Atoi(strings.TrimPrefix(name, mirrorPrefix))
		if isOurs := of > 0 && name == (Device{Index: of}).mirror(); l.Type() != "ifb" || !isOurs || indexes[of] {
			continue
		}
		if err := k.conn.LinkDel(l); err != nil && !isGone(err) {
			return deleted, refused("delete", name, "ifb", err)
		}
		deleted++
	}
	return deleted, nil
}
