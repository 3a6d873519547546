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

// Kernel reads and changes what a kernel has of ours. It is for one goroutine.
type Kernel struct {
	conn    Conn
	indexes map[string]int    // of devices, by name
	kinds   *Kinds            // nil: not probed yet
	had     map[int]linkSizes // of links, by index, that were limited when they were read
}

// patience is how long the kernel may take for an answer: it has one lock for all
// changes of the network.
const patience = 30 * time.Second

// Open connects to the kernel of the network namespace in which it is called.
func Open() (*Kernel, error) {
	s, err := dial()
	if err != nil {
		return nil, &Error{Op: "connect", Object: "to netlink", Err: err}
	}
	return On(s), nil
}

// On returns a Kernel that uses a connection, and closes it.
func On(c Conn) *Kernel {
	return &Kernel{conn: c, indexes: map[string]int{}, had: map[int]linkSizes{}}
}

// Close ends the connection. What is in the kernel stays.
func (k *Kernel) Close() { k.conn.Close() }

// Error is what the kernel has refused: which operation on which object of which
// device, why, and what the kernel itself says of it.
type Error struct {
	Op     string // "add", "change", "delete", "read", "connect"
	Device string
	Object string
	Err    error  // a syscall.Errno, for errors.Is
	Kernel string // its extended message; "" where it has none
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

// refused makes an Error of what package nl returns: a syscall.Errno, alone or with
// the kernel's message behind it. Of no error it makes none.
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

// ErrNoDevice is the cause where a device does not exist.
var ErrNoDevice = errors.New("there is no such network device")

// isGone reports whether an error says that what is to be deleted is not there.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.As(err, new(netlink.LinkNotFoundError))
}

// link reads a device.
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

// request returns a message about qdiscs, classes or filters.
func request(proto, flags int, msg *nl.TcMsg) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(proto, flags)
	r.AddData(msg)
	return r
}

// dump returns all objects of a type, as messages. The kernel says where something
// has changed meanwhile; then it is read again.
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
