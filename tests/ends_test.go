package tests

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"shaper/tests/trial"
)

// ends says what one side sees if the other side ends, in each protocol, at each place in the
// stream, in each way. A clean end comes after all bytes: it is a FIN, in TLS after a
// close_notify. A cut end is a reset, or in TLS the lack of a close_notify.
//
// The end must be clean if the other side ended with a FIN (plain text) or a close_notify (TLS),
// and not within a message. In all other cases it must be cut. An end completes the last line.
// "notify" is a close_notify with a FIN, "notify,open" one without. If a RST follows an end, the other
// side may see a clean end or a cut one, but a clean one only after all bytes ("whole"). A client of HTTP that
// ends within a request gets the answers to those before it, and then the end is cut ("owed"). Each way into shaper
// and out of it (see doors) has the same ends.
const ends = `
side      protocol  place    FIN    FIN,RST  RST  silence  TLS:notify  TLS:notify,open  TLS:notify,RST  TLS:FIN  TLS:RST  TLS:alert  TLS:garbage  TLS:silence

client    tcp       start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    tcp       body     clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    http      start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    http      between  clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    http      head     owed   cut      cut  cut      owed        owed             cut             cut      cut      cut        cut          cut
client    http      length   owed   cut      cut  cut      owed        owed             cut             cut      cut      cut        cut          cut
client    http      chunk    owed   cut      cut  cut      owed        owed             cut             cut      cut      cut        cut          cut
client    http      tunnel   clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    smpp      start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    smpp      between  clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    smpp      head     cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
client    smpp      length   cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
client    iso8583   start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    iso8583   between  clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    iso8583   length   cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
client    lines     start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    lines     between  clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
client    lines     line     clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut

upstream  tcp       start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  tcp       body     clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  http      start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  http      asked    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  http      between  clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  http      head     cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
upstream  http      length   cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
upstream  http      chunk    cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
upstream  http      body     clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  http      tunnel   clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  smpp      start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  smpp      between  clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  smpp      head     cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
upstream  smpp      length   cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
upstream  iso8583   start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  iso8583   between  clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  iso8583   length   cut    cut      cut  cut      cut         cut              cut             cut      cut      cut        cut          cut
upstream  lines     start    clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  lines     between  clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
upstream  lines     line     clean  whole    cut  cut      clean       clean            whole           cut      cut      cut        cut          cut
`

// endCase is a cell of the table, for one version of TLS, with or without TLS on the other side.
type endCase struct {
	side, protocol, place string // side is the one that ends
	version               uint16 // of TLS on that side; 0: plain text
	way                   string
	otherTLS              bool
	door                  string // how the session goes in and out; see doors
	want                  string
}

func (c endCase) String() string {
	return fmt.Sprintf("%s, %s %s %s, %s (%s), to %s", c.door, c.side, c.protocol, c.place, c.way, versionName(c.version), map[bool]string{false: "plain text", true: "TLS"}[c.otherTLS])
}

// endCases returns the cases of the table, for each door and both versions of TLS, and with plain text and TLS on
// the other side. Unless sizes are full, the other side has one of these. They take turns from one cell, door and
// version to the next.
func endCases() (all []endCase) {
	rows := strings.Split(strings.TrimSpace(ends), "\n")
	ways := strings.Fields(rows[0])
	for n, row := range rows[1:] {
		cells := strings.Fields(row)
		for i := 3; i < len(cells); i++ {
			c := endCase{side: cells[0], protocol: cells[1], place: cells[2], way: ways[i], want: cells[i]}
			versions := []uint16{0}
			if way, ok := strings.CutPrefix(c.way, "TLS:"); ok {
				c.way, versions = way, tlsVersions
			}
			for v, version := range versions {
				for d, door := range doors {
					c.version, c.door = version, door
					all = append(all, c.withOtherSides((n+i+v+d)%2 > 0)...)
				}
			}
		}
	}
	return all
}

// withOtherSides returns the case with plain text and with TLS on the other side, as far as they exist: the one of
// turn first. Unless sizes are full, it returns one.
func (c endCase) withOtherSides(turn bool) (all []endCase) {
	for _, c.otherTLS = range []bool{turn, !turn} {
		if c.exists() {
			all = append(all, c)
		}
	}
	return all[:min(len(all), trial.Size(1, 2))]
}

// script says what both sides send before an end.
type script struct {
	opening string // the side that ends sends this first
	reply   string // then the other side sends this
	sent    string // then the side that ends sends this
	certain int    // bytes of sent that must arrive in each way to end; no others arrive before a cut
}

