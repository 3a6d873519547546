package unit

import "testing"

func BenchmarkRateTime(b *testing.B) {
	for _, text := range []string{"20mbit", "30 messages/s", "20000 messages/15min", "1.234567891MB/s"} {
		r := rate(b, text)
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Time(1500)
			}
		})
	}
}
