package tctest

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

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

// pref returns the preference and the protocol that a request is about.
func (r Request) pref() (prio, protocol uint16) { return uint16(r.info >> 16), uint16(r.info) }

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
