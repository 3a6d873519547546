package tests

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var tlsVersions = []uint16{tls.VersionTLS12, tls.VersionTLS13}

// versionName names a version of TLS; 0 is plain text.
func versionName(version uint16) string {
	if version == 0 {
		return "plain text"
	}
	return tls.VersionName(version)
}

// badRecord is a TLS record that no key decrypts.
var badRecord = append([]byte{23, 3, 3, 0, 64}, make([]byte, 64)...)

// streamConn is a *net.TCPConn or a *net.UnixConn.
type streamConn interface {
	net.Conn
	CloseWrite() error
	SyscallConn() (syscall.RawConn, error)
}

// wireConn is the connection beneath TLS, or the whole of a plain one.
type wireConn struct {
	streamConn
	corrupt bool // Read returns badRecord
	ended   bool // the connection has reported an end or an error
}

func (c *wireConn) Read(p []byte) (int, error) {
	if c.corrupt {
		return copy(p, badRecord), nil
	}
	n, err := c.streamConn.Read(p)
	c.ended = c.ended || err != nil
	return n, err
}

// endPeer is the client or the upstream of a session through shaper.
type endPeer struct {
	net.Conn // wire, or a *tls.Conn over it
	wire     *wireConn
}

// end ends the sending direction of the peer in one of the ways of the table of ends. "silence"
// does nothing.
func (p *endPeer) end(way string) {
	switch way {
	case "FIN":
		p.wire.CloseWrite()
	case "FIN,RST":
		p.end("FIN")
		p.reset()
	case "RST":
		p.reset()
	case "notify":
		p.end("notify,open")
		p.wire.CloseWrite()
	case "notify,open":
		p.Conn.(*tls.Conn).CloseWrite()
	case "notify,RST":
		p.end("notify,open")
		p.reset()
	case "alert": // TLS answers a bad record with an alert
		p.wire.corrupt = true
		p.Conn.Read(make([]byte, 1))
		p.wire.CloseWrite()
	case "garbage":
		p.wire.Write(badRecord)
	}
}

