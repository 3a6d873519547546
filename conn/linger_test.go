package conn

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"shaper/stats"
)

// A refusal that ends the connection reaches a client that sends all of its body first, however slowly, or that reads
// slowly what came before. Then both peers see a clean end.
func TestRefusalThatEndsReachesSlowClients(t *testing.T) {
	const (
		piece  = 400_000
		upload = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n"
		last   = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
		size   = 200_000 // more than all buffers on the way hold
	)
	long := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
	for _, c := range []struct {
		name   string
		before string // the answer before the refusal
		asks   string
		goOn   func(client tcpConn)
		reads  time.Duration // when the client begins to read
	}{
		{"it sends", answerShort, upload, func(client tcpConn) {
			for range 2_000_000 / piece {
				time.Sleep(refusedTimeout - time.Second)
				if _, err := io.WriteString(client, strings.Repeat("x", piece)); err != nil {
					t.Errorf("the client, which has not read yet, cannot send: %v", err)
				}
			}
		}, 21 * time.Second},
		{"it reads", long, last, func(tcpConn) {}, 10 * time.Second},
		{"it has ended, and reads", long, last, func(client tcpConn) { client.CloseWrite() }, 10 * time.Second},
	} {
		t.Run(c.name, virtual(func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, class("c", "1 messages/h", `max_wait = "1s"`)+listener("l", "http", to, "c"))
			client, server := r.open(conns)
			client.SetReadBuffer(1)
			send(t, client, getShort)
			expect(t, server, getShort)
			go io.WriteString(server, c.before)
			time.Sleep(time.Second)
			go func() {
				io.WriteString(client, c.asks)
				c.goOn(client)
			}()
			time.Sleep(c.reads)
			got, err := io.ReadAll(client)
			if refusal, found := strings.CutPrefix(string(got), c.before); err != nil || !found || !isLast(refusal) {
				t.Errorf("the client gets %d bytes, at the end %.99q, and %v", len(got), refusal, err)
			}
			client.Close()
			expectEnd(t, server)
			r.awaitEnd(stats.Overflow, 1)
		}))
	}
}

// A client that goes on to send after such a refusal is read for half a minute, and one that does nothing for a few
// seconds.
func TestLingerEnds(t *testing.T) {
	for sends, want := range map[bool]time.Duration{true: mostLinger, false: refusedTimeout} {
		t.Run(fmt.Sprint(sends), virtual(func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, class("c", "1 messages/h", `max_wait = "1s"`)+listener("l", "http", to, "c"))
			client, server := r.open(conns)
			passShort(t, client, server)
			send(t, client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n")
			began := time.Now()
			for err := error(nil); sends && err == nil; time.Sleep(time.Second) {
				_, err = io.WriteString(client, "x")
			}
			expectEnd(t, server)
			if took := time.Since(began); took < want || took > want+4*time.Second {
				t.Errorf("it ends after %v, want %v", took, want)
			}
			r.awaitEnd(stats.Overflow, 1)
		}))
	}
}

// A stop does not wait so long.
func TestShutdownEndsALinger(t *testing.T) {
	for _, before := range []time.Duration{0, time.Second} {
		t.Run(fmt.Sprint("told ", before, " before"), virtual(func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, class("c", "1 messages/h", `max_wait = "1s"`)+listener("l", "http", to, "c"))
			client, server := r.open(conns)
			passShort(t, client, server)
			send(t, client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n")
			ended := make(chan bool)
			go func() {
				for err := error(nil); err == nil; time.Sleep(300 * time.Millisecond) {
					_, err = io.WriteString(client, "x")
				}
				close(ended)
			}()
			time.Sleep(before)
			began := time.Now()
			if n := r.Shutdown(within(20 * time.Second)); n != 0 {
				t.Errorf("%d sessions were reset", n)
			}
			if took, most := time.Since(began), lingerTimeout+time.Second+janitorPeriod; took > most {
				t.Errorf("it took %v, want %v at most", took, most)
			}
			expectEnd(t, server)
			r.awaitEnd(stats.Overflow, 1)
			<-ended
		}))
	}
}
