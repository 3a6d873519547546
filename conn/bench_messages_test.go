package conn

import (
	"io"
	"testing"
	"time"
)

// BenchmarkSubmits relays submits in batches of 50, none of which has to wait.
func BenchmarkSubmits(b *testing.B) {
	addr, conns := listen(b)
	r := run(b, exchanged("smpp", addr, "100000000 messages/s"))
	client, upstream := r.open(conns)
	client.SetDeadline(time.Time{})
	upstream.SetDeadline(time.Time{})
	var asks, answers []byte
	for i := range uint32(50) {
		asks = append(asks, submitFrom("acme", i)...)
		answers = append(answers, pdu(submitResp, 0, i, "id\x00")...)
	}
	got := make([]byte, len(asks))
	b.ReportAllocs()
	for b.Loop() {
		client.Write(asks)
		if _, err := io.ReadFull(upstream, got); err != nil {
			b.Fatal(err)
		}
		upstream.Write(answers)
		if _, err := io.ReadFull(client, got[:len(answers)]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(50*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