// reset resets the connection once shaper's kernel has all that was written. A unix socket does
// that if it is closed with bytes unread (unix(7)).
func (p *endPeer) reset() {
	raw, err := p.wire.SyscallConn()
	if err != nil {
		return
	}
	defer p.wire.Close()
	tcp, ok := p.wire.streamConn.(*net.TCPConn)
	if !ok {
		raw.Read(func(fd uintptr) bool {
			_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
			return err != unix.EAGAIN
		})
		return
	}
	for unsent := 1; err == nil && unsent > 0; time.Sleep(time.Millisecond) {
		raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	tcp.SetLinger(0)
}

// sees returns how an end looks to the peer. At a unix socket, plain text that is cut looks
// clean: unix sockets know no reset.
func (p *endPeer) sees(end string) string {
	if _, isUnix := p.wire.streamConn.(*net.UnixConn); isUnix && p.Conn == net.Conn(p.wire) && end == "cut" {
		return "clean"
	}
	return end
}

// readToEnd reads until the end. It closes arrived once it has read at least certain bytes. It
// returns what it has read, and how that ended: "clean", "cut", or "not there" if no end comes.
//
// crypto/tls reports io.EOF for a FIN without close_notify too; wire.ended tells these apart.
func (p *endPeer) readToEnd(certain int, arrived chan<- struct{}) (got []byte, how string) {
	p.SetReadDeadline(time.Now().Add(patience))
	report := sync.OnceFunc(func() { close(arrived) })
	defer report()
	for piece := make([]byte, 32<<10); ; {
		if len(got) >= certain {
			report()
		}
		n, err := p.Read(piece)
		got = append(got, piece[:n]...)
		switch _, secure := p.Conn.(*tls.Conn); {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return got, "not there"
		case err == io.EOF && !(secure && p.wire.ended):
			return got, "clean"
		default:
			return got, "cut"
		}
	}
}

// passText sends a text from one peer to the other.
func passText(from, to *endPeer, text string) error {
	got := make([]byte, len(text))
	if _, err := io.WriteString(from, text); err != nil {
		return err
	}
	to.SetReadDeadline(time.Now().Add(patience))
	_, err := io.ReadFull(to, got)
	return err
}

// doors are the ways through shaper: a listener at TCP, one at a unix socket whose upstream has
// another, and the entries, to which the client first says where it wants to go.
var doors = []string{"tcp", "unix", "socks5", "connect", "sni"}

// route is a listener of the testbed: a door, a protocol, with or without TLS on each side. A silent
// one has a short idle_timeout.
type route struct {
	door, protocol         string
	clientTLS, upstreamTLS bool
	silent                 bool
}

// exists reports whether a policy can have the route. Entries have no TLS with upstreams. At sni
// both sides speak it with each other.
func (r route) exists() bool {
	switch r.door {
	case "socks5", "connect":
		return !r.upstreamTLS
	case "sni":
		return r.protocol == "tcp" && r.clientTLS && r.upstreamTLS
	}
	return true
}

func (r route) name() string {
	return fmt.Sprintf("%s-%s-%t-%t-%t", r.door, r.protocol, r.clientTLS, r.upstreamTLS, r.silent)
}

// testbed is a daemon with a listener for each route.
type testbed struct {
	program *program
	routes  map[route]*endRoute
	pair    tls.Certificate
	ca      *authority
}

// endRoute is the listener of a route, and its upstream.
type endRoute struct {
	addr     string
	upstream acceptor

	mu sync.Mutex // held while a session is made, so that accept returns its other end
}

// acceptor is a *net.TCPListener or a *net.UnixListener.
type acceptor interface {
	net.Listener
	SetDeadline(time.Time) error
}

const testbedClasses = `
[class.bytes]
rate = "4MB/s"
per  = "connection"
[class.messages]
rate = "50 messages/s"
per  = "connection"
`

func newTestbed(t *testing.T) *testbed {
	s := &testbed{routes: map[route]*endRoute{}, ca: newAuthority(t)}
	s.pair = s.ca.issue("both", "127.0.0.1", time.Time{})
	var policy strings.Builder
	policy.WriteString(testbedClasses)
	for _, protocol := range []string{"tcp", "http", "smpp", "iso8583", "lines"} {
		for _, door := range doors {
			for n := range 8 {
				if r := (route{door, protocol, n&1 > 0, n&2 > 0, n&4 > 0}); r.exists() {
					policy.WriteString(s.add(t, r))
				}
			}
		}
	}
	s.program = start(t, plain(), policy.String())
	for _, l := range s.program.status().Listeners {
		for r, e := range s.routes {
			if r.name() == l.Name {
				e.addr = l.Addresses[0]
			}
		}
	}
	return s
}

// add starts the upstream of a route, and returns the section of its listener.
func (s *testbed) add(t *testing.T, r route) string {
	t.Helper()
	network, at := "tcp", "127.0.0.1:0"
	if r.door == "unix" {
		network, at = "unix", fmt.Sprintf("@shaper-%d-%s-%s", os.Getpid(), t.Name(), r.name())
	}
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s.routes[r] = &endRoute{upstream: l.(acceptor)}
	class, back := "messages", "messages"
	switch r.protocol {
	case "tcp":
		class, back = "bytes", "bytes"
	case "http":
		back = "bytes"
	}
	return fmt.Sprintf("[listener.%s]\nclass = %q\nreturn_class = %q\n%s", r.name(), class, back, s.keys(r, l.Addr()))
}

// keys returns the keys of a listener that depend on its route.
func (s *testbed) keys(r route, upstream net.Addr) (lines string) {
	set := func(key, value string) { lines += fmt.Sprintf("%s = %q\n", key, value) }
	switch r.door {
	case "tcp":
		set("listen", "127.0.0.1:0")
		set("upstream", upstream.String())
	case "unix":
		set("listen", "unix:"+upstream.String()+"-front")
		set("upstream", "unix:"+upstream.String())
	case "sni": // it leads "localhost" to the port at which it listens itself, at another address
		set("listen", fmt.Sprintf("127.53.17.9:%d", upstream.(*net.TCPAddr).Port))
	default:
		set("listen", "127.0.0.1:0")
	}
	switch r.door {
	case "tcp", "unix":
		set("protocol", r.protocol)
	default:
		set("mode", r.door)
		set("allow", "127.0.0.1")
		if r.door != "sni" {
			set("inside", r.protocol)
		}
	}
	if r.protocol == "iso8583" {
		set("length_prefix", "binary2")
	}
	if r.clientTLS && r.door != "sni" {
		lines += s.ca.terminating("both") + "\n"
	}
	if r.upstreamTLS && r.door != "sni" {
		lines += fmt.Sprintf("upstream_tls = { ca = %q, server_name = \"127.0.0.1\" }\n", s.ca.file)
	}
	if r.silent {
		set("idle_timeout", "5s") // longer than a busy machine lets a live session rest
	}
	return lines
}

// open makes a session for a case. It returns the peer that ends, and the other one.
func (s *testbed) open(c endCase) (from, to *endPeer, err error) {
	r := c.route()
	versions := &tls.Config{MinVersion: c.version, MaxVersion: c.version, RootCAs: s.ca.pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{s.pair}}
	if r.door == "sni" {
		versions.ServerName, versions.InsecureSkipVerify = "localhost", true
	}
	client, upstream, err := s.routes[r].connect(r, versions)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting: %w", err)
	}
	if c.side == "upstream" {
		return upstream, client, nil
	}
	return client, upstream, nil
}

