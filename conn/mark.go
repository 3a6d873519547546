package conn

import (
	"maps"
	"sync/atomic"

	"golang.org/x/sys/unix"

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

// mark marks a socket with the mark of a class; with none, 0, where others have one.
func (m *marks) mark(fd int, class *shaper.Class) {
	if all := m.of(); len(all) > 0 {
		setNow(fd, unix.SOL_SOCKET, unix.SO_MARK, int(all[nameOf(class)]))
	}
}

// again marks a socket anew, after the marks or its class have changed.
func (m *marks) again(fd int, class *shaper.Class) {
	setNow(fd, unix.SOL_SOCKET, unix.SO_MARK, int(m.of()[nameOf(class)]))
}

func (t *tcpSession) remark() {
	t.drive(func(t *tcpSession) {
		t.upstream.onWire(func(fd int) { t.server.marks.again(fd, t.up.flow.Class()) })
	})
}

func (t *udpSession) remark() {
	if t.up.raw != nil {
		t.up.raw.Control(func(fd uintptr) { t.socket.server.marks.again(int(fd), t.up.class.Load()) })
	}
}
