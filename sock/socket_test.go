package sock

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection that we have dialled holds back no second write until the first one is acknowledged.
// A small first write leaves at once without an option.
func TestSecondWriteLeavesAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first         int
		after, second int // TCP_NODELAY after the first write and the second
	}{{1, 0, 1}, {aSegment, 0, 1}, {aSegment + 1, 1, 1}} {
		a, b := newWorld(t, Kernel{}).connected()
		fd := int(a.End.(*Socket).Descriptor)
		for _, want := range []int{c.after, c.second} {
			a.send(string(bytes.Repeat([]byte{'x'}, c.first)))
			if got := getNow(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY); got != want {
				t.Errorf("writes of %d bytes: TCP_NODELAY is %d, want %d", c.first, got, want)
			}
		}
		b.send("y")
		if got := getNow(int(b.End.(*Socket).Descriptor), unix.IPPROTO_TCP, unix.TCP_NODELAY); got != 1 {
			t.Errorf("TCP_NODELAY of an accepted socket is %d", got)
		}
	}
}
