package conn

import (
	"maps"
	"sync/atomic"

	"shaper/policy"
	"shaper/shaper"
)

// marks are the marks of packets to upstreams (SO_MARK). They tell the kernel's filters the class,
// and nftables that the packets are ours. If the policy has no marks, sockets get none. Without
// CAP_NET_ADMIN the kernel refuses them, and packets go unmarked. Safe for concurrent use.
type marks struct {
	byClass atomic.Pointer[map[string]uint32] // by name of the class; "" for all others
}

// of returns the marks in force; nil for none.
func (m *marks) of() map[string]uint32 {
	if p := m.byClass.Load(); p != nil {
		return *p
	}
	return nil
}

// set puts the marks of a policy in force, and reports whether they have changed.
func (m *marks) set(p *policy.Policy) (changed bool) {
	before, now := m.of(), p.Marks()
	m.byClass.Store(&now)
	return !maps.Equal(before, now)
}

// mark returns the mark of a class; 0 for none.
func (m *marks) mark(class *shaper.Class) uint32 {
	all := m.of()
	if mark, ok := all[nameOf(class)]; ok {
		return mark
	}
	return all[""]
}
