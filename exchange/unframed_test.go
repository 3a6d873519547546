package exchange_test

import (
	"io"
	"strings"
	"testing"

	"shaper/policy"
	"shaper/stats"
)

// fast lets some messages go at once.
const fast = "[class.c]\nrate = \"1000 messages/s\"\nalgorithm = \"token\"\nburst = \"100 messages\"\n"

const postHead = "POST / HTTP/1.1\r\nHost: h\r\n"

// An empty line before a request, or before the end of the client, is not passed on and counts nothing. The answer
// to the request before it arrives.
func TestEmptyLinesAreNotPassedOn(t *testing.T) {
	asked, answer := post("", "body"), fixed(ok, "hi")
	for _, class := range []string{fast, fast + "retry = { max = 2 }\n"} {
		for text, want := range map[string]string{
			asked + "\r\n" + get:                      asked + get,
			asked + "\r\n\r\n" + get:                  asked + get,
			"\r\n" + asked + get + "\r\n":             asked + get,
			asked + "\r\n":                            asked,
			chunked(postHead, "x") + "\r\n\r\n" + get: chunked(postHead, "x") + get,
		} {
			n := strings.Count(want, "HTTP/1.1\r\n")
			for cut := range len(text) + 1 {
				w := through(t, policy.HTTP, class)
				w.send(text[:cut])
				w.send(text[cut:])
				for range n {
					w.answer(answer)
				}
				w.Up.Ends = io.EOF
				w.Drive(w.Now)
				if string(w.Up.Got) != want || string(w.Down.Got) != strings.Repeat(answer, n) || w.Over || !w.Up.Told {
					t.Fatalf("%q, cut at %d: %q has left, and %q has come; it is over: %v, by %v", text, cut, w.Up.Got, w.Down.Got, w.Over, w.Up.Fault)
				}
				if got := w.Up.Cost; got.Messages != int64(n) || got.Bytes != int64(len(want)) {
					t.Fatalf("%q, cut at %d: sent are %+v", text, cut, got)
				}
				if lost := w.classes["c"].Stats.Dropped[stats.Reset].Items.Load(); lost != 0 || w.Machine.Held(stats.Upstream) != 0 {
					t.Fatalf("%q, cut at %d: %d items are dropped, and %d bytes held", text, cut, lost, w.Machine.Held(stats.Upstream))
				}
			}
		}
	}
}
