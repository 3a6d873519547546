package tctest

import (
	"fmt"
	"slices"
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
	return slices.Concat(rootCases(), classCases(), filterCases(), tableCases(), endCases())
}

// What the cases are made of.
const (
	mk    = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	repl  = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	root  = netlink.HANDLE_ROOT
	htb   = 0x10000
	list4 = 10<<16 | 0x0008 // preference 10, IPv4
	list5 = 11<<16 | 0x0008
)

var (
	htbOptions = attrs{nl.TCA_HTB_INIT: (&nl.TcHtbGlob{Version: 3, Rate2Quantum: 10}).Serialize()}
	tbfOptions = attrs{nl.TCA_TBF_PARMS: (&nl.TcTbfQopt{Rate: nl.TcRateSpec{Rate: 1e6, Linklayer: nl.LINKLAYER_ETHERNET}, Limit: 9, Buffer: 1e6}).Serialize()}
)

// number returns the value of an attribute, or of options that are only that.
func number(n uint32) []byte { return native.AppendUint32(nil, n) }

// htbRate returns the options of a class with a rate.
func htbRate(n uint32) attrs {
	spec := nl.TcRateSpec{Rate: n, Linklayer: nl.LINKLAYER_ETHERNET}
	return attrs{nl.TCA_HTB_PARMS: (&nl.TcHtbCopt{Rate: spec, Ceil: spec, Buffer: 1e6, Cbuffer: 1e6, Quantum: 1514}).Serialize()}
}

// u32Key returns the options of a filter with one key: where it leads to, which bucket it is in, and which table comes
// next; 0: none.
func u32Key(class, hash, link uint32) attrs {
	m := attrs{nl.TCA_U32_SEL: (&nl.TcU32Sel{Nkeys: 1, Keys: []nl.TcU32Key{{}}}).Serialize()}
	for attr, n := range map[int]uint32{nl.TCA_U32_CLASSID: class, nl.TCA_U32_HASH: hash, nl.TCA_U32_LINK: link} {
		if n != 0 {
			m[attr] = number(n)
		}
	}
	return m
}

// u32Divisor returns the options of a table with so many buckets.
func u32Divisor(buckets uint32) attrs { return attrs{nl.TCA_U32_DIVISOR: number(buckets)} }

func newQdisc(flags int, handle, parent uint32, kind string, options attrs, raw []byte, want syscall.Errno) Case {
	return Case{unix.RTM_NEWQDISC, flags, handle, parent, 0, kind, options, raw, want}
}

func delQdisc(handle, parent uint32, kind string, want syscall.Errno) Case {
	return Case{Type: unix.RTM_DELQDISC, Handle: handle, Parent: parent, Kind: kind, Want: want}
}

func newClass(flags int, handle, parent uint32, options attrs, want syscall.Errno) Case {
	return Case{unix.RTM_NEWTCLASS, flags, handle, parent, 0, "htb", options, nil, want}
}

func delClass(handle uint32, want syscall.Errno) Case {
	return Case{Type: unix.RTM_DELTCLASS, Handle: handle, Kind: "htb", Want: want}
}

func newFilter(flags int, handle, info uint32, kind string, options attrs, want syscall.Errno) Case {
	return Case{unix.RTM_NEWTFILTER, flags, handle, htb, info, kind, options, nil, want}
}

func delFilter(handle, info uint32, kind string, want syscall.Errno) Case {
	return Case{Type: unix.RTM_DELTFILTER, Handle: handle, Parent: htb, Info: info, Kind: kind, Want: want}
}

// rootCases are about the qdisc of the device, which is that of the kernel at first.
func rootCases() []Case {
	return []Case{
		delQdisc(0, root, "htb", unix.EINVAL), // the kernel's default qdisc
		delQdisc(0xffff0000, netlink.HANDLE_INGRESS, "ingress", unix.ENOENT),
		newQdisc(0, htb, root, "htb", htbOptions, nil, unix.ENOENT),
		newQdisc(mk, htb, root, "nonsense", htbOptions, nil, unix.ENOENT),
		newQdisc(mk, htb, root, "htb", nil, nil, unix.EINVAL),
		newQdisc(mk, htb+1, root, "htb", htbOptions, nil, unix.EINVAL),
		newClass(mk, htb+1, htb, htbRate(1e6), unix.ENOENT),
		newFilter(mk, 1, list4, "u32", u32Key(0, 0, 0), unix.EINVAL),
		newQdisc(mk, htb, root, "htb", htbOptions, nil, 0),
		newQdisc(mk, htb, root, "htb", htbOptions, nil, unix.EEXIST),
		newQdisc(mk, 0x20000, root, "htb", htbOptions, nil, unix.EEXIST),
		newQdisc(0, htb, root, "tbf", tbfOptions, nil, unix.EINVAL),
		delQdisc(0x20000, root, "htb", unix.EINVAL),
		delQdisc(htb, root, "tbf", unix.EINVAL),
	}
}