var (
	submit   = string(pdu(4, strings.Repeat("s", 44)))
	deliver  = string(pdu(5, strings.Repeat("d", 44)))
	purchase = string(isoLink{prefix: "binary2"}.message("0200" + strings.Repeat("p", 50)))
)

const (
	request  = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	textLine = "a line\n"

	upgrade  = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
	upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
)

// pdu returns an SMPP PDU with sequence number 7.
func pdu(command uint32, body string) (p []byte) {
	for _, word := range []uint32{uint32(16 + len(body)), command, 0, 7} {
		p = binary.BigEndian.AppendUint32(p, word)
	}
	return append(p, body...)
}

// longBody returns a body that is longer than one read of a socket.
var longBody = sync.OnceValue(func() string { return string(noise(1, 200_000)) })

// message returns a message of the side that ends.
func (c endCase) message() string {
	return map[string]string{"clienthttp": request, "upstreamhttp": response, "clientsmpp": submit, "upstreamsmpp": deliver,
		"clientiso8583": purchase, "upstreamiso8583": purchase, "clientlines": textLine, "upstreamlines": textLine}[c.side+c.protocol]
}

// script returns the script for the case's place. It sends three messages at once, so that they
// wait for their class, and bodies that are longer than one read of a socket.
func (c endCase) script() (s script) {
	message := c.message()
	start := map[string]string{"client": "POST / HTTP/1.1\r\nHost: h\r\n", "upstream": "HTTP/1.1 200 OK\r\n"}[c.side]
	body := longBody()
	if c.side == "upstream" && c.protocol == "http" && c.place != "start" {
		s.reply = strings.Repeat(request, 3)
	}
	switch c.place {
	case "start", "asked":
	case "between":
		s.sent = strings.Repeat(message, 3)
		s.certain = len(s.sent)
	case "head":
		s.sent = message + message[:7]
		s.certain = len(message)
	case "length", "line":
		s.sent = message + message[:len(message)-3]
		s.certain = len(message)
		if c.protocol == "http" {
			s.sent = message + start + "Content-Length: 200001\r\n\r\n" + body
			s.certain = len(s.sent)
		}
	case "chunk":
		s.sent = message + start + "Transfer-Encoding: chunked\r\n\r\n30d41\r\n" + body
		s.certain = len(s.sent)
	case "tunnel":
		s.opening, s.reply, s.sent = upgrade, upgraded, body
		if c.side == "upstream" {
			s.opening, s.reply, s.sent = "", upgrade, upgraded+body
		}
		s.certain = len(s.sent)
	case "body":
		s.sent = body
		if c.protocol == "http" {
			s.sent = message + start + "\r\n" + body
		}
		s.certain = len(s.sent)
	}
	return s
}

// Each end looks as the table says. At most 100 cases run at a time.
func TestEnds(t *testing.T) {
	t.Parallel()
	cases, testbed := endCases(), newTestbed(t)
	var all sync.WaitGroup
	running := make(chan struct{}, 100)
	for _, c := range cases {
		running <- struct{}{}
		all.Go(func() {
			defer func() { <-running }()
			if err := c.play(testbed); err != nil {
				t.Errorf("%v: %v", c, err)
			}
		})
	}
	all.Wait()
	t.Logf("%d cases", len(cases))
}

// exists reports whether the case can be. What concerns TLS alone, its older version and its faults,
// is tried at the first door only. A unix socket is reset with bytes unread, and no server answers
// what was not asked.
func (c endCase) exists() bool {
	ofTLS := c.version == tls.VersionTLS12 || c.way == "alert" || c.way == "garbage"
	mute := c.resets() && c.door == "unix" && c.side == "client" && c.protocol == "http" && c.place == "start"
	return c.route().exists() && !mute && (c.door == "tcp" || !ofTLS)
}

// flipped returns the case with the other side as the one that ends.
func (c endCase) flipped() endCase {
	c.side = map[string]string{"client": "upstream", "upstream": "client"}[c.side]
	return c
}

// route returns the route of the case's session.
func (c endCase) route() route {
	r := route{c.door, c.protocol, c.version > 0, c.otherTLS, c.way == "silence"}
	if c.side == "upstream" {
		r.clientTLS, r.upstreamTLS = r.upstreamTLS, r.clientTLS
	}
	return r
}

// aborts reports whether the peer ends by giving up. Shaper may then drop what waits for its
// class, so play ends only after the certain bytes have arrived.
func (c endCase) aborts() bool { return c.resets() || c.way == "alert" || c.way == "garbage" }

// resets reports whether the peer resets its connection.
func (c endCase) resets() bool { return strings.HasSuffix(c.way, "RST") }

