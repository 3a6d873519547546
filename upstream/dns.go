package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The errors of the DNS.
var (
	errNoSuchHost = errors.New("no such host")
	errNoServer   = errors.New("resolv.conf names no server that can be asked")
)

// maxDatagram is the largest answer that we take in one datagram: it passes every network in
// one piece (DNS flag day 2020).
const maxDatagram = 1232

// query asks the servers of a configuration for records of a type, in their order, as often as
// the configuration says. It begins with one that is not silent. It returns the records of the
// answer that each takes. It is an error if there are none: errNoSuchHost if a server says so.
func (c *resolvConf) query(ctx context.Context, host string, kind dnsmessage.Type) ([]dnsmessage.Resource, error) {
	name, err := dnsmessage.NewName(host)
	if err != nil {
		return nil, errNoSuchHost // too long to exist
	}
	question := dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET}
	first := c.firstServer()
	err = errNoServer
	for range c.attempts {
		for i := range c.servers {
			n, began := (first+i)%len(c.servers), time.Now()
			server := c.servers[n]
			records, failed := c.exchange(ctx, server, question)
			c.silences.note(time.Now(), c.servers, n, began, failed)
			if failed == nil || errors.Is(failed, errNoSuchHost) {
				return records, failed
			}
			err = fmt.Errorf("server %v: %w", server, failed)
			if ctx.Err() != nil {
				return nil, err
			}
		}
	}
	return nil, err
}

// exchange asks one server: with a datagram, and if the answer is too long for that, over TCP
// (RFC 7766).
func (c *resolvConf) exchange(ctx context.Context, server netip.AddrPort, q dnsmessage.Question) ([]dnsmessage.Resource, error) {
	networks := []string{"udp", "tcp"}
	if c.overTCP {
		networks = networks[1:]
	}
	for _, network := range networks {
		answer, err := c.roundTrip(ctx, network, server, q)
		if err != nil {
			return nil, err
		}
		if !answer.Truncated {
			return recordsOf(answer)
		}
	}
	return nil, errors.New("the answer is truncated over TCP")
}

// recordsOf returns the records of an answer.
func recordsOf(answer *dnsmessage.Message) ([]dnsmessage.Resource, error) {
	switch {
	case answer.RCode == dnsmessage.RCodeNameError, answer.RCode == dnsmessage.RCodeSuccess && len(answer.Answers) == 0:
		return nil, errNoSuchHost
	case answer.RCode != dnsmessage.RCodeSuccess:
		return nil, fmt.Errorf("it answers %s", strings.TrimPrefix(answer.RCode.String(), "RCode"))
	}
	return answer.Answers, nil
}

// roundTrip sends a question and returns its answer. It ignores whatever else comes.
func (c *resolvConf) roundTrip(ctx context.Context, network string, server netip.AddrPort, q dnsmessage.Question) (*dnsmessage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	dialer := net.Dialer{}
	conn, err := dialer.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	id := uint16(rand.Uint32())
	text, err := questionText(id, q)
	if err != nil {
		return nil, err
	}
	if network == "tcp" {
		text = append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
	}
	if _, err := conn.Write(text); err != nil {
		return nil, err
	}
	for {
		answer, err := readAnswer(conn, network)
		if err != nil {
			return nil, err
		}
		if answer != nil && answer.Response && answer.ID == id && len(answer.Questions) == 1 && sameQuestion(answer.Questions[0], q) {
			return answer, nil
		}
	}
}

// questionText returns a question as it is sent.
func questionText(id uint16, q dnsmessage.Question) ([]byte, error) {
	var edns dnsmessage.ResourceHeader
	if err := edns.SetEDNS0(maxDatagram, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions:   []dnsmessage.Question{q},
		Additionals: []dnsmessage.Resource{{Header: edns, Body: &dnsmessage.OPTResource{}}},
	}
	return m.Pack()
}

// readAnswer reads one message. It returns nil for one that cannot be parsed.
func readAnswer(conn net.Conn, network string) (*dnsmessage.Message, error) {
	buffer := make([]byte, maxDatagram)
	var n int
	var err error
	if network == "tcp" {
		var length [2]byte
		if _, err = io.ReadFull(conn, length[:]); err == nil {
			buffer = make([]byte, binary.BigEndian.Uint16(length[:]))
			n, err = io.ReadFull(conn, buffer)
		}
	} else {
		n, err = conn.Read(buffer)
	}
	if err != nil {
		return nil, err
	}
	return parseAnswer(buffer[:n]), nil
}

// parseAnswer parses what we use of a message: its header, its question and its answers. It
// returns nil if it cannot.
func parseAnswer(text []byte) *dnsmessage.Message {
	var p dnsmessage.Parser
	var m dnsmessage.Message
	var err error
	if m.Header, err = p.Start(text); err != nil {
		return nil
	}
	if m.Questions, err = p.AllQuestions(); err != nil {
		return nil
	}
	if m.Truncated {
		return &m // the rest comes over TCP
	}
	if m.Answers, err = p.AllAnswers(); err != nil {
		return nil
	}
	return &m
}

func sameQuestion(a, b dnsmessage.Question) bool {
	return a.Type == b.Type && a.Class == b.Class && strings.EqualFold(a.Name.String(), b.Name.String())
}
