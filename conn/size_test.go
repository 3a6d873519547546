package conn

import (
	"testing"
	"unsafe"
)

// An idle session takes little memory: no more than one of the allocator's classes of size has.
func TestSessionIsSmall(t *testing.T) {
	const sizeClass, header = 1152, 8 // the header is the allocator's, before what has pointers
	if size := unsafe.Sizeof(tcpSession{}); size > sizeClass-header {
		t.Errorf("a session has %d bytes, want at most %d", size, sizeClass-header)
	}
}

// A session that has its upstream no longer holds what only the dial needed.
func TestDialIsDropped(t *testing.T) {
	upstream, conns := listen(t)
	r := run(t, forward(upstream, "1GB/s"))
	r.open(conns)
	r.one().do(func(s *tcpSession) {
		if s.dialling != nil {
			t.Error("the session still holds its dial")
		}
	})
}
