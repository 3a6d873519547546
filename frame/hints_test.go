package frame

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// hintNow is a Sunday.
var hintNow = time.Date(2026, 11, 22, 22, 0, 0, 0, time.UTC)

// readHints reads lines of a head as text: how much remains of what and for how long, and how many
// lines make no sense.
func readHints(lines ...string) (text string, ids []uint64) {
	var h Hints
	h.Read([]byte(strings.Join(lines, "\r\n")+"\r\n\r\n"), hintNow)
	var all []string
	for _, hint := range h.All() {
		all = append(all, fmt.Sprintf("%d %s for %v", hint.Remaining, [...]string{"others", "requests", "tokens"}[hint.Unit], hint.For))
		ids = append(ids, hint.ID)
	}
	if h.Unclear > 0 {
		all = append(all, fmt.Sprintf("unclear %d", h.Unclear))
	}
	return strings.Join(all, "; "), ids
}

func TestHints(t *testing.T) {
	const day = 24 * time.Hour
	at := func(d time.Duration) string { return fmt.Sprint(hintNow.Add(d).Unix()) }
	for _, c := range []struct{ lines, want string }{
		{`Content-Type: text/plain`, ""},

		{`RateLimit: "default";r=50;t=30`, "50 requests for 30s"},
		{`ratelimit:"default";r=0;t=1`, "0 requests for 1s"},
		{`RateLimit: "a";r=1;t=2, "b";r=3;t=4;pk=:Zm9v:`, "1 requests for 2s; 3 requests for 4s"},
		{"RateLimit: \"a\";r=1;t=2\r\nRateLimit: \"b\";r=3;t=4", "1 requests for 2s; 3 requests for 4s"},
		{`RateLimit: "a, \";r=9;t=9";r=1;t=2`, "1 requests for 2s"},
		{`RateLimit: default;r=7;t=8`, "7 requests for 8s"},
		{"RateLimit: \"a\";r=1;t=2\r\nRateLimit-Policy: \"b\";q=9;w=60;qu=\"tokens\", \"a\";q=10;w=60;qu=\"content-bytes\"", "1 others for 2s"},
		{"RateLimit-Policy: \"a\";q=10;w=60;qu=\"tokens\"\r\nRateLimit: \"a\";r=1;t=2", "1 tokens for 2s"},
		{"RateLimit-Policy: \"a\";q=10;w=60\r\nRateLimit: \"a\";r=1", "1 requests for 1m0s"},
		{`RateLimit: "a";r=1`, "unclear 1"},
		{`RateLimit: "a";t=1`, "unclear 1"},
		{`RateLimit: "a";r=-1;t=1`, "unclear 1"},
		{`RateLimit: "a";r=1;t=-1`, "unclear 1"},
		{`RateLimit: "a";r=1;t=`, "unclear 1"},
		{`RateLimit: "a";r=1;t=0`, ""},
		{`RateLimit: "a";r=99999999999999999;t=1`, "unclear 1"},
		{`RateLimit: "a";r=1;t=2764800`, "1 requests for 768h0m0s"},
		{`RateLimit: "a";r=1;t=2764801`, "unclear 1"},
		{`RateLimit: "a";r=1;t=999999999999999999`, "unclear 1"},
		{`RateLimit: `, ""},
		{`RateLimit: ,,;,`, ""},

		{`RateLimit: limit=10, remaining=0, reset=5`, "0 requests for 5s"},
		{`RateLimit: limit=10,remaining=4`, "unclear 1"},
		{"RateLimit-Limit: 10\r\nRateLimit-Remaining: 3\r\nRateLimit-Reset: 5", "3 requests for 5s"},
		{"RateLimit-Remaining: 3", "unclear 1"},
		{"RateLimit-Reset: 3", ""},

		{"X-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: 12", "59 requests for 12s"},
		{"X-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: 1.25", "59 requests for 1.25s"},
		{"X-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: " + at(time.Minute), "59 requests for 1m0s"},
		{"X-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: " + at(time.Minute) + "500", "59 requests for 1m0.5s"},
		{"X-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: " + at(time.Minute) + ".750", "59 requests for 1m0.75s"}, // Discord
		{"X-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: " + at(time.Minute) + ".x", "unclear 1"},
		{"X-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: " + at(-time.Minute), ""},
		{"X-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: " + at(33*day), "unclear 1"},
		{"x-rate-limit-remaining: 5\r\nx-rate-limit-reset: " + at(15*time.Minute), "5 requests for 15m0s"},
		{"X-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: 2026-11-22T22:00:30Z", "5 requests for 30s"},
		{"X-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: Sun, 22 Nov 2026 22:00:40 GMT", "5 requests for 40s"},
		{"X-RateLimit-Remaining: 5\r\nX-RateLimit-Used: 3\r\nX-RateLimit-Resource: core\r\nX-RateLimit-Reset: 9", "5 requests for 9s"},
		{"X-RateLimit-Remaining: -5\r\nX-RateLimit-Reset: 9", "unclear 1"},
		{"X-RateLimit-Remaining: five\r\nX-RateLimit-Reset: 9", "unclear 1"},
		{"X-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: soon", "unclear 1"},
		{"X-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: -9s", "unclear 1"},
		{"X-RateLimit-Remaining:\r\nX-RateLimit-Reset:", "unclear 1"},

		// The clock of the provider is ten minutes ahead.
		{"Date: Sun, 22 Nov 2026 22:10:00 GMT\r\nX-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: " + at(11*time.Minute), "5 requests for 1m0s"},
		{"Date: Sun, 22 Nov 2026 22:10:00 GMT\r\nX-RateLimit-Remaining: 5\r\nX-RateLimit-Reset: 60", "5 requests for 1m0s"},

		{"x-ratelimit-limit-requests: 60\r\nx-ratelimit-limit-tokens: 150000\r\nx-ratelimit-remaining-requests: 59\r\n" +
			"x-ratelimit-remaining-tokens: 149984\r\nx-ratelimit-reset-requests: 1s\r\nx-ratelimit-reset-tokens: 6m0s", "59 requests for 1s; 149984 tokens for 6m0s"},
		{"x-ratelimit-remaining-requests: 9999\r\nx-ratelimit-reset-requests: 20ms", "9999 requests for 20ms"},
		{"x-ratelimit-remaining-project-tokens: 1\r\nx-ratelimit-reset-project-tokens: 1s", ""},

		{"anthropic-ratelimit-requests-limit: 50\r\nanthropic-ratelimit-requests-remaining: 49\r\nanthropic-ratelimit-requests-reset: 2026-11-22T22:00:01Z\r\n" +
			"anthropic-ratelimit-tokens-remaining: 8000\r\nanthropic-ratelimit-tokens-reset: 2026-11-22T22:00:02Z\r\n" +
			"anthropic-ratelimit-input-tokens-remaining: 7000\r\nanthropic-ratelimit-input-tokens-reset: 2026-11-22T22:00:03Z\r\n" +
			"anthropic-ratelimit-output-tokens-remaining: 1000\r\nanthropic-ratelimit-output-tokens-reset: 2026-11-22T22:00:04+00:00",
			"49 requests for 1s; 8000 tokens for 2s; 7000 tokens for 3s; 1000 tokens for 4s"},
	} {
		got, ids := readHints(c.lines)
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.lines, got, c.want)
		}
		if slices.Sort(ids); len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Errorf("%q: two limits have the same ID: %d", c.lines, ids)
		}
	}
}

