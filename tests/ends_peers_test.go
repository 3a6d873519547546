package tests

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
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

// wireConn is the TCP connection beneath TLS, or the whole of a plain one.
type wireConn struct {
	*net.TCPConn
	corrupt bool // Read returns badRecord
	ended   bool // TCP has reported an end or an error
}

func (c *wireConn) Read(p []byte) (int, error) {
	if c.corrupt {
		return copy(p, badRecord), nil
	}
	n, err := c.TCPConn.Read(p)
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
	case "RST":
		p.wire.SetLinger(0)
		p.wire.Close()
	case "notify":
		p.Conn.(*tls.Conn).CloseWrite()
		p.wire.CloseWrite()
	case "alert": // TLS answers a bad record with an alert
		p.wire.corrupt = true
		p.Conn.Read(make([]byte, 1))
		p.wire.CloseWrite()
	case "garbage":
		p.wire.Write(badRecord)
	}
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

// testbed is a daemon with a listener for each route: each protocol, with and without TLS on each
// side, with and without a short idle_timeout.
type testbed struct {
	program *program
	routes  map[route]*endRoute
	pair    tls.Certificate
	ca      *authority
}

type route struct {
	protocol               string
	clientTLS, upstreamTLS bool
	silent                 bool // the listener has a short idle_timeout
}

// endRoute is the listener of a route, and its upstream.
type endRoute struct {
	addr     string
	upstream *net.TCPListener

	mu sync.Mutex // held while a session is made, so that accept returns its other end
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
	classes := map[string][2]string{"tcp": {"bytes", "bytes"}, "http": {"messages", "bytes"}, "smpp": {"messages", "messages"},
		"iso8583": {"messages", "messages"}, "lines": {"messages", "messages"}}
	for protocol, class := range classes {
		for n := range 8 {
			r := route{protocol, n&1 > 0, n&2 > 0, n&4 > 0}
			l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			s.routes[r] = &endRoute{upstream: l}
			fmt.Fprintf(&policy, "[listener.%s]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = %q\nclass = %q\nreturn_class = %q\n", r.name(), protocol, l.Addr(), class[0], class[1])
			policy.WriteString(s.keys(r))
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

func (r route) name() string {
	return fmt.Sprintf("%s-%t-%t-%t", r.protocol, r.clientTLS, r.upstreamTLS, r.silent)
}

// keys returns the keys of a listener that depend on its route.
func (s *testbed) keys(r route) (lines string) {
	if r.protocol == "iso8583" {
		lines += "length_prefix = \"binary2\"\n"
	}
	if r.clientTLS {
		lines += s.ca.terminating("both") + "\n"
	}
	if r.upstreamTLS {
		lines += s.ca.originating("") + "\n"
	}
	if r.silent {
		lines += "idle_timeout = \"2s\"\n"
	}
	return lines
}

// open makes a session for a case. It returns the peer that ends, and the other one.
func (s *testbed) open(c endCase) (from, to *endPeer, err error) {
	r := route{c.protocol, c.version > 0, c.otherTLS, c.way == "silence"}
	if c.side == "upstream" {
		r.clientTLS, r.upstreamTLS = r.upstreamTLS, r.clientTLS
	}
	versions := &tls.Config{MinVersion: c.version, MaxVersion: c.version, RootCAs: s.ca.pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{s.pair}}
	client, upstream, err := s.routes[r].connect(r, versions)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting: %w", err)
	}
	if c.side == "upstream" {
		return upstream, client, nil
	}
	return client, upstream, nil
}

// connect makes a session, with the TLS handshakes that its route asks for.
func (e *endRoute) connect(r route, conf *tls.Config) (client, upstream *endPeer, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := dialFrom("", e.addr)
	if err != nil {
		return nil, nil, err
	}
	client = &endPeer{wire: &wireConn{TCPConn: c}}
	if client.Conn = client.wire; r.clientTLS {
		client.Conn = tls.Client(client.wire, conf)
		if err := client.handshake(); err != nil {
			return nil, nil, err
		}
	}
	e.upstream.SetDeadline(time.Now().Add(patience))
	u, err := e.upstream.AcceptTCP()
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	upstream = &endPeer{wire: &wireConn{TCPConn: u}}
	if upstream.Conn = upstream.wire; r.upstreamTLS {
		upstream.Conn = tls.Server(upstream.wire, conf)
		err = upstream.handshake()
	}
	return client, upstream, err
}

func (p *endPeer) handshake() error {
	p.SetDeadline(time.Now().Add(patience))
	defer p.SetDeadline(time.Time{})
	return p.Conn.(*tls.Conn).Handshake()
}
