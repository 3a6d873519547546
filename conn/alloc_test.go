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
	"shaper/stats"
)

// connected returns two connected sockets.
func connected(t testing.TB) (ours, theirs stream) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := dialTCP(t, l.Addr().String())
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	ours, err = newStream(a, "ours")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = newStream(b.(*net.TCPConn), "theirs")
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// A piece of a stream costs no allocation, from the read to the write.
func TestRelayDoesNotAllocate(t *testing.T) {
	skipUnderRace(t)
	sh := shaper.New()
	defer sh.Close()
	from, in := connected(t)
	out, to := connected(t)
	s := &tcpSession{server: &Server{pipes: newPipes()}, service: &service{}, ctx: t.Context()}
	defer s.server.pipes.close()
	var h half
	h.init(s, stats.Upstream, sh.NewClass(leakyClass("c", "80gbit")))
	h.src, h.dst = in, out
	for _, size := range []int{1000, 50_000} { // through a buffer, and through a pipe
		data, got := noise(size), make([]byte, size)
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := from.conn.Write(data); err != nil {
				t.Fatal(err)
			}
			for moved := 0; moved < size; {
				err := h.read(h.waitRead)
				moved += h.cargo.n
				if err != nil || h.wait() != nil || h.write(h.waitWrite) != nil {
					t.Fatal("the relay fails")
				}
			}
			if _, err := io.ReadFull(to.conn, got); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%d bytes cost %v allocations", size, n)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("of %d bytes, others arrive", size)
		}
	}
}

// A datagram costs none either, whether it leaves at once or waits.
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
		w.raw = raw
		data := []byte(strings.Repeat("x", 100))
		if n := testing.AllocsPerRun(1000, func() {
			out := getOutgoing()
			for range 4 {
				w.offer(train{payload: data}, out)
			}
			w.send(out)
			out.release()
			for w.pending.Load() > 0 { // what waits leaves by the pacer
				time.Sleep(10 * time.Microsecond)
			}
		}); n != 0 {
			t.Errorf("four datagrams cost %v allocations", n)
		}
	}
}

// Reading a batch costs none.
func TestReceiveDoesNotAllocate(t *testing.T) {
	skipUnderRace(t)
	socket := bindUDP(t, "127.0.0.1:0")
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	c := dialUDP(t, socket.LocalAddr().String())
	in, data := &reader{}, []byte("datagram")
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
		if n, err := in.read(raw); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		in.batch.key(0)
		in.release()
	}); n != 0 {
		t.Errorf("a datagram costs %v allocations", n)
	}
}

// SO_RCVBUF of a client follows the rate of the class: what it sends ahead
// stands there before shaping is felt.
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
		until(t, "the buffer is sized", func() bool {
			got := getsockopt(t, r.one().client, unix.SO_RCVBUF)
			return got == 2*want // of what is set, the kernel makes the double
		})
	}
	buffer(25_000)
	r.reload(forward(addr, "40kB/s"))
	send(t, client, "x") // the read that was under way has the old one
	expect(t, upstream, "x")
	buffer(10_000)
	r.reload(forward(addr, fast))
	send(t, client, "x")
	expect(t, upstream, "x")
	until(t, "the buffer is large", func() bool { return getsockopt(t, r.one().client, unix.SO_RCVBUF) > 2*maxReceiveBuffer })
}

// dialEthernet connects with segments as they are on a network: those of the
// loopback device are 64 KiB.
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

func getsockopt(t testing.TB, c syscall.Conn, option int) (value int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option) })
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// A slow class is not swamped by what the kernel has taken in advance.
func TestLittleStandsBeforeASlowClass(t *testing.T) {
	r := run(t, forward(policy.Discard, "1kB/s"))
	client := dialEthernet(t, r.addr("l"))
	send(t, client, "x")
	until(t, "there is a session", func() bool { return len(r.Sessions()) == 1 && r.Sessions()[0].Upward > 0 })
	if got := getsockopt(t, r.one().client, unix.SO_RCVBUF); got > 2*minSegments*1400 {
		t.Errorf("SO_RCVBUF is %d", got)
	}
}
