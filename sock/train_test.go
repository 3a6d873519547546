package sock

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTrain(t *testing.T) {
	for _, c := range []struct {
		bytes, size, most int
		head              int
		packets           int64 // of the head
	}{
		{0, 0, 100, 0, 1},
		{1000, 0, 1, 1000, 1}, // a datagram is not divided
		{1000, 100, 0, 100, 1},
		{1000, 100, 99, 100, 1},
		{1000, 100, 399, 300, 3},
		{1000, 100, 1000, 1000, 10},
		{950, 100, 1000, 950, 10},
		{950, 100, 940, 900, 9},
		{50, 100, 0, 50, 1},
		{65_000, 1000, 1 << 30, 64_000, 64},
		{65_500, 20_000, 1 << 30, 60_000, 3},
	} {
		head, rest := Train{make([]byte, c.bytes), c.size}.Cut(c.most)
		if len(head.Payload) != c.head || len(rest.Payload) != c.bytes-c.head {
			t.Errorf("%+v: cut into %d and %d", c, len(head.Payload), len(rest.Payload))
		}
		if n := head.Packets(); n != c.packets {
			t.Errorf("%+v: the head has %d packets", c, n)
		}
	}
}

// If the kernel does not segment, here because checksums are off, the datagrams of a train
// are sent one by one, and so are later trains of their size.
func TestSendApart(t *testing.T) {
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	c, err := net.Dial("udp", sink.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1) })
	if err != nil {
		t.Fatal(err)
	}
	r, b := &Route{Raw: raw}, NewBatch()
	for range 3 {
		b.Add(Train{Payload: []byte("aabbccd"), Size: 2})
		b.Add(Train{Payload: []byte("ee")})
		b.Send(r)
		if b.Len() != 2 || b.Lost(0) != (Loss{}) || b.Lost(1) != (Loss{}) {
			t.Errorf("of %d trains, %v and %v are lost", b.Len(), b.Lost(0), b.Lost(1))
		}
		b.Clear()
		if n := r.tooLarge.Load(); n != 2 {
			t.Errorf("datagrams of %d bytes or more are sent one by one, want 2", n)
		}
	}
}
