package conn

import (
	"maps"
	"sync/atomic"

	"shaper/policy"
	"shaper/shaper"
)

// marks are what the packets for upstreams are marked with (SO_MARK), by class: the
// kernel's filters see the class by it. Where the policy asks for none nothing is set;
// where CAP_NET_ADMIN is missing the kernel refuses, and all goes on without.
type marks struct {
	byClass atomic.Pointer[map[string]uint32]
}

// of returns the marks in force; nil for none.
func (m *marks) of() map[string]uint32 {
	if p := m.byClass.Load(); p != nil {
		return *p
	}
	return nil
}

// set puts the marks of a policy in force, and reports whether they are others.
func (m *marks) set(p *policy.Policy) (changed bool) {
	before, now := m.of(), p.Marks()
	m.byClass.Store(&now)
	return !maps.Equal(before, now)
}

// mark returns the mark of a class; 0 for none.
func (m *marks) mark(class *shaper.Class) uint32 { return m.of()[nameOf(class)] }
