package tctest

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Request is a request to the kernel.
type Request struct {
	Type           uint16 // unix.RTM_NEWQDISC, unix.RTM_NEWLINK and so on
	Device, Kind   string
	Handle, Parent uint32

	flags      uint16 // of the netlink header
	info       uint32 // tcm_info; see pref
	options    attrs  // TCA_OPTIONS
	raw        []byte // the same, unparsed
	hasOptions bool   // there are options, maybe empty ones
}

// IsChange reports whether a request may change something.
func (r Request) IsChange() bool {
	return !slices.Contains([]uint16{unix.RTM_GETLINK, unix.RTM_GETQDISC, unix.RTM_GETTCLASS, unix.RTM_GETTFILTER}, r.Type)
}

// has reports whether a netlink flag is set.
func (r Request) has(flag uint16) bool { return r.flags&flag == flag }

// checkKind returns an error if the request names another kind.
func (r Request) checkKind(kind, message string) error {
	if r.Kind != "" && r.Kind != kind {
		return refuse(unix.EINVAL, message)
	}
	return nil
}

// pref returns the preference and the protocol of the filter that a request is about.
func (r Request) pref() (pref, protocol uint16) { return uint16(r.info >> 16), uint16(r.info) }

// refuse returns an error as package netlink/nl does: an errno, followed by the kernel's message.
func refuse(errno syscall.Errno, words string) error {
	return fmt.Errorf("%w: %s", errno, words)
}

// answer carries out a request: do does the work, with mu held. If the test has set Between, that decides
// whether do is called, and what is answered. The caller does not hold mu.
func (k *Kernel) answer(r Request, do func() error) error {
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