// classCases are about the classes of the qdisc htb, and the queues beneath them.
func classCases() []Case {
	return []Case{
		newClass(0, htb+1, htb, htbRate(1e6), unix.ENOENT),
		newClass(mk, htb+1, 0x20000, htbRate(1e6), unix.EINVAL),
		newClass(mk, htb+1, htb, nil, unix.EINVAL),
		newClass(mk, htb+1, htb, htbRate(0), unix.EINVAL),
		delClass(htb+1, unix.ENOENT),
		newClass(mk, htb+1, htb, htbRate(1e6), 0),
		newClass(mk, htb+1, htb, htbRate(1e6), unix.EEXIST),
		newClass(0, htb+1, htb, htbRate(2e6), 0),
		newQdisc(repl, 0x30000, htb+9, "pfifo", nil, number(5), unix.ENOENT),
		newQdisc(repl, 0x30000, 0x40001, "pfifo", nil, number(5), unix.ENOENT),
		newQdisc(repl, 0x30000, htb+1, "pfifo", nil, number(5), 0),
		newQdisc(mk, 0x30000, htb+1, "pfifo", nil, number(5), unix.EEXIST),
		newQdisc(0, 0x30000, htb+1, "pfifo", nil, number(6), 0),
		newQdisc(0, 0x30000, htb+1, "bfifo", nil, number(6), unix.EINVAL),
		newQdisc(repl, 0x30000, htb+1, "pfifo", nil, []byte{1}, unix.EINVAL),
		newQdisc(mk, 0x40000, htb+1, "bfifo", nil, number(6), unix.EEXIST),
		newQdisc(repl, 0x40000, htb+1, "bfifo", nil, number(6), 0),
		delQdisc(0x30000, htb+1, "pfifo", unix.EINVAL),
		newClass(mk, htb+2, htb+1, htbRate(1e6), 0), // its parent loses its queue
		delQdisc(0x40000, htb+1, "bfifo", unix.ENOENT),
		newQdisc(repl, 0x30000, htb+1, "pfifo", nil, number(5), unix.EINVAL),
		delClass(htb+1, unix.EBUSY),
		newClass(mk, htb+3, htb+2, htbRate(1e6), 0),
		newClass(mk, htb+4, htb+3, htbRate(1e6), 0),
		newClass(mk, htb+5, htb+4, htbRate(1e6), 0),
		newClass(mk, htb+6, htb+5, htbRate(1e6), 0),
		newClass(mk, htb+7, htb+6, htbRate(1e6), 0),
		newClass(mk, htb+8, htb+7, htbRate(1e6), 0),
		newClass(mk, htb+9, htb+8, htbRate(1e6), unix.EINVAL), // too deep
		newClass(mk, htb+9, htb+0x99, htbRate(1e6), 0),        // its parent does not exist
		newClass(mk, htb, htb, htbRate(1e6), 0),               // with the handle of the qdisc
		newClass(mk, htb+0xa, htb, htbRate(1e6), 0),           // below that class, not beside it
		delClass(htb, unix.EBUSY),
		delClass(htb+0xa, 0),
		delClass(htb, 0),
	}
}

// filterCases are about the filters of htb, which lead to its classes.
func filterCases() []Case {
	return []Case{
		newFilter(0, 1, list4, "u32", u32Key(0, 0, 0), unix.ENOENT),
		newFilter(mk, 1, list4, "nonsense", u32Key(0, 0, 0), unix.ENOENT),
		newFilter(mk, 1, 10<<16, "u32", u32Key(0, 0, 0), unix.EINVAL),
		newFilter(mk, 1, list4, "u32", nil, unix.EINVAL),
		newFilter(mk, 1, list4, "u32", attrs{nl.TCA_U32_CLASSID: number(htb + 8)}, unix.EINVAL),
		delFilter(1, list4, "u32", unix.ENOENT), // failed requests leave no list behind
		newFilter(mk, 1, list4, "u32", u32Key(htb+8, 0, 0), 0),
		newFilter(mk, 1, list4, "u32", u32Key(htb+8, 0, 0), unix.ENOSPC),
		newFilter(mk, 0x80000001, list4, "u32", u32Key(htb+8, 0, 0), unix.EEXIST),
		newFilter(0, 0x80000002, list4, "u32", u32Key(htb+8, 0, 0), unix.ENOENT),
		newFilter(0, 0x80000001, list4, "u32", u32Key(htb+8, 0, 0), 0),
		newFilter(mk, 2, list4, "bpf", u32Key(0, 0, 0), unix.EINVAL),
		newFilter(mk, 2, 10<<16|0xdd86, "u32", u32Key(0, 0, 0), unix.EINVAL),
		delFilter(0x80000001, list4, "bpf", unix.EINVAL),
		delFilter(0x80000009, list4, "u32", unix.ENOENT),
		delFilter(0x80000001, list5, "u32", unix.ENOENT),
		delClass(htb+8, unix.EBUSY),                               // a filter leads to it
		newFilter(mk, 2, list4, "u32", u32Key(htb+0x99, 0, 0), 0), // to a class that does not exist
	}
}

