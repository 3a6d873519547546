package conn

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"shaper/stats"
	"shaper/tests/trial"
)

// A moment is where in a protocol one side ends.
type moment struct {
	name, said string
	arrives    string // what of said arrives before a clean end
	remains    string // what of said arrives before a cut
	ends       bool   // an end here is clean; otherwise it cuts a message short
	owed       string // what the other side still says after an end, and arrives before the session is cut
}

// everywhere is a moment at which all bytes pass as they come.
func everywhere(name, said string, ends bool) moment { return moment{name, said, said, said, ends, ""} }

// gathered are the moments of a protocol whose messages are gathered.
func gathered(message string) []moment {
	return []moment{
		everywhere("before a message", "", true),
		everywhere("between messages", message, true),
		{"amid a message", message + message[:len(message)-1], message, message, false, ""},
	}
}

const (
	anAsk    = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	asksMore = "POST / HTTP/1.1\r\nHost: x\r\n"
	anAnswer = "HTTP/1.1 200 OK\r\n"
	upgrades = "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
)

var momentsUp = map[string][]moment{
	"tcp":     {everywhere("before a byte", "", true), everywhere("amid bytes", "some bytes", true)},
	"smpp":    gathered(submitFrom("a", 1)),
	"iso8583": gathered("00080200abcd"),
	"lines": {
		everywhere("between messages", "line\n", true),
		{"amid a message", "line\nand half", "line\nand half", "line\n", true, ""},
	},
	"http": {
		everywhere("between messages", anAsk, true),
		{"amid a head", anAsk + asksMore, anAsk, anAsk, false, anAnswer + "Content-Length: 5\r\n\r\nhello"},
		everywhere("amid a body with a length", asksMore+"Content-Length: 9\r\n\r\nhello", false),
		everywhere("amid chunks", asksMore+"Transfer-Encoding: chunked\r\n\r\n9\r\nhello", false),
	},
}

var momentsDown = map[string][]moment{
	"tcp":     momentsUp["tcp"],
	"smpp":    gathered(pdu(deliver, 0, 1, "")),
	"iso8583": gathered("00080210abcd"),
	"lines":   momentsUp["lines"],
	"http": {
		everywhere("instead of an answer", "", true),
		everywhere("between messages", anAnswer+"Content-Length: 5\r\n\r\nhello", true),
		{"amid a head", anAnswer, "", "", false, ""},
		everywhere("amid a body without a length", anAnswer+"\r\nhello", true),
		everywhere("amid a body with a length", anAnswer+"Content-Length: 9\r\n\r\nhello", false),
		everywhere("amid chunks", anAnswer+"Transfer-Encoding: chunked\r\n\r\n9\r\nhello", false),
		everywhere("behind an upgrade", "HTTP/1.1 101 Switching Protocols\r\n"+upgrades+"bytes", true),
	},
}

// An ending is how one side of a session ends what it says.
type ending struct {
	name  string
	do    func(*party)
	clean bool
	loses bool // what comes before it may be lost
	cause stats.Result
}

var endingsPlain = []ending{
	{"FIN", func(p *party) { p.tcp.CloseWrite() }, true, false, stats.OK},
	{"RST", func(p *party) { reset(p.tcp) }, false, true, stats.ResetByPeer},
}

var endingsTLS = []ending{
	{"close_notify", func(p *party) { p.CloseWrite() }, true, false, stats.OK},
	{"close_notify and FIN", func(p *party) { p.CloseWrite(); p.tcp.CloseWrite() }, true, false, stats.OK},
	{"FIN", func(p *party) { p.tcp.CloseWrite() }, false, false, stats.ResetByPeer},
	{"RST", func(p *party) { reset(p.tcp) }, false, true, stats.ResetByPeer},
	{"alert", func(p *party) { p.spoiled.Store(true); p.Read(make([]byte, 1)) }, false, true, stats.TLSFailed},
	{"bad record", func(p *party) { io.WriteString(p.tcp, badRecord) }, false, true, stats.TLSFailed},
}

// badRecord is a record of application data that nobody has encrypted.
var badRecord = "\x17\x03\x03\x00\x20" + strings.Repeat("x", 32)

// One side ends, in each way, at each moment of each protocol, with and without TLS. What came
// before the end arrives. The other side sees a clean end if the end was clean, and otherwise
// a reset.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"tcp", "smpp", "iso8583", "lines", "http"} {
		for _, secure := range []struct{ client, upstream bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
			t.Run(fmt.Sprintf("%s client TLS %v upstream TLS %v", protocol, secure.client, secure.upstream), func(t *testing.T) {
				s := runEnds(t, protocol, secure.client, secure.upstream)
				for _, fromClient := range []bool{true, false} {
					s.try(fromClient)
				}
			})
		}
	}
}

// ends is a rig in which sessions end.
type ends struct {
	*rig
	*authority
	cert             issued
	conns            <-chan tcpConn
	protocol         string
	client, upstream bool // whether they speak TLS
}

