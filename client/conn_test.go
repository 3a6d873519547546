package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// TestConnIsANetConn runs the conformance tests of net.Conn, over TCP and over
// net.Pipe, unlimited and through classes.
func TestConnIsANetConn(t *testing.T) {
	sh := shaper.New()
	defer sh.Close()
	sh.Apply([]policy.Class{leakyClass("leaky", "400mbit"), classOf("token", policy.Token, "400mbit")})
	for name, limits := range map[string]Limits{
		"unlimited": {},
		"shaped":    {Read: sh.Class("leaky"), Write: sh.Class("token")},
	} {
		t.Run(name+"/pipe", func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := net.Pipe()
				c1, c2 = Wrap(a, limits), Wrap(b, limits)
				return c1, c2, func() { c1.Close(); c2.Close() }, nil
			})
		})
		t.Run(name+"/tcp", func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				return tcpPair(limits)
			})
		})
	}
}

// tcpPair connects a Dialer with a Listener.
func tcpPair(limits Limits) (c1, c2 net.Conn, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, err
	}
	shaped := &Listener{Listener: l, Limits: limits}
	defer shaped.Close()
	d := Dialer{Limits: limits}
	if c1, err = d.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, nil, err
	}
	if c2, err = shaped.Accept(); err != nil {
		c1.Close()
		return nil, nil, nil, err
	}
	return c1, c2, func() { c1.Close(); c2.Close() }, nil
}

// TestWriteDrainsAtTheRate checks the instants at which the pieces of one Write
// arrive: 10 pieces at 10 pieces a second, the first at once.
func TestWriteDrainsAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		class := sh.NewClass(leakyClass("c", "14600B/s"))
		a, b := net.Pipe()
		c := Wrap(a, Limits{Write: class})
		defer c.Close()
		go c.Write(make([]byte, 14600))

		start := time.Now()
		for i := range 10 {
			if _, err := io.ReadFull(b, make([]byte, 1460)); err != nil {
				t.Fatal(err)
			}
			if got, want := time.Since(start), time.Duration(i)*100*time.Millisecond; got != want {
				t.Errorf("piece %d after %v, want %v", i, got, want)
			}
		}
	})
}

// If a deadline ends the wait of a Read, the next Read returns its bytes.
func TestReadDeadlineLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		class := sh.NewClass(leakyClass("c", "10B/s"))
		a, b := net.Pipe()
		c := Wrap(a, Limits{Read: class})
		defer c.Close()
		go func() { b.Write([]byte("0123456789")); b.Write([]byte("abc")) }()

		buf := make([]byte, 16)
		if n, err := c.Read(buf); string(buf[:n]) != "0123456789" || err != nil {
			t.Fatalf("the first Read: %q, %v", buf[:n], err)
		}
		c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := c.Read(buf); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Read past the deadline: %d, %v", n, err)
		}
		c.SetReadDeadline(time.Time{})
		start := time.Now()
		n, err := c.Read(buf[:2])
		if string(buf[:n]) != "ab" || err != nil {
			t.Fatalf("Read after the deadline: %q, %v", buf[:n], err)
		}
		if waited := time.Since(start); waited != 700*time.Millisecond {
			t.Errorf("Read waited %v, want the remaining 700ms of the second", waited)
		}
		if n, err := c.Read(buf); string(buf[:n]) != "c" || err != nil {
			t.Fatalf("the rest: %q, %v", buf[:n], err)
		}
	})
}

