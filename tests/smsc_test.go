package tests

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/tests/trial"
)

// A moment is what a test knows of the time at which something reached the machine: after one time,
// and by another one. If both are the same, it came then.
type moment struct{ after, by time.Time }

func exactly(at time.Time) moment { return moment{at, at} }

// spacing is the rule of providers that refuse messages which come sooner than gap after another
// one that they have accepted. It uses the kernel's timestamps, so the result does not depend on
// when or in which order the test reads messages. It refuses only what surely came too soon.
type spacing struct {
	gap time.Duration

	mu       sync.Mutex // guards the fields below
	came     []moment   // all messages, in the order of by
	accepted []moment   // those that were accepted, in the same order
	least    time.Duration
}

// accepts reports whether a message that came at a moment keeps the gap, and counts it.
func (s *spacing) accepts(m moment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := time.Duration(math.MaxInt64)
	for _, other := range s.accepted {
		gap = min(gap, max(m.by.Sub(other.after), other.by.Sub(m.after)))
	}
	if len(s.came) == 0 {
		s.least = gap
	}
	s.least = min(s.least, gap)
	s.came = insert(s.came, m)
	if gap >= s.gap {
		s.accepted = insert(s.accepted, m)
	}
	return gap >= s.gap
}

func insert(all []moment, m moment) []moment {
	i, _ := slices.BinarySearchFunc(all, m, func(a, b moment) int { return a.by.Compare(b.by) })
	return slices.Insert(all, i, m)
}

// score returns how many messages were accepted and refused, and the time from the first accepted
// message to the last, at most.
func (s *spacing) score() (accepted, refused int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if accepted = len(s.accepted); accepted > 0 {
		took = s.accepted[accepted-1].by.Sub(s.accepted[0].after)
	}
	return accepted, len(s.came) - accepted, took
}

// meanBelow returns the mean of the gaps between accepted messages that are shorter than a limit.
func (s *spacing) meanBelow(limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, sum := 0, time.Duration(0)
	for i := 1; i < len(s.accepted); i++ {
		if gap := s.accepted[i].by.Sub(s.accepted[i-1].by); gap < limit {
			n, sum = n+1, sum+gap
		}
	}
	return sum / time.Duration(max(n, 1))
}

// closest returns the shortest gap before or behind an accepted message: it was not longer than that.
func (s *spacing) closest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.least
}

// check fails the test unless want messages came, and all kept the gap. The gap of a class counts
// from when its last message was written, so a busy machine makes none too short.
func (s *spacing) check(t *testing.T, want int) {
	t.Helper()
	s.checkSum(t, want, 0)
	if accepted, refused, _ := s.score(); refused > 0 {
		t.Errorf("of %d messages, %d were accepted and %d refused; the shortest gap was %v, want %v", want, accepted, refused, s.closest(), s.gap)
	}
}

// checkSum fails the test unless want messages came, and at most late more of them in any time than
// the gaps allow.
func (s *spacing) checkSum(t *testing.T, want, late int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.came) != want {
		t.Errorf("%d messages came, want %d", len(s.came), want)
	}
	if err := excess(s.came, s.gap, late); err != nil {
		t.Error(err)
	}
}

// excess returns an error if surely more messages came in some time than one, one for each gap, and
// late more.
func excess(came []moment, gap time.Duration, late int) error {
	for _, first := range came {
		n := 0
		for _, m := range came { // in the order of by
			if m.after.Before(first.after) {
				continue
			}
			n++
			if took := m.by.Sub(first.after); took < time.Duration(n-1-late)*gap {
				return fmt.Errorf("%d messages came within %v, with gaps of %v", n, took, gap)
			}
		}
	}
	return nil
}

// kept returns a Miss if a message was refused. A busy machine excuses a quarter of them, if several
// shapers may each let one be late.
func (s *spacing) kept() *trial.Miss {
	accepted, refused, _ := s.score()
	return trial.Most(refused, 0, (accepted+refused)/4, "%d messages were accepted and %d refused; the shortest gap was %v, want %v", accepted, refused, s.closest(), s.gap)
}

// readStamped reads what has arrived, and returns when the last of it reached the machine.
func readStamped(raw syscall.RawConn, p []byte) (n int, at time.Time, err error) {
	var control [128]byte
	wrong := raw.Read(func(fd uintptr) bool {
		var m int
		n, m, _, _, err = unix.Recvmsg(int(fd), p, control[:], unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR {
			return false
		}
		at = trial.Timestamp(control[:m])
		return true
	})
	switch {
	case wrong != nil:
		return 0, at, wrong
	case err == nil && n == 0:
		err = io.EOF
	}
	return max(n, 0), at, err
}

// enableTimestamps makes the kernel stamp what arrives at a socket.
func enableTimestamps(c *net.TCPConn) (syscall.RawConn, error) {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	}
	return raw, err
}

