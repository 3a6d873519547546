// Package tctest has a kernel in memory, for tests of package tc and of what uses it:
// without root, and without a kernel that has what is tested.
//
// It keeps devices, qdiscs, classes and filters, and it speaks the kernel's wire format.
// What the kernel refuses, it refuses with the same error; where others change things,
// answers get lost or a process dies, is for [Kernel.Between] to say. It knows the kinds
// htb, tbf, pfifo, bfifo, fq_codel, sfq, ingress and clsact; u32, flower, bpf and mirred.
// It moves no packets. Test TestKernelIsAsTheFake holds it against the kernel of the
// machine.
package tctest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Kernel is a kernel in memory, with one network namespace. It is a tc.Conn, of which
// any number of goroutines may use one at the same time.
type Kernel struct {
	// Between stands between a request and the kernel. It calls do, or does not; what it
	// returns is the answer. It may use the kernel itself. nil: it calls do.
	Between func(r Request, do func() error) error
	// Lacks are the kinds that the kernel has not: of qdiscs, filters and links.
	Lacks map[string]bool
	// Grace is how long a table of u32 stays in use after the last link to it has gone.
	Grace time.Duration

	mu      sync.Mutex
	devices map[int]*device
	last    int // index of a device
	feeds   map[*Feed]bool
}

// New returns a kernel with a loopback device and some others.
func New(devices ...string) *Kernel {
	k := &Kernel{devices: map[int]*device{}, feeds: map[*Feed]bool{}}
	for _, name := range append([]string{"lo"}, devices...) {
		k.plug(name, "veth", 0)
	}
	return k
}

// Request is what is asked of the kernel.
type Request struct {
	Type           uint16 // unix.RTM_NEWQDISC and its kin; of links too
	Device, Kind   string
	Handle, Parent uint32

	flags    uint16
	info     uint32
	options  attrs
	raw      []byte // the options
	hasInner bool   // there are options
}

// IsChange reports whether a request may change something.
func (r Request) IsChange() bool {
	return !slices.Contains([]uint16{unix.RTM_GETLINK, unix.RTM_GETQDISC, unix.RTM_GETTCLASS, unix.RTM_GETTFILTER}, r.Type)
}

func (r Request) has(flag uint16) bool { return r.flags&flag == flag }

// is returns an error unless a kind is that of the request.
func (r Request) is(kind, message string) error {
	if r.Kind != "" && r.Kind != kind {
		return refuse(unix.EINVAL, message)
	}
	return nil
}

// refuse returns an error as package nl does: with the kernel's own words behind it.
func refuse(errno syscall.Errno, words string) error {
	return fmt.Errorf("%w: %s", errno, words)
}

// ask has a request answered, with Between before it.
func (k *Kernel) ask(r Request, do func() error) error {
	locked := func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		return do()
	}
	if k.Between == nil {
		return locked()
	}
	return k.Between(r, locked)
}

// Execute answers a request about qdiscs, classes or filters.
func (k *Kernel) Execute(request *nl.NetlinkRequest) (replies [][]byte, err error) {
	body := request.Serialize()[unix.SizeofNlMsghdr:]
	msg := nl.DeserializeTcMsg(body)
	all := parse(body[msg.Len():])
	r := Request{Type: request.Type, Kind: all.text(nl.TCA_KIND), Handle: msg.Handle, Parent: msg.Parent,
		flags: request.Flags, info: msg.Info, options: parse(all[nl.TCA_OPTIONS]), raw: all[nl.TCA_OPTIONS]}
	_, r.hasInner = all[nl.TCA_OPTIONS]
	index := int(msg.Ifindex)
	r.Device = k.NameOf(uint32(index))
	err = k.ask(r, func() (err error) {
		d, there := k.devices[index]
		if r.IsChange() {
			if !there {
				return refuse(unix.ENODEV, "Cannot find device")
			}
			return k.change(d, r)
		}
		replies = k.dump(d, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return replies, nil
}

// change makes a change, and tells who listens.
func (k *Kernel) change(d *device, r Request) error {
	does := map[uint16]func(*device, Request) error{
		unix.RTM_NEWQDISC: k.newQdisc, unix.RTM_DELQDISC: k.delQdisc,
		unix.RTM_NEWTCLASS: k.newClass, unix.RTM_DELTCLASS: k.delClass,
		unix.RTM_NEWTFILTER: k.newFilter, unix.RTM_DELTFILTER: k.delFilter,
	}
	do, known := does[r.Type]
	if !known {
		return unix.EOPNOTSUPP
	}
	if err := do(d, r); err != nil {
		return err
	}
	k.tell(r.Type, (&nl.TcMsg{Ifindex: int32(d.Index), Handle: r.Handle, Parent: r.Parent, Info: r.info}).Serialize())
	return nil
}

// dump returns what there is. Of qdiscs the kernel tells those of all devices.
func (k *Kernel) dump(d *device, r Request) (replies [][]byte) {
	switch {
	case r.Type == unix.RTM_GETQDISC:
		for _, index := range slices.Sorted(maps.Keys(k.devices)) {
			replies = append(replies, k.devices[index].dumpQdiscs()...)
		}
	case d == nil:
	case r.Type == unix.RTM_GETTCLASS:
		replies = d.dumpClasses()
	case r.Type == unix.RTM_GETTFILTER:
		replies = k.dumpFilters(d, r.Parent)
	}
	return replies
}

// Close leaves the kernel as it is.
func (k *Kernel) Close() {}

var _ netlink.Link = &device{}
