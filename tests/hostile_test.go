package tests

import (
	"bytes"
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

	"golang.org/x/sys/unix"
)

// slowly is a connection that writes and reads one byte at a time.
type slowly struct{ *net.TCPConn }

func (s slowly) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = s.TCPConn.Write(p[n : n+1])
		n += m
	}
	return n, err
}

func (s slowly) Read(p []byte) (int, error) { return s.TCPConn.Read(p[:min(1, len(p))]) }

// badPeer is a session in which one side is slow, hangs or fails.
type badPeer struct {
	name     string
	keys     string             // of the listener
	upstream func(*net.TCPConn) // what the upstream does
	says     string             // what the client sends
	endless  bool               // it sends that again and again
	then     func(*net.TCPConn) // what the client does next; nil: nothing
	sees     string             // the end that the client must see: "clean", "cut", or "any"; "": it does not read
}

func closes(*net.TCPConn)     {}
func resets(c *net.TCPConn)   { c.SetLinger(0) }
func finishes(c *net.TCPConn) { c.CloseWrite() }
func silence(c *net.TCPConn)  { io.Copy(io.Discard, c) }

// stuck reads nothing until the other end is gone, but for at most five seconds: a kernel may
// ignore a reset while its receive window is full.
func stuck(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	for deadline := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		state := uint8(0)
		raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				state = info.State
			}
		})
		if state != unix.BPF_TCP_ESTABLISHED {
			return
		}
	}
}

// saying returns a function that reads once, writes a text, and calls then.
func saying(text string, then func(*net.TCPConn)) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		c.Read(make([]byte, 1000))
		io.WriteString(c, text)
		then(c)
	}
}

// The first bytes of a ClientHello and a ServerHello.
const (
	halfClientHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	halfServerHello = "\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03"
)

// badPeers returns the bad peers of a protocol. Message is a whole message of the client. Their
// listeners have short time-outs, which end sessions that hang.
func badPeers(a *authority, message string) []badPeer {
	const short = "idle_timeout = \"1s\"\nconnect_timeout = \"1s\"\n"
	ours, theirs := short+a.terminating("both")+"\n", short+a.originating("")+"\n"
	return []badPeer{
		{"the upstream closes at once", short, closes, message, false, nil, "any"},    // clean, or cut if it closes with unread bytes
		{"the upstream closes", "", saying("", closes), message, false, nil, "clean"}, // on a busy machine a second may pass before it does
		{"the upstream resets at once", short, resets, message, false, nil, "cut"},
		{"the upstream resets", short, saying("", resets), message, false, nil, "cut"},
		{"the upstream never answers", short, silence, message, false, nil, "cut"},
		{"the upstream never reads", short, stuck, message, true, nil, "cut"},
		{"the upstream closes before TLS", theirs, closes, message, false, nil, "cut"},
		{"the upstream resets before TLS", theirs, resets, message, false, nil, "cut"},
		{"the upstream hangs before TLS", theirs, silence, message, false, nil, "cut"},
		{"the upstream closes within TLS", theirs, saying(halfServerHello, closes), message, false, nil, "cut"},
		{"the upstream resets within TLS", theirs, saying(halfServerHello, resets), message, false, nil, "cut"},
		{"the upstream hangs within TLS", theirs, saying(halfServerHello, silence), message, false, nil, "cut"},
		{"the client resets", short, silence, message, false, resets, ""},
		{"the client never reads", short, func(c *net.TCPConn) { floodText(c, message) }, message, false, stuck, ""},
		{"the client resets before TLS", ours, silence, "", false, resets, ""},
		{"the client hangs before TLS", ours, silence, "", false, nil, "cut"},
		{"the client closes within TLS", ours, silence, halfClientHello, false, finishes, "cut"},
		{"the client resets within TLS", ours, silence, halfClientHello, false, resets, ""},
		{"the client hangs within TLS", ours, silence, halfClientHello, false, nil, "cut"},
	}
}

// floodText writes a text again and again, until the connection fails.
func floodText(c net.Conn, text string) error {
	piece := []byte(strings.Repeat(text, 100))
	for {
		if _, err := c.Write(piece); err != nil {
			return err
		}
	}
}

