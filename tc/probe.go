package tc

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Device returns what a plan has to know of a device.
func (k *Kernel) Device(name string) (Device, error) {
	l, err := k.link(name)
	if err != nil {
		return Device{}, err
	}
	kinds, err := k.Kinds()
	if err != nil {
		return Device{}, err
	}
	return Device{Name: name, Index: l.Attrs().Index, MTU: l.Attrs().MTU, Kinds: kinds}, nil
}

// Kinds returns which qdiscs and filters the kernel has. It asks for each with options
// that are cut short: a kernel that knows the kind refuses the options, one that does not
// knows no such kind, and nothing is made.
func (k *Kernel) Kinds() (Kinds, error) {
	if k.kinds != nil {
		return *k.kinds, nil
	}
	var kinds Kinds
	lo, err := k.link("lo")
	if err != nil {
		return kinds, err
	}
	for kind, has := range map[string]*bool{"fq_codel": &kinds.FQCodel, "sfq": &kinds.SFQ} {
		msg := &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(lo.Attrs().Index), Handle: uint32(probeHandle), Parent: uint32(rootParent)}
		if *has, err = k.knows(unix.RTM_NEWQDISC, unix.NLM_F_REPLACE, msg, kind); err != nil {
			return kinds, refused("probe", "lo", "qdisc "+kind, err)
		}
	}
	if kinds.Flower, err = k.probeFlower(); err != nil {
		return kinds, refused("probe", probeDevice, "filter flower", err)
	}
	k.kinds = &kinds
	return kinds, nil
}

const (
	probeHandle Handle = (0x5ca0 + 2) << 16
	probeDevice        = "shprobe0"
)

// malformed are options that each kind refuses: a number of one byte, a structure of
// none, an address of one byte.
var malformed = map[string][]byte{
	"fq_codel": attr(nil, nl.TCA_FQ_CODEL_LIMIT, []byte{1}),
	"sfq":      {0},
	"flower":   attr(nil, nl.TCA_FLOWER_KEY_IPV6_SRC, []byte{1}),
}

// knows reports whether the kernel knows a kind.
func (k *Kernel) knows(proto, flags int, msg *nl.TcMsg, kind string) (bool, error) {
	r := request(proto, unix.NLM_F_CREATE|unix.NLM_F_ACK|flags, msg)
	r.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	r.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, malformed[kind]))
	_, err := k.conn.Execute(r)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, err
}

// probeFlower asks for a filter where one may be: under a qdisc with classes, which a
// device of our own has for the moment.
func (k *Kernel) probeFlower() (has bool, err error) {
	if err := k.addProbe(); errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil // there is no ifb: u32 does
	} else if err != nil {
		return false, err
	}
	l, err := k.link(probeDevice)
	if err != nil {
		return false, err
	}
	defer func() {
		delete(k.indexes, probeDevice)
		err = errors.Join(err, k.conn.LinkDel(l))
	}()
	root := Object{Type: Qdisc, Device: probeDevice, Handle: htbHandle, Parent: rootParent, Kind: "htb", Params: ourRoot}
	if err := k.send(op{replace, root}, nil); err != nil {
		return false, err
	}
	msg := &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(l.Attrs().Index), Parent: uint32(htbHandle), Info: 1<<16 | uint32(nl.Swap16(unix.ETH_P_IPV6))}
	return k.knows(unix.RTM_NEWTFILTER, unix.NLM_F_EXCL, msg, "flower")
}

// crashed is how old a device of a probe has to become to be what a crash has left.
const crashed = time.Second

// addProbe makes the device of a probe. Another process that probes has it for some
// milliseconds, and is waited for. Each attempt has a link of its own: package netlink
// writes the index of the device that it finds into the link.
func (k *Kernel) addProbe() error {
	began := time.Now()
	for {
		link := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: probeDevice, TxQLen: -1}}
		err := k.conn.LinkAdd(link)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		if time.Since(began) < crashed {
			time.Sleep(time.Millisecond)
			continue
		}
		if err := k.conn.LinkDel(link); err != nil && !isGone(err) {
			return err
		}
		began = time.Now()
	}
}
