package tests

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// isoLink is a format of the length before an ISO 8583 message.
type isoLink struct {
	prefix   string // length_prefix of the policy
	included bool   // the length includes itself
	header   int    // bytes between the prefix and the message type
}

func (l isoLink) name() string {
	return fmt.Sprintf("%s-%t-%d", l.prefix, l.included, l.header)
}

// size returns the size of the length prefix in bytes.
func (l isoLink) size() int {
	if l.prefix == "ascii4" || l.prefix == "vml" {
		return 4
	}
	return 2
}

// message returns a message, with the length and the header before it.
func (l isoLink) message(text string) []byte {
	text = strings.Repeat("\x60", l.header) + text
	n := len(text)
	if l.included {
		n += l.size()
	}
	prefix := binary.BigEndian.AppendUint16(nil, uint16(n))
	switch l.prefix {
	case "ascii4":
		prefix = fmt.Appendf(nil, "%04d", n)
	case "bcd2":
		prefix = []byte{byte(n/1000<<4 | n/100%10), byte(n/10%10<<4 | n%10)}
	case "vml":
		prefix = append(prefix, 0xab, 0xcd)
	}
	return append(prefix, text...)
}

// read returns the next message, without the length and the header before it.
func (l isoLink) read(r io.Reader) (string, error) {
	prefix := make([]byte, l.size())
	if _, err := io.ReadFull(r, prefix); err != nil {
		return "", err
	}
	n := int(binary.BigEndian.Uint16(prefix))
	switch l.prefix {
	case "ascii4":
		fmt.Sscanf(string(prefix), "%d", &n)
	case "bcd2":
		fmt.Sscanf(fmt.Sprintf("%x", prefix), "%d", &n)
	case "vml":
		if prefix[2] != 0xab || prefix[3] != 0xcd {
			return "", fmt.Errorf("the length prefix is %x, want it to end in abcd", prefix)
		}
	}
	if l.included {
		n -= l.size()
	}
	text := make([]byte, n)
	_, err := io.ReadFull(r, text)
	return string(text[min(l.header, n):]), err
}

// isoLinks returns all formats.
func isoLinks() (all []isoLink) {
	for _, prefix := range []string{"binary2", "ascii4", "bcd2", "vml"} {
		for _, included := range []bool{false, true} {
			for _, header := range []int{0, 5} {
				all = append(all, isoLink{prefix, included, header})
			}
		}
	}
	return all
}

// isoHost answers each message, and notes what it gets. mu guards got.
type isoHost struct {
	mu  sync.Mutex
	got []string
}

func (h *isoHost) serve(l isoLink, c net.Conn) {
	for {
		text, err := l.read(c)
		if err != nil {
			return
		}
		h.mu.Lock()
		h.got = append(h.got, text)
		h.mu.Unlock()
		c.Write(l.message(text[:2] + "1" + text[3:])) // the answer to 0200 is 0210
	}
}

func (h *isoHost) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got[:len(h.got):len(h.got)]
}

// With each format, a reversal never overtakes the payment that it reverses, and an echo request
// overtakes both.
func TestISO8583Links(t *testing.T) {
	t.Parallel()
	const pairs = 20
	var policy strings.Builder
	hosts := map[string]*isoHost{}
	for _, l := range isoLinks() {
		h := &isoHost{}
		hosts[l.name()] = h
		upstream := serve(t, func(c *net.TCPConn) { h.serve(l, c) })
		fmt.Fprintf(&policy, "[class.%s]\nrate = \"100 messages/s\"\n[listener.%[1]s]\nlisten = \"127.0.0.1:0\"\nprotocol = \"iso8583\"\n"+
			"length_prefix = %q\nlength_includes_itself = %t\nheader_length = %d\nupstream = %q\nclass = %[1]q\n",
			l.name(), l.prefix, l.included, l.header, upstream)
	}
	d := start(t, raced(t), policy.String())
	var all sync.WaitGroup
	for _, l := range isoLinks() {
		addr := d.addr(l.name())
		all.Go(func() {
			if err := isoConversation(l, addr, hosts[l.name()], pairs); err != nil {
				t.Errorf("%s: %v", l.name(), err)
			}
		})
	}
	all.Wait()
	for _, l := range isoLinks() {
		if n := d.class(l.name()).Sent["upstream"].Messages; n != 2*pairs {
			t.Errorf("%s: shaper counts %d messages, want %d", l.name(), n, 2*pairs)
		}
	}
}

// isoConversation sends pairs of a payment and its reversal, and then an echo request. It checks
// the order in which the host gets them.
func isoConversation(l isoLink, addr string, h *isoHost, pairs int) error {
	c, err := dialFrom("", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	var p []byte
	for n := range pairs {
		for _, kind := range []string{"0200", "0400"} {
			p = append(p, l.message(fmt.Sprintf("%s payment %d%s", kind, n, strings.Repeat("x", n*n)))...)
		}
	}
	begin := time.Now()
	if _, err := c.Write(append(p, l.message("0800 echo")...)); err != nil {
		return err
	}
	answers := 0
	for answers < 2*pairs+1 {
		if _, err := l.read(c); err != nil {
			return err
		}
		answers++
	}
	took, got := time.Since(begin), h.all()
	echo := -1
	var payments []string
	for i, text := range got {
		if strings.HasPrefix(text, "0800") {
			echo = i
		} else {
			payments = append(payments, text)
		}
	}
	for i, text := range payments {
		kind := []string{"0200", "0400"}[i%2]
		if want := fmt.Sprintf("%s payment %d%s", kind, i/2, strings.Repeat("x", i/2*(i/2))); text != want {
			return fmt.Errorf("message %d is %q, want %q", i, text, want)
		}
	}
	if len(payments) != 2*pairs || echo < 0 || echo > 10 || took < time.Duration(2*pairs-1)*10*time.Millisecond {
		return fmt.Errorf("%d payments and reversals in %v, the echo request at place %d", len(payments), took, echo)
	}
	return nil
}
