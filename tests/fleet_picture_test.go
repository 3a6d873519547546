package tests

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// pictureEnv names the file to which TestFleetSharesOneAccount draws what has reached the provider:
// `make demo-fleet` sets it.
const pictureEnv = "SHAPER_TEST_PICTURE"

// Measures of the picture, in pixels.
const (
	pictureLeft  = 90
	pictureWidth = 1000
	pictureRow   = 34
	pictureTop   = 40
)

// drawFleet draws when messages have reached the provider, on one axis: a row for all of them, and one
// for each client. What the provider refused is red. It draws nothing unless the file is named.
func drawFleet(t *testing.T, title string, all []submission) {
	t.Helper()
	path := os.Getenv(pictureEnv)
	if path == "" || len(all) == 0 {
		return
	}
	if err := os.WriteFile(path, []byte(fleetPicture(title, all)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("the picture of all departures is %s", path)
}

// fleetPicture returns the picture as SVG.
func fleetPicture(title string, all []submission) string {
	all = slices.SortedFunc(slices.Values(all), func(a, b submission) int { return a.by.Compare(b.by) })
	zero, took := all[0].by, max(all[len(all)-1].by.Sub(all[0].by), time.Millisecond)
	x := func(after time.Duration) float64 {
		return pictureLeft + float64(after)/float64(took)*(pictureWidth-pictureLeft-20)
	}
	rows := map[string]int{}
	for _, s := range all {
		rows[s.from] = 0
	}
	for i, from := range slices.Sorted(maps.Keys(rows)) {
		rows[from] = i + 1
	}
	end := pictureTop + (len(rows)+1)*pictureRow
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", pictureWidth, end+40)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="10" y="22" font-weight="bold">%s</text>`+"\n", title)
	label := func(row int, text string) {
		fmt.Fprintf(&b, `<text x="10" y="%d">%s</text>`+"\n", pictureTop+row*pictureRow+22, text)
	}
	label(0, "all")
	for from, row := range rows {
		label(row, from)
	}
	for _, s := range all {
		colour := fmt.Sprintf("hsl(%d 70%% 45%%)", 137*rows[s.from]%360)
		if s.status != 0 {
			colour = "red"
		}
		for _, row := range []int{0, rows[s.from]} {
			fmt.Fprintf(&b, `<path d="M%.1f %dv26" stroke="%s" stroke-width="2"/>`+"\n", x(s.by.Sub(zero)), pictureTop+row*pictureRow+4, colour)
		}
	}
	for at := time.Duration(0); at <= took; at += max(took/10, time.Second).Truncate(time.Second) {
		fmt.Fprintf(&b, `<path d="M%.1f %dv6" stroke="gray"/><text x="%.1f" y="%d" text-anchor="middle">%v</text>`+"\n", x(at), end, x(at), end+22, at)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// A message stands in the row of all, and in that of its client.
func TestFleetPicture(t *testing.T) {
	t.Parallel()
	zero := time.Unix(0, 0)
	picture := fleetPicture("two", []submission{{moment: exactly(zero.Add(2 * time.Second)), from: "b", status: smppThrottled}, {moment: exactly(zero), from: "a"}, {moment: exactly(zero.Add(time.Second)), from: "b"}})
	for text, want := range map[string]int{"v26": 6, `stroke="red"`: 2, ">a<": 1, ">b<": 1, ">2s<": 1, `<path d="M90.0 44v26"`: 1, `<path d="M90.0 78v26"`: 1} {
		if n := strings.Count(picture, text); n != want {
			t.Errorf("%q comes %d times, want %d:\n%s", text, n, want, picture)
		}
	}
}
