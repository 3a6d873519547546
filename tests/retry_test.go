package tests

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

const retryPolicy = `
[class.acme]
rate        = "2000 messages/s"
on_throttle = { pause = "5ms", max = "1s" }
retry       = { max = 3 }

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "acme"
`

// If a provider refuses every 50th submit, its client sees no refusal. Each submit is accepted
// once, and in its order.
func TestRetryOfSubmits(t *testing.T) {
	t.Parallel()
	const n = 1000
	var came atomic.Int64
	p := newProvider(t, func(time.Time) uint32 {
		if came.Add(1)%50 == 0 {
			return smppThrottled
		}
		return 0
	})
	d := start(t, raced(t), fmt.Sprintf(retryPolicy, p.addr))
	e := bind(t, d.addr("gateway"), "acme")
	first := e.submit("acme", n)
	answers := map[uint32]bool{}
	for range n {
		command, status, sequence := e.read()
		if command != smppSubmitResp || status != 0 || answers[sequence] {
			t.Fatalf("PDU %#x with status %#x answers submit %d (a second time: %t)", command, status, sequence, answers[sequence])
		}
		answers[sequence] = true
	}
	accepted, refused := 0, 0
	for _, s := range p.got() {
		switch {
		case s.status != 0:
			refused++
		case s.sequence != first+uint32(accepted):
			t.Fatalf("as number %d, submit %d is accepted", accepted, s.sequence-first)
		default:
			accepted++
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted != n || refused < n/50 {
		t.Errorf("%d submits are accepted, and %d refused; want %d, and at least %d", accepted, refused, n, n/50)
	}
}

// readAll reads until p is full, and reports whether it is.
func readAll(from io.Reader, p []byte) bool {
	_, err := io.ReadFull(from, p)
	return err == nil
}

// If a provider breaks the connection at the 50th submit, none is sent again.
func TestRetryAfterABreak(t *testing.T) {
	t.Parallel()
	seen := make(chan uint32, 1000)
	addr := serve(t, func(c *net.TCPConn) {
		head := make([]byte, 16)
		for submits := 0; submits < 50; {
			if !readAll(c, head) {
				return
			}
			command, sequence := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[12:])
			if !readAll(c, make([]byte, binary.BigEndian.Uint32(head)-16)) {
				return
			}
			if command == smppSubmit {
				submits++
				seen <- sequence
			}
			if submits < 50 {
				c.Write(appendPDU(nil, command|smppResponse, 0, sequence, "x\x00"))
			}
		}
		c.SetLinger(0)
		c.Close()
	})
	d := start(t, raced(t), fmt.Sprintf(retryPolicy, addr))
	e := bind(t, d.addr("gateway"), "acme")
	e.submit("acme", 100)
	answers, p := 0, make([]byte, 16)
	for readAll(e, p) && readAll(e, make([]byte, binary.BigEndian.Uint32(p)-16)) {
		answers++
	}
	bind(t, d.addr("gateway"), "acme") // the next session: what was kept would come there at the latest
	times := map[uint32]int{}
	for len(seen) > 0 {
		times[<-seen]++
	}
	for sequence, n := range times {
		if n > 1 {
			t.Errorf("submit %d came %d times", sequence, n)
		}
	}
	if len(times) != 50 || answers != 49 {
		t.Errorf("%d submits came, and %d were answered, want 50 and 49", len(times), answers)
	}
}
