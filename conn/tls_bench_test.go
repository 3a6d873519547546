package conn

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

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