// The commands and statuses of SMPP that the tests need.
const (
	smppSubmit      = 0x04
	smppSubmitResp  = 0x80000004
	smppTransceiver = 0x09
	smppEnquire     = 0x15
	smppEnquireResp = 0x80000015
	smppResponse    = 0x80000000
	smppUnbind      = 0x06
	smppThrottled   = 0x58
)

// appendPDU appends an SMPP PDU to p.
func appendPDU(p []byte, command, status, sequence uint32, body string) []byte {
	for _, field := range []uint32{uint32(16 + len(body)), command, status, sequence} {
		p = binary.BigEndian.AppendUint32(p, field)
	}
	return append(p, body...)
}

// bindPDU returns a bind_transceiver of version 3.4.
func bindPDU(id string) []byte {
	return appendPDU(nil, smppTransceiver, 0, 1, id+"\x00secret\x00\x00\x34\x00\x00\x00")
}

// submitPDU appends a submit_sm with a sender and a sequence number to p. Its text repeats both.
func submitPDU(p []byte, from string, sequence uint32) []byte {
	text := fmt.Sprintf("%s %d", from, sequence)
	return appendPDU(p, smppSubmit, 0, sequence,
		"\x00\x00\x00"+from+"\x00\x01\x014477\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"+string(rune(len(text)))+text)
}

// submission is a submit_sm that reached a provider.
type submission struct {
	moment
	conn     int // number of the connection
	from     string
	to       string
	body     string // all that follows
	sequence uint32
	status   uint32 // of the answer
}

// provider is an SMSC. It answers each submit with the status that decide returns.
type provider struct {
	t      *testing.T
	addr   string
	decide func(moment) (status uint32) // several connections may call it at once

	mu    sync.Mutex // guards the fields below
	conns int        // connections so far
	all   []submission
}

// newProvider runs a provider until the test ends.
func newProvider(t *testing.T, decide func(moment) (status uint32)) *provider {
	p := &provider{t: t, decide: decide}
	p.addr = serve(t, p.serve)
	return p
}

// spacedProvider runs a provider that throttles submits which break the rule.
func spacedProvider(t *testing.T, rule *spacing) *provider {
	return newProvider(t, func(m moment) uint32 {
		if rule.accepts(m) {
			return 0
		}
		return smppThrottled
	})
}

// serve answers one connection until it ends.
func (p *provider) serve(c *net.TCPConn) {
	raw, err := enableTimestamps(c)
	if err != nil {
		p.t.Error(err)
		return
	}
	p.mu.Lock()
	p.conns++
	number := p.conns
	p.mu.Unlock()
	var answers []byte
	var last time.Time // when the last of what was read before had come
	for in, have := make([]byte, 256<<10), 0; ; {
		n, at, err := readStamped(raw, in[have:])
		if err != nil {
			return
		}
		have += n
		used := 0
		answers = answers[:0]
		for have-used >= 16 {
			size := int(binary.BigEndian.Uint32(in[used:]))
			if size < 16 || size > 64<<10 {
				p.t.Errorf("the provider gets a PDU of %d bytes", size)
				return
			}
			if have-used < size {
				break
			}
			// The timestamp is that of the end of what was read.
			came := moment{last, at}
			if used+size == have {
				came = exactly(at)
			}
			answers = p.answer(answers, in[used:used+size], came, number)
			used += size
		}
		last = at
		have = copy(in, in[used:have])
		if _, err := c.Write(answers); err != nil {
			return
		}
	}
}

// answer appends the answer to a PDU, if it needs one.
func (p *provider) answer(answers, pdu []byte, came moment, conn int) []byte {
	command, sequence := binary.BigEndian.Uint32(pdu[4:]), binary.BigEndian.Uint32(pdu[12:])
	switch {
	case command == smppSubmit:
		s := submission{moment: came, conn: conn, from: senderOf(pdu), sequence: sequence}
		s.to, s.body = recipientOf(pdu)
		body := fmt.Sprintf("%d-%d\x00", conn, sequence)
		if s.status = p.decide(came); s.status != 0 {
			body = ""
		}
		p.mu.Lock()
		p.all = append(p.all, s)
		p.mu.Unlock()
		return appendPDU(answers, smppSubmitResp, s.status, sequence, body)
	case command&smppResponse != 0:
		return answers
	case command == smppTransceiver:
		return appendPDU(answers, command|smppResponse, 0, sequence, "smsc\x00")
	}
	return appendPDU(answers, command|smppResponse, 0, sequence, "")
}

// senderOf returns the source_addr of a submit_sm.
func senderOf(pdu []byte) string {
	body := pdu[16:]
	body = body[bytes.IndexByte(body, 0)+3:] // skip service_type, source_addr_ton and source_addr_npi
	return string(body[:bytes.IndexByte(body, 0)])
}

// recipientOf returns the destination_addr of a submit_sm, and what follows it.
func recipientOf(pdu []byte) (to, rest string) {
	body := string(pdu[16:])
	for range 2 { // service_type; source_addr, each with two bytes behind it
		_, body, _ = strings.Cut(body, "\x00")
		body = body[2:]
	}
	to, rest, _ = strings.Cut(body, "\x00")
	return to, rest
}

