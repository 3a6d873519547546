package tests

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaper/tests/trial"
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
	p := newProvider(t, func(moment) uint32 {
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

const retryInBodyPolicy = `
[class.acme]
rate         = "20000 messages/s"
on_throttle  = { pause = "2ms", max = "1s" }
throttled_by = { json = "messages.*.status", equals = ["1"] }
retry        = { max = 3 }

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "http"
upstream = %q
class    = "acme"
`

// If a provider refuses every 50th request in the body of a 200, its clients see no refusal. Each
// request is accepted once, and those of a connection in their order.
func TestRetryOfRequestsRefusedInBodies(t *testing.T) {
	t.Parallel()
	p := newBodyProvider()
	provider := httptest.NewServer(p)
	t.Cleanup(provider.Close)
	retriesInBodies(t, p, fmt.Sprintf(retryInBodyPolicy, provider.Listener.Addr()), trial.Size(500, 25_000))
}

// So it is if the provider wants TLS.
func TestRetryOfRequestsRefusedInBodiesOverTLS(t *testing.T) {
	t.Parallel()
	a, p := newAuthority(t), newBodyProvider()
	provider := httptest.NewUnstartedServer(p)
	provider.TLS = &tls.Config{Certificates: []tls.Certificate{a.issue("provider", "127.0.0.1", time.Time{})}}
	provider.StartTLS()
	t.Cleanup(provider.Close)
	retriesInBodies(t, p, fmt.Sprintf(retryInBodyPolicy, provider.Listener.Addr())+a.originating("")+"\n", trial.Size(500, 5000))
}

// retriesInBodies sends n requests of each client through a policy.
func retriesInBodies(t *testing.T, p *bodyProvider, policy string, n int) {
	const clients = 4
	d := start(t, raced(t), policy)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() { p.ask(t, d.addr("gateway"), client, n) })
	}
	all.Wait()
	t.Logf("%d accepted, %d refused", p.accepted, p.refused)
	if p.accepted != clients*n || p.refused < clients*n/50 {
		t.Errorf("%d requests are accepted, and %d refused; want %d, and at least %d", p.accepted, p.refused, clients*n, clients*n/50)
	}
}

// A bodyProvider refuses every 50th request in the body of its answer.
type bodyProvider struct {
	sync.Mutex
	came, accepted, refused int
	last                    map[int]int // the request of each client that was accepted last
	wrong                   string
}

func newBodyProvider() *bodyProvider { return &bodyProvider{last: map[int]int{}} }

func (p *bodyProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var client, id, status int
	body, _ := io.ReadAll(r.Body)
	fmt.Sscanf(string(body), "%d %d", &client, &id)
	p.Lock()
	defer p.Unlock()
	if p.came++; p.came%50 == 0 {
		status = 1
		p.refused++
	} else {
		if p.accepted++; id != p.last[client]+1 {
			p.wrong = fmt.Sprintf("request %d of client %d is accepted after %d", id, client, p.last[client])
		}
		p.last[client] = id
	}
	answer := fmt.Sprintf(`{"messages": [{"status": "%d", "id": "%d-%d"}]}`, status, client, id)
	if id%2 == 0 { // in chunks
		io.WriteString(w, answer[:10])
		http.NewResponseController(w).Flush()
		answer = answer[10:]
	}
	io.WriteString(w, answer)
}

// ask sends so many requests on one connection, ten at a time without an answer, and checks the
// answers.
func (p *bodyProvider) ask(t *testing.T, addr string, client, n int) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	from, sent := bufio.NewReader(c), 0
	for id := 1; id <= n; id++ {
		for ; sent < min(id+9, n); sent++ {
			body := fmt.Sprint(client, " ", sent+1)
			fmt.Fprintf(c, "POST /sms HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Errorf("client %d, request %d: %v", client, id, err)
			return
		}
		body, err := io.ReadAll(answer.Body)
		if want := fmt.Sprintf(`{"messages": [{"status": "0", "id": "%d-%d"}]}`, client, id); err != nil || string(body) != want {
			t.Errorf("client %d gets %q, %v to request %d", client, body, err, id)
			return
		}
	}
	p.Lock()
	defer p.Unlock()
	if p.wrong != "" {
		t.Error(p.wrong)
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
