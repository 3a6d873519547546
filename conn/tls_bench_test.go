package conn

import (
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkTLSHandshake does handshakes with an upstream, whole and resumed. It reports the processor time of our end: its
// goroutine has a thread of its own.
func BenchmarkTLSHandshake(b *testing.B) {
	for _, c := range []struct {
		name    string
		resumes bool
	}{{"whole", false}, {"resumed", true}} {
		b.Run(c.name, func(b *testing.B) {
			a := newAuthority(b)
			to := "localhost:1"
			p := parse(b, forward(to, fast, a.originating("")))
			var f tlsFiles
			config := f.read(&p.Listeners[0]).upstream[to]
			if !c.resumes {
				config.ClientSessionCache = nil
			}
			server := serving(a.issue("server"))
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			shakeHands(b, config, server) // the first one has nothing to resume
			var took time.Duration
			for b.Loop() {
				state, spent := shakeHands(b, config, server)
				if took += spent; state.DidResume != c.resumes {
					b.Fatalf("it is resumed: %v", state.DidResume)
				}
			}
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}

// shakeHands does a handshake in memory, and reads the byte that follows: tickets come before it. It returns the
// processor time of this thread.
func shakeHands(b *testing.B, client, server *tls.Config) (tls.ConnectionState, time.Duration) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		tls.Server(theirs, server).Write([]byte{0})
	}()
	before := threadTime(b)
	c := tls.Client(ours, client)
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	return c.ConnectionState(), threadTime(b) - before
}

// threadTime returns the processor time that this thread has used.
func threadTime(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkTLSRelay sends pieces of 64 KiB through a session, with TLS to the upstream, from
// the client, and on both sides. The peers are in the same process.
func BenchmarkTLSRelay(b *testing.B) {
	for _, c := range []struct {
		name             string
		client, upstream bool
	}{{"upstream", false, true}, {"client", true, false}, {"both", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			a := newAuthority(b)
			cert := a.issue("server")
			addr, conns := listen(b)
			var lines []string
			if c.client {
				lines = append(lines, cert.terminating())
			}
			if c.upstream {
				lines = append(lines, a.originating(""))
			}
			r := run(b, forward(addr, "800gbit", lines...))
			var client net.Conn
			if c.client {
				client = r.dialTLS("l", a.trusting())
			} else {
				client = r.dial("l")
			}
			var upstream net.Conn = next(b, conns)
			if c.upstream {
				upstream = tls.Server(upstream, serving(cert))
			}
			received := make(chan int64)
			go func() {
				n, _ := io.Copy(io.Discard, upstream)
				received <- n
			}()
			data := make([]byte, 64<<10)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			client.(interface{ CloseWrite() error }).CloseWrite()
			if n := <-received; n < int64(b.N)*int64(len(data)) {
				b.Errorf("%d bytes arrive", n)
			}
		})
	}
}