// asks reports whether the other side sends one more message, which the peer leaves unread: so a unix socket is reset.
func (c endCase) asks() bool { return c.resets() && c.door == "unix" }

// asksInVain reports whether that message is a request that the server's end can overtake. It is refused then: it has
// never left.
func (c endCase) asksInVain() bool {
	return c.asks() && c.want == "whole" && c.side == "upstream" && c.protocol == "http"
}

// play runs the case's script, ends one side, and checks what the other side sees.
func (c endCase) play(testbed *testbed) error {
	from, to, err := testbed.open(c)
	if err != nil {
		return err
	}
	defer from.wire.Close()
	defer to.wire.Close()
	s := c.script()
	if err := errors.Join(passText(from, to, s.opening), passText(to, from, s.reply)); err != nil {
		return fmt.Errorf("before the end: %w", err)
	}
	arrived := make(chan struct{})
	go func() {
		from.Write([]byte(s.sent))
		if c.aborts() {
			<-arrived
		}
		if c.asks() {
			io.WriteString(to, cmp.Or(c.flipped().message(), "bytes"))
		}
		from.end(c.way)
	}()
	if c.want == "owed" {
		go func() {
			<-arrived
			io.WriteString(to, response)
		}()
	}
	got, how := to.readToEnd(s.certain, arrived)
	if c.asksInVain() {
		got, _, _ = bytes.Cut(got, []byte("HTTP/1.1 429 "))
	}
	want, least, most := to.sees(c.want), len(s.sent), len(s.sent)
	switch {
	case c.want == "cut", c.want == "owed":
		want, least, most = to.sees("cut"), s.certain, s.certain
	case c.want == "whole" && how == to.sees("cut"): // at a unix socket that may be either
		want, least = to.sees("cut"), s.certain
	case c.want == "whole":
		want = "clean"
	}
	switch {
	case how != want:
		return fmt.Errorf("the end is %s, want %s, after %d bytes of %d", how, c.want, len(got), len(s.sent))
	case !strings.HasPrefix(s.sent, string(got)):
		return fmt.Errorf("the bytes that arrive differ from those sent: %.60q", got)
	case len(got) < least || len(got) > most:
		return fmt.Errorf("%d bytes arrive of %d, want from %d to %d", len(got), len(s.sent), least, most)
	case c.way == "silence":
		if _, how := from.readToEnd(0, make(chan struct{})); how != from.sees("cut") {
			return fmt.Errorf("the silent side sees an end that is %s, want cut", how)
		}
	case c.want == "owed":
		if got, _ := from.readToEnd(0, make(chan struct{})); string(got) != response {
			return fmt.Errorf("%q is the answer to the request before, want %q", got, response)
		}
	case c.want == "clean":
		return c.answer(to, from)
	}
	return nil
}

// answer checks that the other direction goes on after a clean end: what the other side sends
// then arrives, and so does its clean end.
func (c endCase) answer(from, to *endPeer) error {
	if c.side == "upstream" && c.protocol == "http" || c.place != "between" && c.place != "tunnel" && c.protocol != "tcp" {
		return nil
	}
	way := "FIN"
	if c.otherTLS {
		way = "notify"
	}
	s := c.flipped().script()
	s.sent = strings.TrimPrefix(s.sent, upgraded)
	go func() {
		from.Write([]byte(s.sent))
		from.end(way)
	}()
	if got, how := to.readToEnd(0, make(chan struct{})); how != "clean" || string(got) != s.sent {
		return fmt.Errorf("after the end, %d bytes of %d arrive in the other direction, and an end that is %s, want clean", len(got), len(s.sent), how)
	}
	return nil
}

// If shaper stops, both sides of its sessions see a cut end, whether a message is whole or not.
func TestStopIsNoCleanEnd(t *testing.T) {
	t.Parallel()
	testbed := newTestbed(t)
	var peers []*endPeer
	var names []string
	for _, c := range endCases() {
		if c.way == "FIN" && (c.place == "between" || c.place == "length" || c.place == "body") {
			from, to, err := testbed.open(c)
			if err != nil {
				t.Fatal(err)
			}
			defer from.wire.Close()
			defer to.wire.Close()
			s := c.script()
			if err := errors.Join(passText(from, to, s.opening), passText(to, from, s.reply)); err != nil {
				t.Fatal(err)
			}
			go from.Write([]byte(s.sent))
			peers, names = append(peers, from, to), append(names, c.String()+", from", c.String()+", to")
		}
	}
	testbed.program.stop()
	for i, p := range peers {
		if _, how := p.readToEnd(0, make(chan struct{})); how != "cut" && how != p.sees("cut") {
			t.Errorf("%s: the end is %s, want cut", names[i], how)
		}
	}
}
