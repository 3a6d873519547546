package tests

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// ends says what one side sees when the other one ends: in each protocol, at each place in
// the stream, in each way. An end that came by a fault is cut: a reset, or in TLS no
// close_notify. A clean one is a FIN, in TLS behind a close_notify, and comes after all bytes.
//
// In plain text a FIN is clean, unless it stands within a message: then what came is not
// whole. In TLS only a close_notify can be clean.
const ends = `
side      protocol  place    FIN    RST  silence  TLS:notify  TLS:FIN  TLS:RST  TLS:alert  TLS:garbage  TLS:silence

client    tcp       start    clean  cut  cut      clean       cut      cut      cut        cut          cut
client    tcp       body     clean  cut  cut      clean       cut      cut      cut        cut          cut
client    http      start    clean  cut  cut      clean       cut      cut      cut        cut          cut
client    http      between  clean  cut  cut      clean       cut      cut      cut        cut          cut
client    http      head     cut    cut  cut      cut         cut      cut      cut        cut          cut
client    http      length   cut    cut  cut      cut         cut      cut      cut        cut          cut
client    http      chunk    cut    cut  cut      cut         cut      cut      cut        cut          cut
client    http      tunnel   clean  cut  cut      clean       cut      cut      cut        cut          cut
client    smpp      start    clean  cut  cut      clean       cut      cut      cut        cut          cut
client    smpp      between  clean  cut  cut      clean       cut      cut      cut        cut          cut
client    smpp      head     cut    cut  cut      cut         cut      cut      cut        cut          cut
client    smpp      length   cut    cut  cut      cut         cut      cut      cut        cut          cut
client    iso8583   start    clean  cut  cut      clean       cut      cut      cut        cut          cut
client    iso8583   between  clean  cut  cut      clean       cut      cut      cut        cut          cut
client    iso8583   length   cut    cut  cut      cut         cut      cut      cut        cut          cut
client    lines     start    clean  cut  cut      clean       cut      cut      cut        cut          cut
client    lines     between  clean  cut  cut      clean       cut      cut      cut        cut          cut
client    lines     line     clean  cut  cut      clean       cut      cut      cut        cut          cut

upstream  tcp       start    clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  tcp       body     clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  http      start    clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  http      asked    clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  http      between  clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  http      head     cut    cut  cut      cut         cut      cut      cut        cut          cut
upstream  http      length   cut    cut  cut      cut         cut      cut      cut        cut          cut
upstream  http      chunk    cut    cut  cut      cut         cut      cut      cut        cut          cut
upstream  http      body     clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  http      tunnel   clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  smpp      start    clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  smpp      between  clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  smpp      head     cut    cut  cut      cut         cut      cut      cut        cut          cut
upstream  smpp      length   cut    cut  cut      cut         cut      cut      cut        cut          cut
upstream  iso8583   start    clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  iso8583   between  clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  iso8583   length   cut    cut  cut      cut         cut      cut      cut        cut          cut
upstream  lines     start    clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  lines     between  clean  cut  cut      clean       cut      cut      cut        cut          cut
upstream  lines     line     clean  cut  cut      clean       cut      cut      cut        cut          cut
`

// endCase is a cell of the table, with TLS or not on the side that does not end.
type endCase struct {
	side, protocol, place string
	version               uint16 // of TLS on the side that ends; 0: plain text
	way                   string
	otherTLS              bool
	want                  string
}

func (c endCase) String() string {
	return fmt.Sprintf("%s %s %s, %s (%s), to %s", c.side, c.protocol, c.place, c.way, dress(c.version), map[bool]string{false: "plain text", true: "TLS"}[c.otherTLS])
}

