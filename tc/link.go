package tc

import (
	"fmt"
	"strconv"
	"strings"
)

// Device is what a plan depends on besides the policy.
type Device struct {
	Name  string
	Index int // part of the name of the ifb
	MTU   int // bytes
	Kinds Kinds
}

// Kinds says which qdiscs and filters the kernel has besides htb, tbf, pfifo, bfifo and
// u32, which a plan always needs.
type Kinds struct{ FQCodel, SFQ, Flower bool }

// frame returns the length of the longest frame, in bytes.
func (d Device) frame() uint64 { return uint64(d.MTU) + 14 }

const mirrorPrefix = "shaper"

// mirror returns the name of the ifb that shapes what arrives at the device.
func (d Device) mirror() string { return fmt.Sprint(mirrorPrefix, d.Index) }

// IsMirror reports whether a device has a name like our ifb devices.
func IsMirror(name string) bool { return strings.HasPrefix(name, mirrorPrefix) }

// linkSizes are the largest packets that may pass the qdiscs of a link uncut, in bytes: of
// IPv6 and others, and of IPv4. Below the qdiscs they are cut into frames (GSO).
type linkSizes struct{ GSO, GSO4 uint32 }

func (linkSizes) options() []byte { return nil }

func (s linkSizes) words() string { return fmt.Sprintf("gso_max_size %d", s.GSO) }

// ifb is the device that shapes what arrives: the packets go out through it. While it is
// down, they are lost.
type ifb struct{ Down bool }

func (ifb) options() []byte { return nil }
func (ifb) words() string   { return "" }

// noteHandle is the handle of a class without packets. Its rates note the packet sizes that
// the link had before we changed them. So the sizes survive a crash, and can be read before
// somebody deletes the root qdisc by hand.
const noteHandle = htbHandle | 0xfff0

func isNote(o Object) bool { return o.Type == Class && o.Handle == noteHandle }

// noteOf returns the note of the sizes that a link had.
func noteOf(had linkSizes) htbClass {
	burst := htbTicks(uint64(max(had.GSO, 1)), anyQuantum)
	return htbClass{Rate: uint64(had.GSO), Ceil: uint64(had.GSO4), Burst: burst, CBurst: burst, Quantum: anyQuantum}
}

// noted returns the sizes that a note holds.
func (c htbClass) noted() linkSizes { return linkSizes{uint32(c.Rate), uint32(c.Ceil)} }

// Sweep deletes our ifb devices whose device is gone. It returns how many it has deleted.
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
