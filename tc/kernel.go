package tc

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Kernel reads and changes our objects in a kernel. Only one goroutine at a time may use
// it.
type Kernel struct {
	conn        Conn
	indexes     map[string]int    // of the devices that were read, by name
	kinds       *Kinds            // nil: not probed yet
	sizesBefore map[int]linkSizes // sizes of limited links before, as noted; by index
}

// patience is how long the kernel may take to answer. It is long because one lock guards
// all changes of the network.
const patience = 30 * time.Second

// Open connects to the kernel of the machine, in the network namespace of the caller.
func Open() (*Kernel, error) {
	s, err := dial()
	if err != nil {
		return nil, &Error{Op: "connect", Object: "to netlink", Err: err}
	}
	return On(s), nil
}

// On returns a Kernel that uses a connection. Close closes the connection.
func On(c Conn) *Kernel {
	return &Kernel{conn: c, indexes: map[string]int{}, sizesBefore: map[int]linkSizes{}}
}

// Close ends the connection. The objects in the kernel stay.
func (k *Kernel) Close() { k.conn.Close() }

// Error says which operation on which object of which device failed, and why.
type Error struct {
	Op     string // "add", "change", "replace", "delete", "read", "probe", "watch", "connect"
	Device string // "": the error is about none
	Object string
	Err    error  // the cause; if the kernel refused, a syscall.Errno
	Kernel string // the kernel's extended message; "" if there is none
}

// Error prints "tc: add class htb 5ca0:1f on eth0: invalid argument (kernel: ...)".
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tc: %s %s", e.Op, e.Object)
	if e.Device != "" {
		fmt.Fprintf(&b, " on %s", e.Device)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Kernel != "" {
		fmt.Fprintf(&b, " (kernel: %s)", e.Kernel)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// refused returns an Error for an error of package nl: a syscall.Errno, alone or followed
// by the kernel's message. For nil it returns nil.
func refused(op, device, object string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Device: device, Object: object, Err: err}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		e.Err = errno
		e.Kernel = strings.TrimPrefix(strings.TrimPrefix(err.Error(), errno.Error()), ": ")
	}
	return e
}

// ErrNoDevice is the cause of an error if a device does not exist.
var ErrNoDevice = errors.New("there is no such network device")

// isGone reports whether an error says that an object does not exist.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.As(err, new(netlink.LinkNotFoundError))
}

// link reads a device, and notes its index. If there is none, the cause is ErrNoDevice.
func (k *Kernel) link(name string) (netlink.Link, error) {
	l, err := k.conn.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		delete(k.indexes, name)
		return nil, &Error{Op: "read", Device: name, Object: "link", Err: ErrNoDevice}
	}
	if err != nil {
		return nil, refused("read", name, "link", err)
	}
	k.indexes[name] = l.Attrs().Index
	return l, nil
}

// request returns a request about qdiscs, classes or filters.
func request(proto, flags int, msg *nl.TcMsg) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(proto, flags)
	r.AddData(msg)
	return r
}

// dump returns all objects of a type on a device, as messages. If something changes
// meanwhile, the kernel says so, and dump reads again, ten times at most.
func (k *Kernel) dump(typ Type, device string, parent Handle) (all []message, err error) {
	proto := map[Type]int{Qdisc: unix.RTM_GETQDISC, Class: unix.RTM_GETTCLASS, Filter: unix.RTM_GETTFILTER}[typ]
	index := k.indexes[device]
	for range 10 {
		msg := &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: uint32(parent)}
		var replies [][]byte
		replies, err = k.conn.Execute(request(proto, unix.NLM_F_DUMP, msg))
		if errors.Is(err, nl.ErrDumpInterrupted) || errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if err != nil {
			return nil, refused("read", device, string(typ), err)
		}
		all = nil
		for _, b := range replies {
			if m := parseMessage(b); m.index == index {
				all = append(all, m)
			}
		}
		return all, nil
	}
	return nil, refused("read", device, string(typ), err)
}