// A datagram of any size is one item and one packet.
func TestDatagramsStayWhole(t *testing.T) {
	const large = 4000 // a stream would cut it into several pieces
	for _, rate := range []string{"1mbit", "100 packets/s"} {
		t.Run(rate, func(t *testing.T) {
			sh := shaper.New()
			defer sh.Close()
			in, out := sh.NewClass(leakyClass("in", rate)), sh.NewClass(leakyClass("out", rate))
			peer := bindUDP(t)
			d := Dialer{Limits: Limits{Read: in, Write: out}}
			c, err := d.Dial("udp", peer.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			for _, size := range []int{large, 0, large} {
				sent := make([]byte, size)
				if n, err := c.Write(sent); n != size || err != nil {
					t.Fatalf("Write of %d bytes: %d, %v", size, n, err)
				}
				n, from, err := peer.ReadFromUDPAddrPort(make([]byte, 1<<16))
				if n != size || err != nil {
					t.Fatalf("a datagram of %d bytes arrives as one of %d, %v", size, n, err)
				}
				peer.WriteToUDPAddrPort(sent, from)
				if n, err := c.Read(make([]byte, 1<<16)); n != size || err != nil {
					t.Fatalf("Read of a datagram of %d bytes: %d, %v", size, n, err)
				}
			}
		})
	}
}

// messageConn is a net.Conn that claims to be UDP and reads the messages of a channel.
type messageConn struct {
	net.Conn
	messages chan string
}

func (c messageConn) LocalAddr() net.Addr             { return &net.UDPAddr{} }
func (c messageConn) RemoteAddr() net.Addr            { return &net.UDPAddr{} }
func (c messageConn) Write(p []byte) (int, error)     { return len(p), nil }
func (c messageConn) SetReadDeadline(time.Time) error { return nil }
func (c messageConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return copy(p, <-c.messages), nil
}

// At 10 packets a second, datagrams of any size are 100 ms apart.
func TestDatagramsArePackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		raw := messageConn{messages: make(chan string, 10)}
		in, out := sh.NewClass(leakyClass("in", "10 packets/s")), sh.NewClass(leakyClass("out", "10 packets/s"))
		c := Wrap(raw, Limits{Read: in, Write: out})
		start := time.Now()
		for i, size := range []int{1, 0, 9000} {
			c.Write(make([]byte, size))
			if got, want := time.Since(start), time.Duration(i)*100*time.Millisecond; got != want {
				t.Errorf("datagram %d is written after %v, want %v", i, got, want)
			}
		}
		start = time.Now()
		for i, size := range []int{1, 0, 9000} {
			raw.messages <- string(make([]byte, size))
			c.Read(nil)
			if n, err := c.Read(make([]byte, 1<<16)); n != size || err != nil {
				t.Errorf("Read of a datagram of %d bytes: %d, %v", size, n, err)
			}
			if got, want := time.Since(start), time.Duration(i)*100*time.Millisecond; got != want {
				t.Errorf("datagram %d is read after %v, want %v", i, got, want)
			}
		}
	})
}

// If a deadline ends the wait for a datagram, the next Read returns it, even if it is empty.
// What does not fit into the buffer of that Read is lost.
func TestReadDeadlineKeepsTheDatagram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		raw := messageConn{messages: make(chan string, 10)}
		c := Wrap(raw, Limits{Read: sh.NewClass(leakyClass("c", "1 packets/s"))})
		buf := make([]byte, 16)
		raw.messages <- "first"
		c.Read(buf)
		for _, message := range []string{"whole", "too long", ""} {
			raw.messages <- message
			c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if n, err := c.Read(buf); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("Read of %q past the deadline: %d, %v", message, n, err)
			}
			c.SetReadDeadline(time.Time{})
			c.Read(nil)
			want := message[:min(len(message), 5)]
			if n, err := c.Read(buf[:5]); string(buf[:n]) != want || err != nil {
				t.Fatalf("Read of %q after the deadline: %q, %v", message, buf[:n], err)
			}
		}
	})
}

func TestKeepsMessages(t *testing.T) {
	for _, tt := range []struct {
		addr net.Addr
		want bool
	}{
		{&net.UDPAddr{}, true},
		{&net.IPAddr{}, true},
		{&net.UnixAddr{Net: "unixgram"}, true},
		{&net.UnixAddr{Net: "unixpacket"}, true},
		{&net.UnixAddr{Net: "unix"}, false},
		{&net.TCPAddr{}, false},
		{network("ip4:icmp"), true},
		{network("pipe"), false},
		{nil, false},
	} {
		if got := keepsMessages(networkOf(tt.addr)); got != tt.want {
			t.Errorf("%T %v keeps messages: %v", tt.addr, tt.addr, got)
		}
	}
}