// endCases reads the table. TLS is tried in both versions.
func endCases() (all []endCase) {
	rows := strings.Split(strings.TrimSpace(ends), "\n")
	ways := strings.Fields(rows[0])
	for _, row := range rows[1:] {
		cells := strings.Fields(row)
		for i := 3; i < len(cells); i++ {
			c := endCase{side: cells[0], protocol: cells[1], place: cells[2], way: ways[i], want: cells[i]}
			versions := []uint16{0}
			if way, ok := strings.CutPrefix(c.way, "TLS:"); ok {
				c.way, versions = way, tlsVersions
			}
			for _, c.version = range versions {
				for _, c.otherTLS = range []bool{false, true} {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// script is what stands before an end.
type script struct {
	opening string // what the side that ends sends first
	asked   string // what the other side sends then
	sent    string
	whole   int // how much of it arrives, however it ends
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

// pdu returns one of SMPP.
func pdu(command uint32, body string) (p []byte) {
	for _, word := range []uint32{uint32(16 + len(body)), command, 0, 7} {
		p = binary.BigEndian.AppendUint32(p, word)
	}
	return append(p, body...)
}

// script returns what is sent at a place. Three messages at once make them wait for their
// class, and a body is more than sockets are read of at once.
func (c endCase) script() (s script) {
	message := map[string]string{"clienthttp": request, "upstreamhttp": response, "clientsmpp": submit, "upstreamsmpp": deliver,
		"clientiso8583": purchase, "upstreamiso8583": purchase, "clientlines": textLine, "upstreamlines": textLine}[c.side+c.protocol]
	start := map[string]string{"client": "POST / HTTP/1.1\r\nHost: h\r\n", "upstream": "HTTP/1.1 200 OK\r\n"}[c.side]
	body := string(noise(1, 200_000))
	if c.side == "upstream" && c.protocol == "http" && c.place != "start" {
		s.asked = strings.Repeat(request, 3)
	}
	switch c.place {
	case "start", "asked":
	case "between":
		s.sent = strings.Repeat(message, 3)
		s.whole = len(s.sent)
	case "head":
		s.sent = message + message[:7]
		s.whole = len(message)
	case "length", "line":
		s.sent = message + message[:len(message)-3]
		s.whole = len(message)
		if c.protocol == "http" {
			s.sent = message + start + "Content-Length: 200001\r\n\r\n" + body
			s.whole = len(s.sent)
		}
	case "chunk":
		s.sent = message + start + "Transfer-Encoding: chunked\r\n\r\n30d41\r\n" + body
		s.whole = len(s.sent)
	case "tunnel":
		s.opening, s.asked, s.sent = upgrade, upgraded, body
		if c.side == "upstream" {
			s.opening, s.asked, s.sent = "", upgrade, upgraded+body
		}
		s.whole = len(s.sent)
	case "body":
		s.sent = body
		if c.protocol == "http" {
			s.sent = message + start + "\r\n" + body
		}
		s.whole = len(s.sent)
	}
	return s
}

// Each end in the table is seen as the table says.
func TestEnds(t *testing.T) {
	t.Parallel()
	cases, stage := endCases(), newStage(t)
	var all sync.WaitGroup
	places := make(chan struct{}, 100)
	for _, c := range cases {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if err := c.play(stage); err != nil {
				t.Errorf("%v: %v", c, err)
			}
		})
	}
	all.Wait()
	t.Logf("%d ends", len(cases))
}

// aborts reports whether the way to end says that the peer has given up: what waits for its
// class then may be lost, so that it is only tried when that has arrived.
func (c endCase) aborts() bool { return c.way == "RST" || c.way == "alert" || c.way == "garbage" }

// play has one side end, and holds what the other one sees.
func (c endCase) play(stage *stage) error {
	from, to, err := stage.open(c)
	if err != nil {
		return err
	}
	defer from.wire.Close()
	defer to.wire.Close()
	s := c.script()
	if err := errors.Join(pass(from, to, s.opening), pass(to, from, s.asked)); err != nil {
		return fmt.Errorf("what comes before: %w", err)
	}
	arrived := make(chan struct{})
	go func() {
		from.Write([]byte(s.sent))
		if c.aborts() {
			<-arrived
		}
		from.end(c.way)
	}()
	got, how := to.see(s.whole, arrived)
	least := s.whole
	if c.want == "clean" {
		least = len(s.sent)
	}
	switch {
	case how != c.want:
		return fmt.Errorf("the other side sees an end that is %s, want %s, after %d bytes of %d", how, c.want, len(got), len(s.sent))
	case !bytes.HasPrefix([]byte(s.sent), got):
		return fmt.Errorf("other bytes arrive: %.60q", got)
	case len(got) < least:
		return fmt.Errorf("%d bytes arrive, want at least %d of %d", len(got), least, len(s.sent))
	case c.way == "silence":
		if _, how := from.see(0, make(chan struct{})); how != "cut" {
			return fmt.Errorf("the silent side sees an end that is %s", how)
		}
	case how == "clean":
		return c.answer(to, from)
	}
	return nil
}

// answer has the other direction live on behind a clean end: what the other side sends then
// arrives, and its end.
func (c endCase) answer(from, to *endPeer) error {
	if c.side == "upstream" && c.protocol == "http" || c.place != "between" && c.place != "tunnel" && c.protocol != "tcp" {
		return nil
	}
	way := "FIN"
	if c.otherTLS {
		way = "notify"
	}
	c.side = map[string]string{"client": "upstream", "upstream": "client"}[c.side]
	s := c.script()
	s.sent = strings.TrimPrefix(s.sent, upgraded)
	go func() {
		from.Write([]byte(s.sent))
		from.end(way)
	}()
	if got, how := to.see(0, make(chan struct{})); how != "clean" || string(got) != s.sent {
		return fmt.Errorf("behind the end come %d bytes of the other direction, of %d, and an end that is %s", len(got), len(s.sent), how)
	}
	return nil
}

// Nor does an end look clean that shaper itself makes, when it stops: on either side, with
// a message that has come whole, or one that has not.
func TestStopIsNoCleanEnd(t *testing.T) {
	t.Parallel()
	stage := newStage(t)
	var peers []*endPeer
	var names []string
	for _, c := range endCases() {
		if c.way != "silence" && (c.place == "between" || c.place == "length" || c.place == "body") {
			from, to, err := stage.open(c)
			if err != nil {
				t.Fatal(err)
			}
			defer from.wire.Close()
			defer to.wire.Close()
			s := c.script()
			if err := errors.Join(pass(from, to, s.opening), pass(to, from, s.asked)); err != nil {
				t.Fatal(err)
			}
			go from.Write([]byte(s.sent))
			peers, names = append(peers, from, to), append(names, c.String()+", from", c.String()+", to")
		}
	}
	stage.program.stop()
	for i, p := range peers {
		if _, how := p.see(0, make(chan struct{})); how != "cut" {
			t.Errorf("%s: the end is %s", names[i], how)
		}
	}
}
