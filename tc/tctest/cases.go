package tctest

import (
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Case is a request and the answer of a kernel.
type Case struct {
	Type, Flags          int
	Handle, Parent, Info uint32
	Kind                 string
	Options              attrs
	Raw                  []byte        // options that are not attributes
	Want                 syscall.Errno // 0: the kernel does it
}

// String names the case in a test.
func (c Case) String() string {
	return fmt.Sprintf("type %d flags %#x %s %x of %x info %x", c.Type, c.Flags, c.Kind, c.Handle, c.Parent, c.Info)
}

// Request returns the request for a device.
func (c Case) Request(index int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(c.Type, unix.NLM_F_ACK|c.Flags)
	r.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Handle: c.Handle, Parent: c.Parent, Info: c.Info})
	r.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(c.Kind)))
	if options := append(c.Options.bytes(), c.Raw...); len(options) > 0 {
		r.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, options))
	}
	return r
}

// Cases returns requests for a kernel, one after the other, about a device without qdiscs.
// Tests send them to the kernel in memory and to that of the machine.
func Cases() []Case {
	const (
		mk    = unix.NLM_F_CREATE | unix.NLM_F_EXCL
		repl  = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
		root  = netlink.HANDLE_ROOT
		htb   = 0x10000
		list4 = 10<<16 | 0x0008 // preference 10, IPv4
		list5 = 11<<16 | 0x0008
	)
	num := func(n uint32) []byte { return native.AppendUint32(nil, n) }
	tree := attrs{nl.TCA_HTB_INIT: (&nl.TcHtbGlob{Version: 3, Rate2Quantum: 10}).Serialize()}
	rate := func(n uint32) attrs {
		spec := nl.TcRateSpec{Rate: n, Linklayer: nl.LINKLAYER_ETHERNET}
		return attrs{nl.TCA_HTB_PARMS: (&nl.TcHtbCopt{Rate: spec, Ceil: spec, Buffer: 1e6, Cbuffer: 1e6, Quantum: 1514}).Serialize()}
	}
	bucket := attrs{nl.TCA_TBF_PARMS: (&nl.TcTbfQopt{Rate: nl.TcRateSpec{Rate: 1e6, Linklayer: nl.LINKLAYER_ETHERNET}, Limit: 9, Buffer: 1e6}).Serialize()}
	key := func(class, hash, link uint32) attrs {
		m := attrs{nl.TCA_U32_SEL: (&nl.TcU32Sel{Nkeys: 1, Keys: []nl.TcU32Key{{}}}).Serialize()}
		for number, n := range map[int]uint32{nl.TCA_U32_CLASSID: class, nl.TCA_U32_HASH: hash, nl.TCA_U32_LINK: link} {
			if n != 0 {
				m[number] = num(n)
			}
		}
		return m
	}
	buckets := func(n uint32) attrs { return attrs{nl.TCA_U32_DIVISOR: num(n)} }

	qdisc := func(flags int, handle, parent uint32, kind string, options attrs, raw []byte, want syscall.Errno) Case {
		return Case{unix.RTM_NEWQDISC, flags, handle, parent, 0, kind, options, raw, want}
	}
	noQdisc := func(handle, parent uint32, kind string, want syscall.Errno) Case {
		return Case{Type: unix.RTM_DELQDISC, Handle: handle, Parent: parent, Kind: kind, Want: want}
	}
	class := func(flags int, handle, parent uint32, options attrs, want syscall.Errno) Case {
		return Case{unix.RTM_NEWTCLASS, flags, handle, parent, 0, "htb", options, nil, want}
	}
	noClass := func(handle uint32, want syscall.Errno) Case {
		return Case{Type: unix.RTM_DELTCLASS, Handle: handle, Kind: "htb", Want: want}
	}
	filter := func(flags int, handle, info uint32, kind string, options attrs, want syscall.Errno) Case {
		return Case{unix.RTM_NEWTFILTER, flags, handle, htb, info, kind, options, nil, want}
	}
	noFilter := func(handle, info uint32, kind string, want syscall.Errno) Case {
		return Case{Type: unix.RTM_DELTFILTER, Handle: handle, Parent: htb, Info: info, Kind: kind, Want: want}
	}
	return []Case{
		noQdisc(0, root, "htb", unix.EINVAL), // the kernel's default qdisc
		noQdisc(0xffff0000, netlink.HANDLE_INGRESS, "ingress", unix.ENOENT),
		qdisc(0, htb, root, "htb", tree, nil, unix.ENOENT),
		qdisc(mk, htb, root, "nonsense", tree, nil, unix.ENOENT),
		qdisc(mk, htb, root, "htb", nil, nil, unix.EINVAL),
		qdisc(mk, htb+1, root, "htb", tree, nil, unix.EINVAL),
		class(mk, htb+1, htb, rate(1e6), unix.ENOENT),
		filter(mk, 1, list4, "u32", key(0, 0, 0), unix.EINVAL),
		qdisc(mk, htb, root, "htb", tree, nil, 0),
		qdisc(mk, htb, root, "htb", tree, nil, unix.EEXIST),
		qdisc(mk, 0x20000, root, "htb", tree, nil, unix.EEXIST),
		qdisc(0, htb, root, "tbf", bucket, nil, unix.EINVAL),
		noQdisc(0x20000, root, "htb", unix.EINVAL),
		noQdisc(htb, root, "tbf", unix.EINVAL),

		class(0, htb+1, htb, rate(1e6), unix.ENOENT),
		class(mk, htb+1, 0x20000, rate(1e6), unix.EINVAL),
		class(mk, htb+1, htb, nil, unix.EINVAL),
		class(mk, htb+1, htb, rate(0), unix.EINVAL),
		noClass(htb+1, unix.ENOENT),
		class(mk, htb+1, htb, rate(1e6), 0),
		class(mk, htb+1, htb, rate(1e6), unix.EEXIST),
		class(0, htb+1, htb, rate(2e6), 0),
		qdisc(repl, 0x30000, htb+9, "pfifo", nil, num(5), unix.ENOENT),
		qdisc(repl, 0x30000, 0x40001, "pfifo", nil, num(5), unix.ENOENT),
		qdisc(repl, 0x30000, htb+1, "pfifo", nil, num(5), 0),
		qdisc(mk, 0x30000, htb+1, "pfifo", nil, num(5), unix.EEXIST),
		qdisc(0, 0x30000, htb+1, "pfifo", nil, num(6), 0),
		qdisc(0, 0x30000, htb+1, "bfifo", nil, num(6), unix.EINVAL),
		qdisc(repl, 0x30000, htb+1, "pfifo", nil, []byte{1}, unix.EINVAL),
		qdisc(mk, 0x40000, htb+1, "bfifo", nil, num(6), unix.EEXIST),
		qdisc(repl, 0x40000, htb+1, "bfifo", nil, num(6), 0),
		noQdisc(0x30000, htb+1, "pfifo", unix.EINVAL),
		class(mk, htb+2, htb+1, rate(1e6), 0), // its parent loses its queue
		noQdisc(0x40000, htb+1, "bfifo", unix.ENOENT),
		qdisc(repl, 0x30000, htb+1, "pfifo", nil, num(5), unix.EINVAL),
		noClass(htb+1, unix.EBUSY),
		class(mk, htb+3, htb+2, rate(1e6), 0),
		class(mk, htb+4, htb+3, rate(1e6), 0),
		class(mk, htb+5, htb+4, rate(1e6), 0),
		class(mk, htb+6, htb+5, rate(1e6), 0),
		class(mk, htb+7, htb+6, rate(1e6), 0),
		class(mk, htb+8, htb+7, rate(1e6), 0),
		class(mk, htb+9, htb+8, rate(1e6), unix.EINVAL), // too deep
		class(mk, htb+9, htb+0x99, rate(1e6), 0),        // its parent does not exist
		class(mk, htb, htb, rate(1e6), 0),               // with the handle of the qdisc
		class(mk, htb+0xa, htb, rate(1e6), 0),           // below that class, not beside it
		noClass(htb, unix.EBUSY),
		noClass(htb+0xa, 0),
		noClass(htb, 0),

		filter(0, 1, list4, "u32", key(0, 0, 0), unix.ENOENT),
		filter(mk, 1, list4, "nonsense", key(0, 0, 0), unix.ENOENT),
		filter(mk, 1, 10<<16, "u32", key(0, 0, 0), unix.EINVAL),
		filter(mk, 1, list4, "u32", nil, unix.EINVAL),
		filter(mk, 1, list4, "u32", attrs{nl.TCA_U32_CLASSID: num(htb + 8)}, unix.EINVAL),
		noFilter(1, list4, "u32", unix.ENOENT), // failed requests leave no list behind
		filter(mk, 1, list4, "u32", key(htb+8, 0, 0), 0),
		filter(mk, 1, list4, "u32", key(htb+8, 0, 0), unix.ENOSPC),
		filter(mk, 0x80000001, list4, "u32", key(htb+8, 0, 0), unix.EEXIST),
		filter(0, 0x80000002, list4, "u32", key(htb+8, 0, 0), unix.ENOENT),
		filter(0, 0x80000001, list4, "u32", key(htb+8, 0, 0), 0),
		filter(mk, 2, list4, "bpf", key(0, 0, 0), unix.EINVAL),
		filter(mk, 2, 10<<16|0xdd86, "u32", key(0, 0, 0), unix.EINVAL),
		noFilter(0x80000001, list4, "bpf", unix.EINVAL),
		noFilter(0x80000009, list4, "u32", unix.ENOENT),
		noFilter(0x80000001, list5, "u32", unix.ENOENT),
		noClass(htb+8, unix.EBUSY),                          // a filter leads to it
		filter(mk, 2, list4, "u32", key(htb+0x99, 0, 0), 0), // to a class that does not exist

		filter(mk, 3, list4, "u32", key(0, 0x100000, 0), unix.EINVAL),
		filter(mk, 3, list4, "u32", key(0, 0, 0x100000), unix.EINVAL),
		filter(mk, 0x100000, list4, "u32", buckets(257), unix.EINVAL),
		filter(mk, 0x100001, list4, "u32", buckets(16), unix.EINVAL),
		filter(mk, 0x100000, list4, "u32", buckets(16), 0),
		filter(mk, 0x100000, list4, "u32", buckets(16), unix.EEXIST),
		filter(mk, 0x100000, list5, "u32", buckets(16), unix.EEXIST), // lists share the numbers of tables
		filter(mk, 0x100001, list4, "u32", key(0, 0x110000, 0), unix.EINVAL),
		filter(mk, 0x200001, list4, "u32", key(0, 0x102000, 0), unix.EINVAL),
		filter(mk, 0x102001, list4, "u32", key(htb+9, 0x102000, 0), 0),
		filter(mk, 3, list4, "u32", key(0, 0, 0x100001), unix.EINVAL),
		filter(mk, 3, list4, "u32", key(0, 0, 0x80000000), unix.EINVAL),
		filter(mk, 3, list4, "u32", key(0, 0, 0x100000), 0),
		noFilter(0x100000, list4, "u32", unix.EBUSY),
		noFilter(0x80000000, list4, "u32", unix.EINVAL),
		filter(mk, 1, list5, "u32", key(0, 0, 0), 0),
		noFilter(0, list4, "u32", 0), // its tables stay
		filter(mk, 0x100000, list5, "u32", buckets(16), unix.EEXIST),
		noClass(htb+9, unix.EBUSY),
		noFilter(0, list5, "u32", 0), // they go with the last list of u32
		noFilter(0, list5, "u32", unix.ENOENT),
		filter(mk, 1, list4, "bpf", attrs{4: {1, 0}, 5: {6, 0}}, unix.EINVAL),
		filter(mk, 1, list4, "bpf", attrs{4: {1, 0}, 5: {6, 0, 0, 0, 0, 0, 0, 0}}, 0),
		filter(mk, 1, list4, "bpf", attrs{4: {1, 0}, 5: {6, 0, 0, 0, 0, 0, 0, 0}}, unix.EEXIST),
		noFilter(1, list4, "bpf", 0),
		noFilter(1, list4, "bpf", unix.ENOENT),

		qdisc(repl, 0x50000, root, "tbf", bucket, nil, 0), // everything below htb goes with it
		noClass(htb+1, unix.ENOENT),
		{unix.RTM_NEWTFILTER, mk, 1, 0x50000, list4, "u32", key(0, 0, 0), nil, unix.EOPNOTSUPP},
		qdisc(repl, 0x60000, 0x50002, "pfifo", nil, num(7), 0),
		noQdisc(0x60000, 0x50002, "pfifo", 0),
		qdisc(repl, 0x60000, 0x50001, "pfifo", nil, num(7), 0),
		{unix.RTM_NEWTFILTER, mk, 1, 0x60000, list4, "u32", key(0, 0, 0), nil, unix.EINVAL},
		noQdisc(0x50000, root, "tbf", 0),
		noQdisc(0x60000, 0x50001, "pfifo", unix.ENOENT),
		qdisc(mk, 0xffff0000, netlink.HANDLE_INGRESS, "ingress", nil, nil, 0),
		qdisc(mk, 0xffff0000, netlink.HANDLE_INGRESS, "ingress", nil, nil, unix.EEXIST),
		{unix.RTM_NEWTFILTER, mk, 1, 0xffff0000, list4, "u32", key(0, 0, 0), nil, 0},
		noQdisc(0xffff0000, netlink.HANDLE_INGRESS, "ingress", 0),
		noQdisc(0xffff0000, netlink.HANDLE_INGRESS, "ingress", unix.EINVAL),
	}
}