// network is an address in a network of any name.
type network string

func (n network) Network() string { return string(n) }
func (n network) String() string  { return "" }

// Close ends the wait of a Write, and nothing of it remains in the queue.
func TestCloseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		blocked := sh.NewClass(leakyClass("c", "0B/s"))
		a, b := net.Pipe()
		defer b.Close()
		c := Wrap(a, Limits{Write: blocked})
		ended := make(chan error)
		go func() { _, err := c.Write([]byte("never")); ended <- err }()
		synctest.Wait()
		c.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write: %v, want net.ErrClosed", err)
		}
		if n := blocked.Backlog().Items; n != 0 {
			t.Errorf("%d items still wait", n)
		}
	})
}

// A deadline ends the wait of a Write even if it is removed right after it has passed.
// Nothing of the Write goes through.
func TestDeadlineMovedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		a, b := net.Pipe()
		defer b.Close()
		go io.Copy(io.Discard, b)
		c := Wrap(a, Limits{Write: sh.NewClass(leakyClass("c", "0B/s"))})
		defer c.Close()
		for i := range 100 {
			ended := make(chan error)
			go func() { _, err := c.Write([]byte("never")); ended <- err }()
			synctest.Wait()
			c.SetWriteDeadline(time.Unix(1, 0))
			c.SetWriteDeadline(time.Time{})
			if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("Write %d: %v, want os.ErrDeadlineExceeded", i, err)
			}
		}
	})
}

// checkAccepts accepts n connections, which come half a second apart, the first at once.
func checkAccepts(t *testing.T, l net.Listener, n int) {
	t.Helper()
	start := time.Now()
	for i := range n {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got, want := time.Since(start), time.Duration(i)*500*time.Millisecond; got != want {
			t.Errorf("connection %d after %v, want %v", i, got, want)
		}
	}
}

// Accept waits for Limits.Open.
func TestOpenPacesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		open := sh.NewClass(leakyClass("c", "2 connections/s"))
		l := &Listener{Listener: endless{}, Limits: Limits{Open: open}}
		checkAccepts(t, l, 4)
	})
}

// endless is a net.Listener whose Accept never waits.
type endless struct{}

func (endless) Accept() (net.Conn, error) { c, _ := net.Pipe(); return c, nil }
func (endless) Close() error              { return nil }
func (endless) Addr() net.Addr            { return &net.TCPAddr{} }

// coming is a net.Listener that accepts the connections of a channel.
type coming struct {
	endless
	conns chan net.Conn
}

func (l coming) Accept() (net.Conn, error) { return <-l.conns, nil }

// connect sends the listener a connection, and returns its client side.
func (l coming) connect() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// Two listeners share a class and wait for an hour without a connection. Then Accept returns
// connections as the class allows, and not one more.
func TestListenerTakesNoLeaveAhead(t *testing.T) {
	burst := classOf("token", policy.Token, "1 connections/s")
	burst.Burst = policy.Burst{N: 2, Kind: unit.Connections}
	for _, tt := range []struct {
		class policy.Class
		want  []time.Duration
	}{
		{leakyClass("leaky", "1 connections/s"), []time.Duration{0, 1e9, 2e9, 3e9}},
		{burst, []time.Duration{0, 0, 1e9, 2e9}},
	} {
		t.Run(tt.class.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testTakesNoLeaveAhead(t, tt.class, tt.want) })
		})
	}
}