// meet runs the client, and checks the end that it sees. The kernel reports a connection's error
// only once, to the writer or to the reader, so meet joins both errors.
func (b badPeer) meet(addr string) error {
	c, err := dialFrom("", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	written := make(chan error, 1)
	c.SetDeadline(time.Now().Add(patience))
	go func() {
		if b.endless {
			written <- floodText(c, b.says)
			return
		}
		_, err := io.WriteString(c, b.says)
		if b.then != nil {
			b.then(c)
		}
		written <- err
	}()
	if b.sees == "" {
		if err := <-written; errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		return nil // the session may have ended before the client wrote
	}
	_, err = io.Copy(io.Discard, c)
	err = errors.Join(err, <-written)
	sees := "cut"
	switch {
	case err == nil:
		sees = "clean"
	case errors.Is(err, os.ErrDeadlineExceeded):
		sees = "not there"
	}
	if sees != b.sees && (b.sees != "any" || sees == "not there") {
		return fmt.Errorf("the end is %s (%v), want %s", sees, err, b.sees)
	}
	return nil
}

// If a peer hangs or fails at any stage, its session ends within the time-outs. Other sessions go
// on, and no session or descriptor remains.
func TestBadPeers(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("both", "127.0.0.1", time.Time{})
	policy := strings.Builder{}
	policy.WriteString("[class.c]\nrate = \"1GB/s\"\n[listener.sound]\nlisten = \"127.0.0.1:0\"\nupstream = \"echo:\"\nclass = \"c\"\n")
	type row struct {
		badPeer
		protocol string
	}
	var all []row
	for protocol, message := range map[string]string{"http": request, "smpp": submit, "iso8583": purchase, "lines": textLine, "tcp": textLine} {
		for _, b := range badPeers(a, message) {
			fmt.Fprintf(&policy, "[listener.l%d]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = %q\nclass = \"c\"\n%s", len(all), protocol, serve(t, b.upstream), b.keys)
			all = append(all, row{b, protocol})
		}
	}
	p := start(t, raced(t), policy.String())
	sound := dial(t, "", p.addr("sound"))
	echo(t, sound, 100)
	descriptors := p.descriptors()
	addrs := map[string]string{}
	for _, l := range p.status().Listeners {
		addrs[l.Name] = l.Addresses[0]
	}
	var done sync.WaitGroup
	for i, b := range all {
		done.Go(func() {
			if err := b.meet(addrs[fmt.Sprintf("l%d", i)]); err != nil {
				t.Errorf("%s: %s: %v", b.protocol, b.name, err)
			}
		})
	}
	met := make(chan struct{})
	go func() { done.Wait(); close(met) }()
	for open := true; open; {
		select {
		case <-met:
			open = false
		default:
			echo(t, sound, 100)
			time.Sleep(time.Millisecond)
		}
	}
	waitForAtMost(t, "sessions", 1, func() int { return len(p.sessions()) })
	waitForAtMost(t, "descriptors", descriptors, p.descriptors)
}

// In each protocol, peers that send and read one byte at a time, even in the TLS handshake, get
// whole messages.
func TestByteByByte(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	pair := a.issue("both", "127.0.0.1", time.Time{})
	conf := &tls.Config{RootCAs: a.pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{pair}}
	messages := map[string][2]string{"tcp": {textLine, textLine}, "http": {request, response}, "smpp": {submit, deliver}, "iso8583": {purchase, purchase}, "lines": {textLine, textLine}}
	policy := "[class.c]\nrate = \"1GB/s\"\n"
	for protocol, m := range messages {
		upstream := serve(t, func(c *net.TCPConn) {
			s := tls.Server(slowly{c}, conf)
			got := make([]byte, 2*len(m[0]))
			if _, err := io.ReadFull(s, got); err != nil || string(got) != m[0]+m[0] {
				t.Errorf("%s: the upstream gets %q: %v", protocol, got, err)
			}
			io.WriteString(s, m[1]+m[1])
			s.CloseWrite()
			io.Copy(io.Discard, s)
		})
		policy += fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = %q\nclass = \"c\"\n%s\n%s\n", protocol, protocol, upstream, a.terminating("both"), a.originating(""))
	}
	p := start(t, raced(t), policy)
	for protocol, m := range messages {
		s := tls.Client(slowly{dial(t, "", p.addr(protocol))}, conf)
		s.SetDeadline(time.Now().Add(patience))
		io.WriteString(s, m[0]+m[0])
		got, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(got, []byte(m[1]+m[1])) {
			t.Errorf("%s: the client gets %q: %v", protocol, got, err)
		}
		s.Close()
	}
	waitForAtMost(t, "sessions", 0, func() int { return len(p.sessions()) })
}
