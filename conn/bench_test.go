package conn

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// BenchmarkRelay moves bytes through a leaky class whose rate is far above what they need.
func BenchmarkRelay(b *testing.B) {
	addr, conns := listen(b)
	r := run(b, forward(addr, "80gbit"))
	client, upstream := r.open(conns)
	client.SetDeadline(time.Time{})
	upstream.SetDeadline(time.Time{})
	data := make([]byte, 128<<10)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var reader sync.WaitGroup
	reader.Go(func() { io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{upstream}) })
	for b.Loop() {
		if _, err := client.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	client.CloseWrite()
	reader.Wait()
}

// BenchmarkRoundTrip answers small requests, one at a time. direct is without shaper, to
// compare.
func BenchmarkRoundTrip(b *testing.B) {
	addr, conns := listen(b)
	b.Run("leaky", func(b *testing.B) {
		client, upstream := run(b, forward(addr, "80gbit")).open(conns)
		roundTrips(b, client, upstream)
	})
	b.Run("direct", func(b *testing.B) {
		client := dialTCP(b, addr)
		roundTrips(b, client, next(b, conns))
	})
}

func roundTrips(b *testing.B, client, upstream tcpConn) {
	client.SetDeadline(time.Time{})
	upstream.SetDeadline(time.Time{})
	var echo sync.WaitGroup
	echo.Go(func() {
		io.CopyBuffer(struct{ io.Writer }{upstream}, struct{ io.Reader }{upstream}, make([]byte, 1024))
	})
	data := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		client.Write(data)
		if _, err := io.ReadFull(client, data); err != nil {
			b.Fatal(err)
		}
	}
	client.Close()
	echo.Wait()
}

// BenchmarkConnections opens a connection, echoes five bytes and closes it.
func BenchmarkConnections(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var serving sync.WaitGroup
	b.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { io.Copy(struct{ io.Writer }{c}, c); c.Close() })
		}
	})
	r := run(b, forward(l.Addr().String(), "80gbit"))
	addr := r.addr("l")
	b.ReportAllocs()
	for b.Loop() {
		if err := shortEcho(addr); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "conn/s")
}

// BenchmarkDatagrams sends as fast as it can, and counts what arrives.
func BenchmarkDatagrams(b *testing.B) {
	r := run(b, udp(policy.Discard, "80gbit"))
	c := dialUDP(b, r.addr("l"))
	c.SetDeadline(time.Time{})
	data := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.sent("c", stats.Upstream).Packets.Load())/b.Elapsed().Seconds(), "packets/s")
}
