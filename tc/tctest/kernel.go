package tctest

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Kernel is a kernel in memory, with one network namespace. It is a tc.Conn. Any number of
// goroutines may use it at the same time.
type Kernel struct {
	// The test sets these fields while no request is under way.

	// Between stands between a request and the kernel. It may call do, which carries out
	// the request; what Between returns is the answer. It may use the kernel itself. If it is
	// nil, each request is carried out.
	Between func(r Request, do func() error) error
	// Lacks are the kinds that the kernel does not have: qdiscs, filters, links, mirred.
	Lacks map[string]bool
	// Grace is how long a u32 table stays in use after the last link to it is gone.
	Grace time.Duration

	// mu guards the fields below, and the devices with all they have. The mu of a feed is
	// taken after it.
	mu      sync.Mutex
	devices map[int]*device // by index
	last    int             // the highest index so far
	feeds   map[*Feed]bool
}

// New returns a kernel with a loopback device and the devices named.
func New(devices ...string) *Kernel {
	k := &Kernel{devices: map[int]*device{}, feeds: map[*Feed]bool{}}
	for _, name := range append([]string{"lo"}, devices...) {
		k.plug(name, "veth", 0)
	}
	return k
}

// Execute answers a request about qdiscs, classes or filters, as tc.Conn says.
func (k *Kernel) Execute(request *nl.NetlinkRequest) (replies [][]byte, err error) {
	body := request.Serialize()[unix.SizeofNlMsghdr:]
	msg := nl.DeserializeTcMsg(body)
	all := parse(body[msg.Len():])
	r := Request{Type: request.Type, Kind: all.text(nl.TCA_KIND), Handle: msg.Handle, Parent: msg.Parent,
		flags: request.Flags, info: msg.Info, options: parse(all[nl.TCA_OPTIONS]), raw: all[nl.TCA_OPTIONS]}
	_, r.hasOptions = all[nl.TCA_OPTIONS]
	index := int(msg.Ifindex)
	r.Device = k.NameOf(uint32(index))
	err = k.answer(r, func() (err error) {
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

// change carries out a change, and notifies the feeds. mu is held.
func (k *Kernel) change(d *device, r Request) error {
	does := map[uint16]func(Request) error{
		unix.RTM_NEWQDISC: d.newQdisc, unix.RTM_DELQDISC: d.delQdisc,
		unix.RTM_NEWTCLASS: d.newClass, unix.RTM_DELTCLASS: d.delClass,
		unix.RTM_NEWTFILTER: d.newFilter, unix.RTM_DELTFILTER: d.delFilter,
	}
	do, known := does[r.Type]
	if !known {
		return unix.EOPNOTSUPP
	}
	if err := do(r); err != nil {
		return err
	}
	k.notify(r.Type, (&nl.TcMsg{Ifindex: int32(d.Index), Handle: r.Handle, Parent: r.Parent, Info: r.info}).Serialize())
	return nil
}

// dump returns the messages of a dump. A dump of qdiscs has those of all devices. mu is
// held.
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
		replies = d.dumpFilters(r.Parent)
	}
	return replies
}

// Close does nothing: the kernel keeps what it has.
func (k *Kernel) Close() {}
