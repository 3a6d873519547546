package exchange_test

import (
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// Whenever its host stops, a connection of HTTP ends at once only between an answer and the next
// request: wherever a byte of either is missing, it goes on.
func TestDrainCutsNoRequest(t *testing.T) {
	type said struct {
		byClient bool
		text     string
		boundary bool // all requests have come, and have their answers
	}
	talk := []said{
		{true, post("", "body"), false}, {false, "HTTP/1.1 100 Continue\r\n\r\n" + fixed(ok, "hi"), true},
		{true, chunked("POST / HTTP/1.1\r\nHost: h\r\n", "bo", "dy"), false}, {false, chunked(ok, "h", "i"), true},
		{true, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nb", false}, {false, fixed("HTTP/1.1 413 No\r\n", ""), false}, {true, "ody", true},
		{true, get + get, false}, {false, fixed(ok, "hi"), false}, {false, fixed(ok, "hi"), true},
	}
	for _, class := range []string{"[class.c]\nrate = \"1000 messages/s\"\n", inBody} {
		for last, piece := range talk {
			for n := 1; n <= len(piece.text); n++ {
				w := through(t, policy.HTTP, class)
				for i, s := range talk[:last+1] {
					if i == last {
						s.text = s.text[:n]
					}
					if s.byClient {
						w.send(s.text)
					} else {
						w.answer(s.text)
					}
					w.wait(time.Second)
				}
				w.Machine.Drain(w.Now, false)
				w.Drive(w.Now)
				if want := piece.boundary && n == len(piece.text); w.Retired != want {
					t.Errorf("after %d bytes of %.20q (%d), it ends: %v, want %v", n, piece.text, last, w.Retired, want)
				}
				w.Finish(stats.OK)
			}
		}
	}
}