// tableCases are about the hash tables of u32, and which of them go with which list of filters.
func tableCases() []Case {
	return []Case{
		newFilter(mk, 3, list4, "u32", u32Key(0, 0x100000, 0), unix.EINVAL),
		newFilter(mk, 3, list4, "u32", u32Key(0, 0, 0x100000), unix.EINVAL),
		newFilter(mk, 0x100000, list4, "u32", u32Divisor(257), unix.EINVAL),
		newFilter(mk, 0x100001, list4, "u32", u32Divisor(16), unix.EINVAL),
		newFilter(mk, 0x100000, list4, "u32", u32Divisor(16), 0),
		newFilter(mk, 0x100000, list4, "u32", u32Divisor(16), unix.EEXIST),
		newFilter(mk, 0x100000, list5, "u32", u32Divisor(16), unix.EEXIST), // lists share the numbers of tables
		newFilter(mk, 0x100001, list4, "u32", u32Key(0, 0x110000, 0), unix.EINVAL),
		newFilter(mk, 0x200001, list4, "u32", u32Key(0, 0x102000, 0), unix.EINVAL),
		newFilter(mk, 0x102001, list4, "u32", u32Key(htb+9, 0x102000, 0), 0),
		newFilter(mk, 3, list4, "u32", u32Key(0, 0, 0x100001), unix.EINVAL),
		newFilter(mk, 3, list4, "u32", u32Key(0, 0, 0x80000000), unix.EINVAL),
		newFilter(mk, 3, list4, "u32", u32Key(0, 0, 0x100000), 0),
		delFilter(0x100000, list4, "u32", unix.EBUSY),
		delFilter(0x80000000, list4, "u32", unix.EINVAL),
		newFilter(mk, 1, list5, "u32", u32Key(0, 0, 0), 0),
		delFilter(0, list4, "u32", 0), // its tables stay
		newFilter(mk, 0x100000, list5, "u32", u32Divisor(16), unix.EEXIST),
		delClass(htb+9, unix.EBUSY),
		delFilter(0, list5, "u32", 0), // they go with the last list of u32
		delFilter(0, list5, "u32", unix.ENOENT),
		newFilter(mk, 1, list4, "bpf", attrs{4: {1, 0}, 5: {6, 0}}, unix.EINVAL),
		newFilter(mk, 1, list4, "bpf", attrs{4: {1, 0}, 5: {6, 0, 0, 0, 0, 0, 0, 0}}, 0),
		newFilter(mk, 1, list4, "bpf", attrs{4: {1, 0}, 5: {6, 0, 0, 0, 0, 0, 0, 0}}, unix.EEXIST),
		delFilter(1, list4, "bpf", 0),
		delFilter(1, list4, "bpf", unix.ENOENT),
	}
}

// endCases are about what goes with a qdisc, and about other qdiscs.
func endCases() []Case {
	return []Case{
		newQdisc(repl, 0x50000, root, "tbf", tbfOptions, nil, 0), // everything below htb goes with it
		delClass(htb+1, unix.ENOENT),
		{unix.RTM_NEWTFILTER, mk, 1, 0x50000, list4, "u32", u32Key(0, 0, 0), nil, unix.EOPNOTSUPP},
		newQdisc(repl, 0x60000, 0x50002, "pfifo", nil, number(7), 0),
		delQdisc(0x60000, 0x50002, "pfifo", 0),
		newQdisc(repl, 0x60000, 0x50001, "pfifo", nil, number(7), 0),
		{unix.RTM_NEWTFILTER, mk, 1, 0x60000, list4, "u32", u32Key(0, 0, 0), nil, unix.EINVAL},
		delQdisc(0x50000, root, "tbf", 0),
		delQdisc(0x60000, 0x50001, "pfifo", unix.ENOENT),
		newQdisc(mk, 0xffff0000, netlink.HANDLE_INGRESS, "ingress", nil, nil, 0),
		newQdisc(mk, 0xffff0000, netlink.HANDLE_INGRESS, "ingress", nil, nil, unix.EEXIST),
		{unix.RTM_NEWTFILTER, mk, 1, 0xffff0000, list4, "u32", u32Key(0, 0, 0), nil, 0},
		delQdisc(0xffff0000, netlink.HANDLE_INGRESS, "ingress", 0),
		delQdisc(0xffff0000, netlink.HANDLE_INGRESS, "ingress", unix.EINVAL),
	}
}
