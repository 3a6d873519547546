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

func dress(version uint16) string {
	if version == 0 {
		return "plain text"
	}
	return tls.VersionName(version)
}

// badRecord is one of TLS that no key has made.
var badRecord = append([]byte{23, 3, 3, 0, 64}, make([]byte, 64)...)

// tapped is a connection beneath TLS.
type tapped struct {
	*net.TCPConn
	poisoned bool // the next record is a bad one
	over     bool // TCP has ended
}

func (c *tapped) Read(p []byte) (int, error) {
	if c.poisoned {
		return copy(p, badRecord), nil
	}
	n, err := c.TCPConn.Read(p)
	c.over = c.over || err != nil
	return n, err
}

// endPeer is one of the two that talk through shaper.
type endPeer struct {
	net.Conn // plain text, or *tls.Conn
	wire     *tapped
}

// end ends the connection, as far as the peer sends. It can still read.
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
	case "alert": // what TLS says of a bad record
		p.wire.poisoned = true
		p.Conn.Read(make([]byte, 1))
		p.wire.CloseWrite()
	case "garbage":
		p.wire.Write(badRecord)
	}
}

// see reads to the end, tells when so many bytes have arrived, and returns how it ended:
// clean, cut, or not at all. Go takes a FIN without a close_notify for an end of TLS.
func (p *endPeer) see(whole int, arrived chan<- struct{}) (got []byte, how string) {
	p.SetReadDeadline(time.Now().Add(patience))
	tell := sync.OnceFunc(func() { close(arrived) })
	defer tell()
	for piece := make([]byte, 32<<10); ; {
		if len(got) >= whole {
			tell()
		}
		n, err := p.Read(piece)
		got = append(got, piece[:n]...)
		switch _, secure := p.Conn.(*tls.Conn); {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return got, "not there"
		case err == io.EOF && !(secure && p.wire.over):
			return got, "clean"
		default:
			return got, "cut"
		}
	}
}

// pass has one peer send a text, and the other one read it.
func pass(from, to *endPeer, text string) error {
	got := make([]byte, len(text))
	if _, err := io.WriteString(from, text); err != nil {
		return err
	}
	to.SetReadDeadline(time.Now().Add(patience))
	_, err := io.ReadFull(to, got)
	return err
}

// stage is a daemon with a listener for each protocol, with and without TLS on each side,
// and with a short time-out or none.
type stage struct {
	program *program
	routes  map[route]*endRoute
	pair    tls.Certificate
	ca      *authority
}

type route struct {
	protocol               string
	clientTLS, upstreamTLS bool
	silent                 bool
}

// endRoute is where a listener is, and what it leads to.
type endRoute struct {
	mu       sync.Mutex // a connection is made at a time, so that both ends are known
	addr     string
	upstream *net.TCPListener
}

const stageClasses = `
[class.bytes]
rate = "4MB/s"
per  = "connection"
[class.messages]
rate = "50 messages/s"
per  = "connection"
`

func newStage(t *testing.T) *stage {
	s := &stage{routes: map[route]*endRoute{}, ca: newAuthority(t)}
	s.pair = s.ca.issue("both", "127.0.0.1", time.Time{})
	var policy strings.Builder
	policy.WriteString(stageClasses)
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

// keys returns the lines of a listener that not all have.
func (s *stage) keys(r route) (lines string) {
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

// open makes a session for a case: the side that ends, and the other one.
func (s *stage) open(c endCase) (from, to *endPeer, err error) {
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

// connect makes a session, and the TLS that it is within.
func (e *endRoute) connect(r route, conf *tls.Config) (client, upstream *endPeer, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := dialFrom("", e.addr)
	if err != nil {
		return nil, nil, err
	}
	client = &endPeer{wire: &tapped{TCPConn: c}}
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
	upstream = &endPeer{wire: &tapped{TCPConn: u}}
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
