package daemon

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// BenchmarkGrowth shows what a reload and a scrape cost as the policy grows.
func BenchmarkGrowth(b *testing.B) {
	trial.Grow(b, "reload/classes", 1, 10_000, func(b *testing.B, n int) trial.Grown { return reloadOf(b, n, classes(n)) })
	trial.Grow(b, "reload/rules", 10, 100_000, func(b *testing.B, n int) trial.Grown { return reloadOf(b, n, rules(n)) })
	trial.Grow(b, "scrape/classes", 1, 10_000, scrapeOf)
}

func classes(n int) string {
	var text bytes.Buffer
	for i := range n {
		fmt.Fprintf(&text, "[class.c%d]\nrate = \"1mbit\"\n", i)
	}
	return text.String()
}

func rules(n int) string {
	var text bytes.Buffer
	for i := range n {
		fmt.Fprintf(&text, "[[rule]]\nclass = \"guest\"\nsource = \"10.%d.%d.%d\"\n", i>>16, i>>8&255, i&255)
	}
	return text.String()
}

// reloadOf changes the rate of one class in a policy with n sections more.
func reloadOf(b *testing.B, n int, more string) trial.Grown {
	before := trial.Heap()
	p := begin(b, base+more)
	each := (trial.Heap() - before) / float64(n)
	texts := []string{strings.Replace(base, "8KiB/s", "9KiB/s", 1) + more, base + more}
	return trial.Grown{Each: each, Op: func(i int) {
		p.write(texts[i%2])
		if _, err := p.Reload(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}}
}

// scrapeOf asks for all metrics as Prometheus does. It leaves them compressed, so the reader costs
// little.
func scrapeOf(b *testing.B, n int) trial.Grown {
	p := begin(b, base+classes(n))
	ask, err := http.NewRequest("GET", "http://"+p.first.HTTP+"/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	ask.Header.Set("Accept-Encoding", "gzip")
	transport := &http.Transport{DisableKeepAlives: true}
	return trial.Grown{Op: func(int) {
		response, err := transport.RoundTrip(ask)
		if err != nil {
			b.Fatal(err)
		}
		defer response.Body.Close()
		if got, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK || got < 1000 {
			b.Fatalf("%s: %d bytes, %v", response.Status, got, err)
		}
	}}
}