// connect makes a session, with the handshakes that its route asks for.
func (e *endRoute) connect(r route, conf *tls.Config) (client, upstream *endPeer, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.dial(r)
	if err != nil {
		return nil, nil, err
	}
	client = newEndPeer(c)
	greeted := make(chan error, 1)
	go func() { greeted <- client.greet(r, e.upstream.Addr(), conf) }()
	e.upstream.SetDeadline(time.Now().Add(patience))
	u, err := e.upstream.Accept()
	if err != nil {
		c.Close()
		return nil, nil, errors.Join(err, <-greeted)
	}
	upstream = newEndPeer(u.(streamConn))
	if r.upstreamTLS {
		err = upstream.handshake(tls.Server(upstream.wire, conf))
	}
	return client, upstream, errors.Join(err, <-greeted)
}

// dial connects to the listener.
func (e *endRoute) dial(r route) (streamConn, error) {
	if name, isUnix := strings.CutPrefix(e.addr, "unix:"); isUnix {
		return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: name})
	}
	return dialFrom("", e.addr)
}

func newEndPeer(c streamConn) *endPeer {
	wire := &wireConn{streamConn: c}
	return &endPeer{Conn: wire, wire: wire}
}

// greet does what a client does before its data: the handshake of TLS, and what an entry asks for.
func (p *endPeer) greet(r route, upstream net.Addr, conf *tls.Config) error {
	if r.clientTLS {
		if err := p.handshake(tls.Client(p.wire, conf)); err != nil {
			return err
		}
	}
	switch r.door {
	case "socks5":
		to := upstream.(*net.TCPAddr).AddrPort()
		ask := binary.BigEndian.AppendUint16(append([]byte("\x05\x01\x00\x05\x01\x00\x01"), to.Addr().AsSlice()...), to.Port())
		return p.ask(string(ask), "\x05\x00\x05\x00\x00\x01", 6)
	case "connect":
		return p.ask(fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", upstream), "HTTP/1.1 200 Connection established\r\n\r\n", 0)
	}
	return nil
}

// ask sends a text, and reads the answer, which has some more bytes after what it must begin with.
func (p *endPeer) ask(text, answer string, more int) error {
	p.SetDeadline(time.Now().Add(patience))
	defer p.SetDeadline(time.Time{})
	got := make([]byte, len(answer)+more)
	_, err := io.WriteString(p, text)
	if _, e := io.ReadFull(p, got); err == nil {
		err = e
	}
	if err == nil && string(got[:len(answer)]) != answer {
		err = fmt.Errorf("the entry answers %q", got)
	}
	return err
}

// handshake makes TLS of the peer's connection.
func (p *endPeer) handshake(c *tls.Conn) error {
	p.wire.SetDeadline(time.Now().Add(patience))
	defer p.wire.SetDeadline(time.Time{})
	p.Conn = c
	return c.Handshake()
}
