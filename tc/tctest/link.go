package tctest

import (
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// unlimited is what the kernel gives a link (GSO_LEGACY_MAX_SIZE).
const unlimited = 65536

// plug makes a device, and returns its index: the next one, if 0 is asked for.
func (k *Kernel) plug(name, kind string, index int) int {
	if index == 0 {
		index = k.last + 1
	}
	k.last = max(k.last, index)
	k.devices[index] = &device{kernel: k, kind: kind, LinkAttrs: netlink.LinkAttrs{
		Name: name, Index: index, MTU: 1500, GSOMaxSize: unlimited, GSOIPv4MaxSize: unlimited}}
	return index
}

// Plug adds a device of somebody else, and returns its index.
func (k *Kernel) Plug(name, kind string) (index int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	index = k.plug(name, kind, 0)
	k.tellLink(unix.RTM_NEWLINK, k.devices[index])
	return index
}

// Unplug removes a device, as a network card that is pulled out does.
func (k *Kernel) Unplug(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.named(name); d != nil {
		k.remove(d)
	}
}

// remove deletes a device. What moves packets to it has no device any more.
func (k *Kernel) remove(d *device) {
	delete(k.devices, d.Index)
	for _, other := range k.devices {
		for _, q := range other.qdiscs() {
			q.forget(uint32(d.Index))
		}
	}
	k.tellLink(unix.RTM_DELLINK, d)
}

// tellLink tells who listens of a device.
func (k *Kernel) tellLink(typ uint16, d *device) {
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(d.Index)
	name := nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(d.Name))
	k.tell(typ, append(info.Serialize(), name.Serialize()...))
}

// notFound is an error that package netlink says to be one of its own.
type notFound struct{ name string }

func (e notFound) Error() string { return "Link " + e.name + " not found" }

func (e notFound) As(target any) bool {
	_, ok := target.(*netlink.LinkNotFoundError)
	return ok
}

// LinkByName returns a copy of a device.
func (k *Kernel) LinkByName(name string) (l netlink.Link, err error) {
	err = k.ask(Request{Type: unix.RTM_GETLINK, Device: name}, func() error {
		d := k.named(name)
		if d == nil {
			return notFound{name}
		}
		l = &netlink.GenericLink{LinkAttrs: d.LinkAttrs, LinkType: d.kind}
		return nil
	})
	return l, err
}

// LinkList returns copies of all devices.
func (k *Kernel) LinkList() (all []netlink.Link, err error) {
	err = k.ask(Request{Type: unix.RTM_GETLINK}, func() error {
		for _, d := range k.devices {
			all = append(all, &netlink.GenericLink{LinkAttrs: d.LinkAttrs, LinkType: d.kind})
		}
		return nil
	})
	return all, err
}

// LinkAdd makes a device. Like netlink.Handle it asks for the index that the link has, and
// gives it that of the device.
func (k *Kernel) LinkAdd(l netlink.Link) error {
	attrs := l.Attrs()
	return k.ask(Request{Type: unix.RTM_NEWLINK, Device: attrs.Name, Kind: l.Type()}, func() error {
		switch {
		case k.named(attrs.Name) != nil || k.devices[attrs.Index] != nil:
			return unix.EEXIST
		case k.Lacks[l.Type()]:
			return refuse(unix.EOPNOTSUPP, "Unknown device type")
		}
		attrs.Index = k.plug(attrs.Name, l.Type(), attrs.Index)
		k.tellLink(unix.RTM_NEWLINK, k.devices[attrs.Index])
		return nil
	})
}

// LinkDel deletes a device.
func (k *Kernel) LinkDel(l netlink.Link) error {
	return k.setLink(unix.RTM_DELLINK, l, k.remove)
}

// LinkSetUp brings a device up.
func (k *Kernel) LinkSetUp(l netlink.Link) error {
	return k.setLink(unix.RTM_SETLINK, l, func(d *device) { d.Flags |= net.FlagUp })
}

// LinkSetDown takes a device down.
func (k *Kernel) LinkSetDown(l netlink.Link) error {
	return k.setLink(unix.RTM_SETLINK, l, func(d *device) { d.Flags &^= net.FlagUp })
}

// LinkSetGSOMaxSize sets both sizes, as Linux does for those that IPv4 may have.
func (k *Kernel) LinkSetGSOMaxSize(l netlink.Link, size int) error {
	return k.setLink(unix.RTM_SETLINK, l, func(d *device) {
		d.GSOMaxSize = uint32(size)
		if size <= unlimited {
			d.GSOIPv4MaxSize = uint32(size)
		}
	})
}

// LinkSetGSOIPv4MaxSize sets the size for IPv4.
func (k *Kernel) LinkSetGSOIPv4MaxSize(l netlink.Link, size int) error {
	return k.setLink(unix.RTM_SETLINK, l, func(d *device) { d.GSOIPv4MaxSize = uint32(size) })
}

// setLink changes a device, and tells who listens. Like netlink.Handle it goes by the name
// if the link has no index, and then gives it that of the device.
func (k *Kernel) setLink(typ uint16, l netlink.Link, set func(*device)) error {
	attrs := l.Attrs()
	return k.ask(Request{Type: typ, Device: attrs.Name, Kind: l.Type()}, func() error {
		if named := k.named(attrs.Name); attrs.Index == 0 && named != nil {
			attrs.Index = named.Index
		}
		d, there := k.devices[attrs.Index]
		if !there {
			return unix.ENODEV
		}
		set(d)
		if typ != unix.RTM_DELLINK {
			k.tellLink(unix.RTM_NEWLINK, d)
		}
		return nil
	})
}
