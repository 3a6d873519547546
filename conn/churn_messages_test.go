package conn

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/shaper"
	"shaper/stats"
	"shaper/tests/trial"
)

// TestChurnMessages makes clients and providers come and go amid messages, while reloads
// change the classes of these. No session leaves anything behind in any class.
func TestChurnMessages(t *testing.T) {
	web := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if rand.IntN(10) == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		w.Write(make([]byte, rand.IntN(50_000)))
	})
	addr, conns := listen(t)
	var all sync.WaitGroup
	done := make(chan struct{})
	go answerBinds(conns)
	policies := churnedMessages(addr, web)
	r := run(t, policies[0])
	overSMPP, overHTTP := r.addr("smpp"), r.addr("http")
	again(&all, done, 6, func(x *rand.Rand) { churnClient(x, overSMPP, smppChurn) })
	again(&all, done, 6, func(x *rand.Rand) { churnClient(x, overHTTP, httpChurn) })
	x := rand.New(rand.NewPCG(1, 2))
	var classes []*shaper.Class // all that there were
	for range 60 {
		before := r.lastID.Load()
		r.reload(policies[x.IntN(len(policies))])
		classes = append(classes, r.shaper.Classes()...)
		r.shade(policies[x.IntN(len(policies))])
		trial.Await(t, "sessions come", func() bool { return r.lastID.Load() > before+10 })
		for n, one := range r.Sessions() {
			if n%4 == 0 {
				r.CloseSession(one.ID)
			}
		}
	}
	r.Shadow(nil, nil)
	close(done)
	r.Shutdown(expired)
	all.Wait()
	r.endTurns()
	for _, c := range classes {
		wantUnused(t, c)
		if n, waits := c.InFlight(), c.Backlog().Items; n != 0 || waits != 0 {
			t.Errorf("%d requests of %s are in flight, and %d wait", n, c.Name(), waits)
		}
	}
	for _, l := range []string{"smpp", "http"} {
		if n := r.service(l).stats.Ended[stats.Panicked].Load(); n > 0 {
			t.Errorf("%d sessions of %s panicked", n, l)
		}
	}
	wantNobody(t, r)
}

// again repeats do in n goroutines until done.
func again(all *sync.WaitGroup, done <-chan struct{}, n int, do func(*rand.Rand)) {
	for n := range n {
		x := rand.New(rand.NewPCG(3, uint64(n)))
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					do(x)
				}
			}
		})
	}
}

// churnedMessages returns policies that share something with each other.
func churnedMessages(smpp, web string) (policies []string) {
	const pause = `on_throttle = { pause = "1ms", max = "3ms" }`
	for _, one := range []struct{ classes, back, rules string }{
		{class("up", "9000 messages/s", "in_flight = 20", pause) + class("c", "5000 messages/s", `parent = "up"`) + class("otp", "5000 messages/s", `parent = "up"`) + class("back", "20mbit"),
			`return_class = "back"`, "source_addr = \"otp*\"\nclass = \"otp\"\n[[rule]]\npath = \"/otp*\"\nclass = \"otp\""},
		{class("link", "200mbit") + class("c", "5000 messages/s", `parent = "link"`, `per = "source"`, "in_flight = 3", "max_keys = 2", pause) + class("otp", "1000 messages/s", `per = "connection"`),
			"", "source_addr = \"bulk*\"\nclass = \"otp\"\n[[rule]]\nmethod = \"POST\"\nclass = \"otp\""},
		{class("c", "50 messages/s", `queue = "3 messages"`, `max_wait = "20ms"`, `overflow = "refuse"`), "", "listener = \"http\"\nclass = \"c\""},
		{class("c", "9000 connections/s", "max_connections = 4", `overflow = "wait"`), "", "listener = \"http\"\nclass = \"c\""},
		{class("c", "1mbit", `overflow = "refuse"`, `max_wait = "50ms"`) + class("otp", "0 messages/s", `overflow = "wait"`, `queue = "2 messages"`),
			`return_class = "c"`, "source_addr = \"otp*\"\nclass = \"otp\"\n[[rule]]\npath = \"/otp*\"\nclass = \"otp\""},
		{class("c", "700 messages/s", `algorithm = "token"`, "shadow = true"), "", "listener = \"http\"\nclass = \"c\""},
	} {
		policies = append(policies, one.classes+
			listener("smpp", "smpp", smpp, "c", one.back)+listener("http", "http", web, "c", one.back)+"[[rule]]\n"+one.rules+"\n")
	}
	return policies
}

// churnClient connects, sends something in pieces, reads something, and leaves in a random
// way.
func churnClient(x *rand.Rand, addr string, message func(*rand.Rand) string) {
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+x.IntN(6)))}}
	conn, err := from.Dial("tcp", addr)
	if err != nil {
		return
	}
	c := conn.(tcpConn)
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Duration(x.IntN(100)) * time.Millisecond))
	for range x.IntN(20) {
		p := message(x)
		cut := x.IntN(len(p))
		io.WriteString(c, p[:cut])
		if x.IntN(20) == 0 {
			break
		}
		io.WriteString(c, p[cut:])
	}
	if x.IntN(3) == 0 {
		c.CloseWrite()
	}
	io.CopyN(io.Discard, c, int64(x.IntN(100_000)))
	if x.IntN(3) == 0 {
		c.SetLinger(0)
	}
}

func smppChurn(x *rand.Rand) string {
	switch x.IntN(10) {
	case 0:
		return pdu(unbind, 0, x.Uint32(), "")
	case 1:
		return pdu(enquire, 0, x.Uint32(), "")
	}
	return submitFrom([]string{"bulk", "otp"}[x.IntN(2)], x.Uint32N(50))
}

func httpChurn(x *rand.Rand) string {
	path, body := []string{"/bulk", "/otp"}[x.IntN(2)], strings.Repeat("x", x.IntN(30_000))
	switch x.IntN(4) {
	case 0:
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	case 1:
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", path, len(body)+1, body+"y")
	case 2:
		return fmt.Sprintf("GET %s HTTP/1.0\r\nHost: x\r\n\r\n", path)
	}
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
}

// answerBinds is a provider that answers some submits, delivers something now and then, and
// leaves at random.
func answerBinds(conns <-chan tcpConn) {
	for c := range conns {
		go func() {
			defer c.Close()
			for in := bufio.NewReader(c); ; {
				header := make([]byte, 16)
				if _, err := io.ReadFull(in, header); err != nil || rand.IntN(100) == 0 {
					return
				}
				in.Discard(int(binary.BigEndian.Uint32(header)) - len(header))
				sequence := binary.BigEndian.Uint32(header[12:])
				switch {
				case rand.IntN(10) == 0:
					io.WriteString(c, pdu(deliver, 0, sequence, ""))
				case header[7] == submit && rand.IntN(5) > 0:
					io.WriteString(c, pdu(submitResp, []uint32{0, 0, 0, 0x58}[rand.IntN(4)], sequence, "id\x00"))
				}
			}
		}()
	}
}