func runEnds(t *testing.T, protocol string, client, upstream bool) *ends {
	a := newAuthority(t)
	s := &ends{authority: a, cert: a.issue("server"), protocol: protocol, client: client, upstream: upstream}
	addr, conns := listen(t)
	var lines []string
	if client {
		lines = append(lines, s.cert.terminating())
	}
	if upstream {
		lines = append(lines, a.originating(""))
	}
	if protocol == "iso8583" {
		lines = append(lines, `length_prefix = "ascii4"`)
	}
	rate := "1000000 messages/s"
	if protocol == "tcp" {
		rate = fast
	}
	s.conns = conns
	s.rig = run(t, class("c", rate)+listener("l", protocol, addr, "c", lines...))
	return s
}

// try ends one side in every way at every moment.
func (s *ends) try(fromClient bool) {
	moments, secure := momentsUp[s.protocol], s.client
	if !fromClient {
		moments, secure = momentsDown[s.protocol], s.upstream
	}
	ways := endingsPlain
	if secure {
		ways = endingsTLS
	}
	from := map[bool]string{true: "client", false: "upstream"}[fromClient]
	for _, m := range moments {
		for _, e := range ways {
			s.end(fmt.Sprintf("%s: %s ends by %s %s", s.protocol, from, e.name, m.name), fromClient, m, e)
		}
	}
}

func (s *ends) end(what string, fromClient bool, m moment, e ending) {
	t := s.rig.t
	client, upstream := s.meet()
	defer client.tcp.Close()
	defer upstream.tcp.Close()
	speaker, listener := client, upstream
	if !fromClient {
		speaker, listener = upstream, client
		s.askFirst(client, upstream, strings.HasPrefix(m.said, "HTTP/1.1 101"))
	}
	clean, want, result := e.clean && m.ends, m.arrives, e.cause
	switch {
	case !e.clean:
		want = m.remains
	case !m.ends:
		result = stats.Unframed
	}
	before := s.service("l").stats.Ended[result].Load()
	send(t, speaker, m.said)
	expectOf(t, what, listener, m.remains)
	if e.do(speaker); e.clean && m.owed != "" {
		send(t, listener, m.owed)
		expectOf(t, what+", and is owed this", speaker, m.owed)
	}
	rest, err := io.ReadAll(listener)
	if got := m.remains + string(rest); got != want && !e.loses {
		t.Errorf("%s: %q arrives, want %q", what, got, want)
	}
	if clean != (err == nil) {
		t.Errorf("%s: the other side sees %v", what, err)
	}
	if clean {
		listener.CloseWrite()
	}
	trial.Await(t, what+", and the session has ended: "+result.String(), func() bool {
		return s.service("l").stats.Ended[result].Load() == before+1
	})
}

func expectOf(t testing.TB, what string, c io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("%s: %q arrives, %v, want %q", what, got[:n], err, want)
	}
}

// askFirst asks the upstream something, if it speaks only when asked.
func (s *ends) askFirst(client, upstream *party, forUpgrade bool) {
	if s.protocol != "http" {
		return
	}
	ask := anAsk
	if forUpgrade {
		ask = "GET / HTTP/1.1\r\nHost: x\r\n" + upgrades
	}
	send(s.rig.t, client, ask)
	expect(s.rig.t, upstream, ask)
}

// meet opens a session from the client to the upstream.
func (s *ends) meet() (client, upstream *party) {
	t := s.rig.t
	client = &party{tcp: s.dial("l")}
	client.halfCloser = client.tcp
	if s.client {
		client.over(t, func(c net.Conn) *tls.Conn { return tls.Client(c, s.trusting()) })
	}
	upstream = &party{tcp: next(t, s.conns)}
	upstream.halfCloser = upstream.tcp
	if s.upstream {
		upstream.over(t, func(c net.Conn) *tls.Conn { return tls.Server(c, serving(s.cert)) })
	}
	trial.Await(t, "the session relays", func() bool { all := s.Sessions(); return len(all) == 1 && all[0].Upstream != "" })
	return client, upstream
}

// party is one end of a session, with TLS or without.
type party struct {
	halfCloser
	tcp     tcpConn
	spoiled atomic.Bool // it reads what is no TLS, and so sends an alert
}

// over starts TLS on the connection.
func (p *party) over(t testing.TB, begin func(net.Conn) *tls.Conn) {
	t.Helper()
	c := begin(spoiler{p.tcp, &p.spoiled})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	p.halfCloser = c
}

// spoiler reads a bad record when it is told to.
type spoiler struct {
	tcpConn
	spoiled *atomic.Bool
}

func (s spoiler) Read(p []byte) (int, error) {
	if s.spoiled.Load() {
		return copy(p, badRecord), nil
	}
	return s.tcpConn.Read(p)
}