// got returns the submits so far, in the order in which the provider read them.
func (p *provider) got() []submission {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[:len(p.all):len(p.all)]
}

// esmeConn is an SMPP client that a test drives. One goroutine calls its methods.
type esmeConn struct {
	*net.TCPConn
	t        *testing.T
	sequence uint32 // of the last request
	answered int    // submits that were answered
}

// bind connects, binds as a transceiver, and waits for the answer.
func bind(t *testing.T, addr, id string) *esmeConn {
	t.Helper()
	e := &esmeConn{TCPConn: dial(t, "", addr), t: t, sequence: 1}
	e.write(bindPDU(id))
	if command, status, _ := e.read(); command != smppTransceiver|smppResponse || status != 0 {
		t.Fatalf("the bind is answered by PDU %#x with status %#x", command, status)
	}
	return e
}

func (e *esmeConn) write(p []byte) {
	e.t.Helper()
	if _, err := e.Write(p); err != nil {
		e.t.Fatal(err)
	}
}

// submit sends n submits at once, and returns the sequence number of the first.
func (e *esmeConn) submit(from string, n int) (first uint32) {
	e.t.Helper()
	first = e.sequence + 1
	var p []byte
	for range n {
		e.sequence++
		p = submitPDU(p, from, e.sequence)
	}
	e.write(p)
	return first
}

// read returns the next PDU.
func (e *esmeConn) read() (command, status, sequence uint32) {
	e.t.Helper()
	e.SetReadDeadline(time.Now().Add(patience))
	var header [16]byte
	if _, err := io.ReadFull(e, header[:]); err != nil {
		e.t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, e, int64(binary.BigEndian.Uint32(header[:]))-16); err != nil {
		e.t.Fatal(err)
	}
	if command = binary.BigEndian.Uint32(header[4:]); command == smppSubmitResp {
		e.answered++
	}
	return command, binary.BigEndian.Uint32(header[8:]), binary.BigEndian.Uint32(header[12:])
}

// enquire sends an enquire_link, and returns how long its answer takes. It skips other PDUs. No
// other enquire_link may be in flight.
func (e *esmeConn) enquire() time.Duration {
	e.t.Helper()
	e.sequence++
	begin := time.Now()
	e.write(appendPDU(nil, smppEnquire, 0, e.sequence, ""))
	for {
		if command, _, _ := e.read(); command == smppEnquireResp {
			return time.Since(begin)
		}
	}
}

// answerTo returns the status in the answer to a submit. It skips other PDUs.
func (e *esmeConn) answerTo(sequence uint32) (status uint32) {
	e.t.Helper()
	for {
		if command, status, n := e.read(); command == smppSubmitResp && n == sequence {
			return status
		}
	}
}

// The provider of the tests refuses what surely breaks its rule, and sees if too much comes in a
// time that it does not know exactly.
func TestSpacing(t *testing.T) {
	t.Parallel()
	zero := time.Now()
	between := func(after, by int) moment {
		return moment{zero.Add(time.Duration(after) * time.Millisecond), zero.Add(time.Duration(by) * time.Millisecond)}
	}
	for _, c := range []struct {
		name               string
		came               []moment
		accepted           int
		least              time.Duration
		tooMany, oneIsLate bool // excess says so, if none may be late, and if one may
	}{
		{"at the gap", []moment{between(0, 0), between(50, 50)}, 2, 50 * time.Millisecond, false, false},
		{"at once", []moment{between(0, 0), between(0, 0), between(100, 100)}, 2, 0, true, false},
		{"in another order", []moment{between(100, 100), between(0, 0), between(99, 99)}, 2, time.Millisecond, true, false},
		{"two of one read", []moment{between(0, 0), between(0, 100), between(100, 100)}, 3, 100 * time.Millisecond, false, false},
		{"three of one read", []moment{between(0, 0), between(0, 100), between(0, 100), between(100, 100)}, 4, 100 * time.Millisecond, true, false},
		{"five of one read", []moment{between(0, 0), between(0, 99), between(0, 99), between(0, 99), between(99, 99)}, 5, 99 * time.Millisecond, true, true},
	} {
		rule := &spacing{gap: 50 * time.Millisecond}
		for _, m := range c.came {
			rule.accepts(m)
		}
		accepted, refused, _ := rule.score()
		if accepted != c.accepted || accepted+refused != len(c.came) || rule.closest() != c.least {
			t.Errorf("%s: %d accepted and %d refused, and the shortest gap is %v, want %d and %v", c.name, accepted, refused, rule.closest(), c.accepted, c.least)
		}
		if none, one := excess(rule.came, rule.gap, 0), excess(rule.came, rule.gap, 1); (none != nil) != c.tooMany || (one != nil) != c.oneIsLate {
			t.Errorf("%s: %v, and if one is late %v", c.name, none, one)
		}
	}
}
