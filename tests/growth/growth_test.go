package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const printed = `goos: linux
cpu: Some Processor
BenchmarkGrowth/item_of_a_key/keys=1         10   30 ns/op  100 B/each  20.0 cpu-ns/op  0 B/op  7 allocs/op
BenchmarkGrowth/item_of_a_key/keys=1-2       10   30 ns/op  100 B/each  25.5 cpu-ns/op  0 B/op  7 allocs/op
BenchmarkGrowth/item_of_a_key/keys=10-2      10  900 ns/op   50 B/each  700000 cpu-ns/op  0 B/op  14 allocs/op
BenchmarkGrowth/item_of_a_key/keys=10-2      10  900 ns/op   50 B/each  510000 cpu-ns/op  0 B/op  14 allocs/op
BenchmarkGrowth/item_of_a_key/keys=10-2      10  900 ns/op   50 B/each  500000 cpu-ns/op  0 B/op  14 allocs/op
PASS
`

func TestPage(t *testing.T) {
	dir := t.TempDir()
	if err := run(strings.NewReader(printed), dir, "1234abcd of 2026-11-23"); err != nil {
		t.Fatal(err)
	}
	page := text(t, dir, "growth.md")
	for _, want := range []string{
		"(here on: Some Processor; shaper 1234abcd of 2026-11-23)",
		"## Processor time, GOMAXPROCS=1\n\n| | of | 1 | 10 |",
		"| item of a key | keys | 20ns |  |  |  |  |  |  |  |\n",
		"| item of a key | keys | 25ns | 510µs |  |  |  |  |  | 20000.0 |\n",
		"## Allocations, GOMAXPROCS=2\n",
		"| item of a key | keys | 7 | 14 |  |  |  |  |  | 2.0 |\n",
		"| item of a key | keys | 100 | 50 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "Allocations, GOMAXPROCS=1") {
		t.Error("the page has allocations of both numbers of processors")
	}
	plot := text(t, dir, "growth.svg")
	for d := xml.NewDecoder(strings.NewReader(plot)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, plot)
		}
	}
	if n := strings.Count(plot, "item of a key, keys"); n != 1 {
		t.Errorf("the plot names %d curves, want 1", n)
	}
}

func text(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What has failed, or measured nothing, leaves the page as it was.
func TestNoPage(t *testing.T) {
	for _, printed := range []string{"", "PASS\n", printed + "--- FAIL: x\nFAIL\n"} {
		if err := run(strings.NewReader(printed), "/no/such/directory", ""); err == nil || strings.Contains(err.Error(), "directory") {
			t.Errorf("%.20q: the error is %v", printed, err)
		}
	}
}

func TestSeconds(t *testing.T) {
	for ns, want := range map[float64]string{0.4: "0s", 999: "999ns", 1234: "1.23µs", 56_789: "56.8µs", 2.7765e9: "2.78s"} {
		if got := seconds(ns); got != want {
			t.Errorf("seconds(%v) = %s, want %s", ns, got, want)
		}
	}
}