func testTakesNoLeaveAhead(t *testing.T, class policy.Class, want []time.Duration) {
	sh := shaper.NewOnRuntimeTimer()
	defer sh.Close()
	open := sh.NewClass(class)
	accepted := make(chan time.Time)
	first, second := coming{conns: make(chan net.Conn)}, coming{conns: make(chan net.Conn)}
	for _, raw := range []coming{first, second} {
		l := &Listener{Listener: raw, Limits: Limits{Open: open}}
		go func() {
			for range 2 {
				c, _ := l.Accept()
				accepted <- time.Now()
				c.Close()
			}
		}()
	}
	time.Sleep(time.Hour)
	start := time.Now()
	for _, l := range []coming{first, second, first, second} {
		go l.connect()
	}
	for i, want := range want {
		if got := (<-accepted).Sub(start); got != want {
			t.Errorf("connection %d after %v, want %v", i, got, want)
		}
	}
}

// Close ends an Accept that waits for the class, and closes the connection that it holds.
func TestListenerCloseWhileItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		raw := coming{conns: make(chan net.Conn)}
		l := &Listener{Listener: raw, Limits: Limits{Open: sh.NewClass(leakyClass("c", "0 connections/s"))}}
		ended := make(chan error)
		go func() { _, err := l.Accept(); ended <- err }()
		client := raw.connect()
		synctest.Wait()
		l.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v, want net.ErrClosed", err)
		}
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection that Accept held reads %v, want io.EOF", err)
		}
	})
}

// Accept closes a connection that the class refuses, and returns one that comes when there
// is room again.
func TestListenerOutlivesARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh := shaper.NewOnRuntimeTimer()
		defer sh.Close()
		refuses := leakyClass("c", "1 connections/min")
		refuses.Overflow, refuses.MaxWait = policy.Refuse, 1e9
		raw := coming{conns: make(chan net.Conn)}
		l := &Listener{Listener: raw, Limits: Limits{Open: sh.NewClass(refuses)}}
		accepted := make(chan error)
		go func() {
			for range 2 {
				_, err := l.Accept()
				accepted <- err
			}
		}()
		raw.connect()
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		if _, err := raw.connect().Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection that was refused reads %v, want io.EOF", err)
		}
		time.Sleep(time.Minute)
		raw.connect()
		if err := <-accepted; err != nil {
			t.Errorf("Accept after a refusal: %v", err)
		}
	})
}

func TestCloseWrite(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	if err := Wrap(a, Limits{}).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("CloseWrite of a pipe: %v, want errors.ErrUnsupported", err)
	}
	c1, c2, stop, err := tcpPair(Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := c1.(*Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c2.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("Read: %v, want EOF", err)
	}
}

// A connection uses the bucket of its peer's address until it is closed.
func TestBucketsOfWrappedConnections(t *testing.T) {
	sh := shaper.New()
	defer sh.Close()
	conf := policy.DefaultClass("c")
	conf.Rate, conf.Algorithm, conf.Burst = unit.BytesPerSecond(1), policy.Token, policy.Burst{N: 5, Kind: unit.Bytes}
	conf.Per = policy.Per{{By: policy.BySource, IPv4: 32, IPv6: 64}}
	sh.Apply([]policy.Class{conf})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shaped := &Listener{Listener: l, Limits: Limits{Write: sh.Class("c"), Open: sh.Class("c")}}
	defer shaped.Close()
	for _, source := range []string{"127.0.0.1", "127.0.0.2"} {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		peer, err := from.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		c, err := shaped.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(peer, got); err != nil || string(got) != "hello" {
			t.Fatalf("%s reads %q, %v", source, got, err)
		}
		c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Write([]byte("again")); err == nil {
			t.Errorf("%s: a second burst passes", source)
		}
		c.Close()
		c.Close()
	}
	if n := sh.Class("c").Buckets().Keys(time.Now()); n != 2 {
		t.Errorf("%d keys, want 2", n)
	}
	d := &Dialer{Limits: Limits{Write: sh.Class("c"), Open: sh.Class("c")}}
	c, err := d.DialContext(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Write([]byte("again")); err == nil {
		t.Error("the bucket of the address has a second burst")
	}
	c.Close()
}
