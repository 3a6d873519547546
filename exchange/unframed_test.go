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

// bad is no request: it has two hosts.
const bad = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"

// A client that sends what is no request gets the answers to its requests before that, and only then is cut off.
// Nothing that it sends behind it leaves.
func TestAnswersThatAreOwedComeBeforeTheEnd(t *testing.T) {
	answer := fixed(ok, "hi")
	for _, class := range []string{fast, fast + "retry = { max = 2 }\n"} {
		for _, c := range []struct {
			name, said string
			ends       error // what follows that
			leaves     string
			answers    int
		}{
			{"a bad request", get + bad, nil, get, 1},
			{"a bad request, and a good one behind it", get + bad + get, nil, get, 1},
			{"a bad request behind two others", get + post("", "body") + bad, nil, get + post("", "body"), 2},
			{"a bad first byte", get + "{", nil, get, 1},
			{"an end amid a head", get + postHead, io.EOF, get, 1},
			{"a bad chunk", get + postHead + "Transfer-Encoding: chunked\r\n\r\nx\r\n", nil, get + postHead + "Transfer-Encoding: chunked\r\n\r\n", 1},
			{"an end amid a body", get + postHead + "Content-Length: 9\r\n\r\nbody", io.EOF, get + postHead + "Content-Length: 9\r\n\r\nbody", 1},
			{"nothing before it", bad, nil, "", 0},
		} {
			all := strings.Repeat(answer, c.answers)
			for cut := range len(all) + 1 {
				w := through(t, policy.HTTP, class)
				w.Up.Ends = c.ends
				w.send(c.said)
				w.answer(all[:cut])
				w.Drive(w.Now) // nothing is framed a second time
				if got := string(w.Down.Got); got != all[:len(got)] || w.Over != (cut == len(all)) {
					t.Fatalf("%s, cut at %d: %q has come; it is over: %v", c.name, cut, got, w.Over)
				}
				w.answer(all[cut:])
				if got := string(w.Down.Got); got != all || !w.Over || w.Result != stats.Unframed || string(w.Up.Got) != c.leaves {
					t.Fatalf("%s, cut at %d: %q has left, and %q has come; it is over: %v, by %v", c.name, cut, w.Up.Got, got, w.Over, w.Result)
				}
				w.Finish(stats.OK)
				if n := w.classes["c"].InFlight(); n != 0 {
					t.Errorf("%s, cut at %d: %d requests count as in flight", c.name, cut, n)
				}
			}
		}
	}
}

// What is owed is more than the answers of the provider, and comes whenever it can.
func TestWhatElseIsOwedBeforeTheEnd(t *testing.T) {
	answer := fixed(ok, "hi")
	over := func(t *testing.T, w *wire, want string) {
		if got := string(w.Down.Got); got != want || !w.Over || w.Result != stats.Unframed {
			t.Errorf("%q has come; it is over: %v, by %v", got, w.Over, w.Result)
		}
	}
	t.Run("an early answer that has begun", func(t *testing.T) {
		w := through(t, policy.HTTP, fast)
		early := "HTTP/1.1 413 Content Too Large\r\nContent-Length: 10\r\n\r\n0123456789"
		w.send(postHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
		w.answer(early[:len(early)-5])
		w.send("x\r\n") // no chunk
		w.answer(early[len(early)-5:])
		over(t, w, early)
	})
	t.Run("a refusal", func(t *testing.T) {
		w := through(t, policy.HTTP, "[class.c]\nrate = \"1 messages/s\"\nmax_wait = \"1ms\"\n")
		w.send(get + get + bad)
		if len(w.Down.Got) > 0 || w.Over {
			t.Errorf("%q comes before the answer; it is over: %v", w.Down.Got, w.Over)
		}
		w.answer(answer)
		got := string(w.Down.Got)
		if !strings.HasPrefix(got, answer+"HTTP/1.1 429 ") {
			t.Errorf("%q has come", got)
		}
		over(t, w, got)
	})
	t.Run("an answer in the same turn", func(t *testing.T) {
		w := through(t, policy.HTTP, fast)
		w.send(get)
		w.Down.In = append(w.Down.In, answer...)
		w.send(bad)
		over(t, w, answer)
	})
	t.Run("the client has no room", func(t *testing.T) {
		w := through(t, policy.HTTP, fast)
		w.Down.Room = 5
		w.send(get + bad)
		w.answer(answer)
		if w.Over {
			t.Error("it ends before the client has the answer")
		}
		w.Down.Room = -1
		w.Drive(w.Now)
		over(t, w, answer)
	})
	t.Run("the provider ends without it", func(t *testing.T) {
		w := through(t, policy.HTTP, fast)
		w.send(get + get + bad)
		w.Down.Ends = io.EOF
		w.answer(answer)
		over(t, w, answer)
	})
	t.Run("the last answer of an old connection", func(t *testing.T) {
		w := through(t, policy.HTTP, fast)
		w.send(get)
		w.Machine.Retire(w.Now, false)
		w.answer(ok + "Content-Length: 2\r\n\r\nh")
		w.send(bad)
		w.answer("i")
		over(t, w, strings.Replace(answer, "\r\n", "\r\nConnection: close\r\n", 1))
		if w.Lingers || w.Retired {
			t.Errorf("it lingers: %v, and retires: %v", w.Lingers, w.Retired)
		}
	})
}

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
