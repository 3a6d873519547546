package tc

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Device returns what a plan must know of a device. If there is none of that name, the
// cause of the error is ErrNoDevice.
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

// Kinds returns which qdiscs and filters the kernel has. It asks for each kind with options
// that are cut short. A kernel that has the kind refuses the options, another one refuses
// the kind; neither makes anything. The first answer is kept.
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

// malformed are options that the kinds refuse: a number of one byte, a structure of one, an
// address of one.
var malformed = map[string][]byte{
	"fq_codel": attr(nil, nl.TCA_FQ_CODEL_LIMIT, []byte{1}),
	"sfq":      {0},
	"flower":   attr(nil, nl.TCA_FLOWER_KEY_IPV6_SRC, []byte{1}),
}

// knows reports whether the kernel has a kind of qdisc or filter.
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

// probeFlower asks for a flower filter. A filter needs a qdisc with classes, so probeFlower
// makes a device with one for the moment.
func (k *Kernel) probeFlower() (has bool, err error) {
	if err := k.addProbe(); errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil // without ifb we cannot ask; filters of u32 will do
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

// crashed is how long the device of one probe may exist. After that, a crash must have left
// it behind.
const crashed = time.Second

// addProbe makes the device of a probe. If another process is probing, it has the device
// for some milliseconds, and addProbe waits. Several may have one after the other. Each device
// has an index of its own, by which addProbe deletes only the one that a crash has left behind.
func (k *Kernel) addProbe() error {
	index, since := 0, time.Time{} // of the device that is in the way
	for {
		err := k.conn.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: probeDevice, TxQLen: -1}})
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		switch other, err := k.conn.LinkByName(probeDevice); {
		case err != nil && !isGone(err):
			return err
		case err != nil:
			continue
		case other.Attrs().Index != index:
			index, since = other.Attrs().Index, time.Now()
		case time.Since(since) >= crashed:
			if err := k.conn.LinkDel(other); err != nil && !isGone(err) {
				return err
			}
			continue
		}
		time.Sleep(time.Millisecond)
	}
}
