package conn

import (
	"testing"
	"unsafe"
)

// An idle session takes little memory: no more than one of the allocator's classes of size has.
func TestSessionIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(tcpSession{}); size > 1280 {
		t.Errorf("a session has %d bytes, want at most 1280", size)
	}
}
