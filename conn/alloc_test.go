package conn

import (
	"bytes"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// A piece of a stream costs no allocation from the read to the write, whether it leaves at
// once or waits, through a buffer or a pipe.
func TestRelayDoesNotAllocate(t *testing.T) {
	skipUnderRace(t)
	addr, conns := listen(t)
	for _, rate := range []string{"80gbit", "100MB/s"} {
		r := run(t, forward(addr, rate))
		client, upstream := r.open(conns)
		for _, size := range []int{1000, 50_000} {
			data, got := noise(size), make([]byte, size)
			if n := testing.AllocsPerRun(500, func() {
				if _, err := client.Write(data); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(upstream, got); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s: %d bytes cost %v allocations", rate, size, n)
			}
			if !bytes.Equal(got, data) {
				t.Errorf("%d bytes arrive changed", size)
			}
		}
	}
}

// A datagram costs no allocation, whether it leaves at once or waits.
func TestDatagramsDoNotAllocate(t *testing.T) {
	skipUnderRace(t)
	sh := shaper.New()
	defer sh.Close()
	sink := bindUDP(t, "127.0.0.1:0")
	c := dialUDP(t, sink.LocalAddr().String())
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []*shaper.Class{nil, sh.NewClass(leakyClass("c", "80gbit")), sh.NewClass(leakyClass("p", "50000 packets/s"))} {
		session := &udpSession{socket: &udpSocket{server: &Server{}}, service: &service{}}
		w := &session.up
		w.init(session, stats.Upstream, class)
		w.Raw = raw
		data := []byte(strings.Repeat("x", 100))
		if n := testing.AllocsPerRun(1000, func() {
			out := getOutgoing()
			for range 4 {
				w.offer(sock.Train{Payload: data}, out)
			}
			w.send(out)
			out.release()
			for w.pending.Load() > 0 { // the pacer lets out what waits
				time.Sleep(10 * time.Microsecond)
			}
		}); n != 0 {
			t.Errorf("four datagrams cost %v allocations", n)
		}
	}
}

// Reading a batch costs no allocation.
func TestReceiveDoesNotAllocate(t *testing.T) {
	skipUnderRace(t)
	socket := bindUDP(t, "127.0.0.1:0")
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	c := dialUDP(t, socket.LocalAddr().String())
	in, data := &sock.Reader{}, []byte("datagram")
	var u *udpSocket
	for _, b := range run(t, udp(policy.Echo, fast)).bound {
		u = b.(*udpSocket)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
		if n, err := in.Read(raw); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		u.keyOf(in.Batch, 0)
		in.Release()
	}); n != 0 {
		t.Errorf("a datagram costs %v allocations", n)
	}
}

// SO_RCVBUF of a client follows the rate of the class: the client fills it before it feels the
// shaping.
func TestReceiveBufferFollowsTheRate(t *testing.T) {
	for _, c := range []struct {
		rate string
		want int
	}{
		{"0B/s", 1},
		{"1kB/s", 250},
		{"100kB/s", 25_000},
		{"1gbit", 0},
		{"30 connections/s", 0},
	} {
		sh := shaper.New()
		if got := receiveBufferOf(sh.NewClass(leakyClass("c", c.rate))); got != c.want {
			t.Errorf("%s: %d, want %d", c.rate, got, c.want)
		}
		sh.Close()
	}
	if got := receiveBufferOf(nil); got != 0 {
		t.Errorf("without a class: %d", got)
	}

	addr, conns := listen(t)
	r := run(t, forward(addr, "100kB/s"))
	client := dialEthernet(t, r.addr("l"))
	upstream := next(t, conns)
	buffer := func(want int) {
		t.Helper()
		send(t, client, "x")
		expect(t, upstream, "x")
		trial.Await(t, "the buffer is sized", func() bool {
			got := r.receiveBuffer()
			return got == 2*want // the kernel doubles what is set
		})
	}
	buffer(25_000)
	r.reload(forward(addr, "40kB/s"))
	send(t, client, "x") // the read that is under way has used the old one
	expect(t, upstream, "x")
	buffer(10_000)
	r.reload(forward(addr, fast))
	send(t, client, "x")
	expect(t, upstream, "x")
	trial.Await(t, "the buffer is large", func() bool { return r.receiveBuffer() > 2*maxReceiveBuffer })
}

// dialEthernet connects with segments as small as those of Ethernet. The loopback device has
// segments of 64 KiB.
func dialEthernet(t testing.TB, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1400) })
	}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// receiveBuffer returns the SO_RCVBUF of the one session's client.
func (r *rig) receiveBuffer() (size int) {
	r.t.Helper()
	r.one().do(func(one *tcpSession) {
		size = one.client.end.Get(sock.ReceiveBuffer)
	})
	return size
}

// What the kernel takes in advance does not swamp a slow class.
func TestLittleStandsBeforeASlowClass(t *testing.T) {
	r := run(t, forward(policy.Discard, "1kB/s"))
	client := dialEthernet(t, r.addr("l"))
	send(t, client, "x")
	trial.Await(t, "there is a session", func() bool { return len(r.Sessions()) == 1 && r.Sessions()[0].Upward > 0 })
	if got := r.receiveBuffer(); got > 2*minSegments*1400 {
		t.Errorf("SO_RCVBUF is %d", got)
	}
}

// skipUnderRace skips a test of allocations: the race detector allocates, too, and makes
// sync.Pool drop some of its items.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if trial.Raced {
		t.Skip("the race detector allocates")
	}
}