// A limit has the same ID in each answer, and another one in another partition.
func TestHintIDs(t *testing.T) {
	_, first := readHints(`RateLimit: "a";r=1;t=2;pk=:YQ==:, "b";r=1;t=2`)
	_, second := readHints(`RateLimit: "b";r=9;t=8, "a";r=7;t=6;pk=:YQ==:`)
	_, other := readHints(`RateLimit: "a";r=1;t=2;pk=:Yg==:`)
	if first[0] != second[1] || first[1] != second[0] || other[0] == first[0] {
		t.Fatalf("the IDs are %x, then %x, in another partition %x", first, second, other)
	}
}

// More fields than anybody sends take neither memory nor time.
func TestManyHints(t *testing.T) {
	lines := slices.Repeat([]string{`RateLimit: "a";r=1;t=2, "b";r=1;t=2, "c";r=1;t=2, "d";r=1;t=2, "e";r=1;t=2`}, 9)
	if got, _ := readHints(lines...); strings.Count(got, "1 requests") != mostHints {
		t.Fatalf("read %q, want %d hints", got, mostHints)
	}
	var h Hints
	text := []byte("Server: x\r\nX-RateLimit-Remaining: 59\r\nX-RateLimit-Reset: 12\r\nRateLimit: \"a\";r=1;t=2\r\n\r\n")
	if n := testing.AllocsPerRun(100, func() { h.Read(text, hintNow) }); n > 0 {
		t.Fatalf("reading hints allocates %v times", n)
	}
}

func FuzzHints(f *testing.F) {
	for _, seed := range []string{
		"RateLimit: \"default\";r=50;t=30\r\nRateLimit-Policy: \"default\";q=100;w=60;qu=\"tokens\"\r\n\r\n",
		"RateLimit: limit=10, remaining=0, reset=5\r\n\r\n",
		"X-RateLimit-Remaining: 1\r\nX-RateLimit-Reset: 1795000000\r\nDate: Sun, 22 Nov 2026 22:10:00 GMT\r\n\r\n",
		"x-ratelimit-remaining-tokens: 149984\r\nx-ratelimit-reset-tokens: 6m0s\r\n\r\n",
		"anthropic-ratelimit-output-tokens-remaining: 1000\r\nanthropic-ratelimit-output-tokens-reset: 2026-11-22T22:00:04Z\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, fields []byte) {
		var h, again Hints
		before := string(fields)
		h.Read(fields, hintNow)
		again.Unclear = 7
		again.Read(fields, hintNow)
		if h != again || string(fields) != before {
			t.Fatalf("%q: read %v, then %v", fields, h, again)
		}
		for _, hint := range h.All() {
			if hint.Remaining < 0 || hint.Remaining > mostRemaining || hint.For <= 0 || hint.For > longestHint || hint.Unit > HintTokens {
				t.Fatalf("%q: read %+v", fields, hint)
			}
		}
		// Other fields change nothing.
		again.Read([]byte("Server: x\r\n"+before), hintNow)
		if !slices.Equal(h.All(), again.All()) {
			t.Fatalf("%q: read %v, and behind another field %v", fields, h.All(), again.All())
		}
	})
}
