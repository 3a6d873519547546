package tctest

import (
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// unlimited is the GSO size of a new link (GSO_LEGACY_MAX_SIZE).
const unlimited = 65536

// plug adds a device, and returns its index: the one given, or the next one for 0. mu is
// held, but by New.
func (k *Kernel) plug(name, kind string, index int) int {
	if index == 0 {
		index = k.last + 1
	}
	k.last = max(k.last, index)
	k.devices[index] = &device{kernel: k, kind: kind, LinkAttrs: netlink.LinkAttrs{
		Name: name, Index: index, MTU: 1500, GSOMaxSize: unlimited, GSOIPv4MaxSize: unlimited}}
	return index
}

// Plug adds a device, as another program does, and returns its index.
func (k *Kernel) Plug(name, kind string) (index int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	index = k.plug(name, kind, 0)
	k.notifyLink(unix.RTM_NEWLINK, k.devices[index])
	return index
}

// Unplug removes a device, as if its network card were pulled out. It does nothing if there
// is none of that name.
func (k *Kernel) Unplug(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.named(name); d != nil {
		k.remove(d)
	}
}

// remove deletes a device. Filters that move packets to it then lead to no device. mu is
// held.
func (k *Kernel) remove(d *device) {
	delete(k.devices, d.Index)
	for _, other := range k.devices {
		for _, q := range other.qdiscs() {
			q.forget(uint32(d.Index))
		}
	}
	k.notifyLink(unix.RTM_DELLINK, d)
}

// notifyLink puts a message about a device into all feeds. mu is held.
func (k *Kernel) notifyLink(typ uint16, d *device) {
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(d.Index)
	name := nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(d.Name))
	k.notify(typ, append(info.Serialize(), name.Serialize()...))
}

// notFound is the error for a link that does not exist, as of package netlink.
type notFound struct{ name string }

func (e notFound) Error() string { return "Link " + e.name + " not found" }

// As reports that the error is a netlink.LinkNotFoundError, which only package netlink can
// make.
func (e notFound) As(target any) bool {
	_, ok := target.(*netlink.LinkNotFoundError)
	return ok
}

// LinkByName returns a copy of a device, or a netlink.LinkNotFoundError.
func (k *Kernel) LinkByName(name string) (l netlink.Link, err error) {
	err = k.answer(Request{Type: unix.RTM_GETLINK, Device: name}, func() error {
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
	err = k.answer(Request{Type: unix.RTM_GETLINK}, func() error {
		for _, d := range k.devices {
			all = append(all, &netlink.GenericLink{LinkAttrs: d.LinkAttrs, LinkType: d.kind})
		}
		return nil
	})
	return all, err
}

// LinkAdd adds a device. Like netlink.Handle it asks for the index in l, if it is not 0, and
// sets it to that of the device.
func (k *Kernel) LinkAdd(l netlink.Link) error {
	attrs := l.Attrs()
	return k.answer(Request{Type: unix.RTM_NEWLINK, Device: attrs.Name, Kind: l.Type()}, func() error {
		switch {
		case k.named(attrs.Name) != nil || k.devices[attrs.Index] != nil:
			return unix.EEXIST
		case k.Lacks[l.Type()]:
			return refuse(unix.EOPNOTSUPP, "Unknown device type")
		}
		attrs.Index = k.plug(attrs.Name, l.Type(), attrs.Index)
		k.notifyLink(unix.RTM_NEWLINK, k.devices[attrs.Index])
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

// LinkSetGSOMaxSize sets both sizes, as Linux does for sizes that IPv4 allows. Like Linux
// (do_setlink in net/core/rtnetlink.c) it notifies nobody.
func (k *Kernel) LinkSetGSOMaxSize(l netlink.Link, size int) error {
	return k.changeLink(unix.RTM_SETLINK, l, func(d *device) {
		d.GSOMaxSize = uint32(size)
		if size <= unlimited {
			d.GSOIPv4MaxSize = uint32(size)
		}
	})
}

// LinkSetGSOIPv4MaxSize sets the size for IPv4. It notifies nobody.
func (k *Kernel) LinkSetGSOIPv4MaxSize(l netlink.Link, size int) error {
	return k.changeLink(unix.RTM_SETLINK, l, func(d *device) { d.GSOIPv4MaxSize = uint32(size) })
}

// setLink changes a device, and notifies the feeds.
func (k *Kernel) setLink(typ uint16, l netlink.Link, set func(*device)) error {
	return k.changeLink(typ, l, func(d *device) {
		if set(d); typ != unix.RTM_DELLINK {
			k.notifyLink(unix.RTM_NEWLINK, d)
		}
	})
}

// changeLink changes a device. Like netlink.Handle it looks the device up by name if l has no
// index, and then sets the index in l.
func (k *Kernel) changeLink(typ uint16, l netlink.Link, set func(*device)) error {
	attrs := l.Attrs()
	return k.answer(Request{Type: typ, Device: attrs.Name, Kind: l.Type()}, func() error {
		if named := k.named(attrs.Name); attrs.Index == 0 && named != nil {
			attrs.Index = named.Index
		}
		d, there := k.devices[attrs.Index]
		if !there {
			return unix.ENODEV
		}
		set(d)
		return nil
	})
}
