package policy

import (
	"testing"

	"shaper/tests/trial"
)

// BenchmarkGrowth shows what it costs to find the class of a client as the rules become more, each of which has
// networks of clients.
func BenchmarkGrowth(b *testing.B) {
	trial.Grow(b, "class of a client/rules", 10, 100_000, func(_ *testing.B, n int) trial.Grown {
		p := manyPrefixes(n, n, 20)
		conns, before := manyConns(p, true), trial.Heap()
		c := Compile(p)
		each := (trial.Heap() - before) / float64(n)
		return trial.Grown{Each: each, Op: func(i int) { c.Classify(conns[i%len(conns)]) }}
	})
}
