package exchange_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/frame"
	"shaper/policy"
	"shaper/stats"
)

const (
	judged  = "[class.c]\nrate = \"1000 messages/s\"\nretry = { max = 1 }\non_throttle = { pause = \"1s\" }\nthrottled_by = "
	inBody  = judged + "{ json = \"a.status\", equals = [\"1\"] }\n"
	inField = judged + "{ header = \"X-Error\", equals = \"1\" }\n"

	ok      = "HTTP/1.1 200 OK\r\n"
	tooFast = `{"a": {"status": "1"}}`
	taken   = `{"a": {"status": "0"}}`
	bound   = 128 << 10
)

// fixed returns an answer with a length.
func fixed(head, body string) string {
	return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
}

// padded returns a body of so many bytes.
func padded(body string, n int) string { return body + strings.Repeat(" ", n-len(body)) }

// heldAnswers are answers to the first request, and what becomes of them.
var heldAnswers = []struct {
	name, class, request, answer string
	again                        bool   // the request is sent again, and the client gets nothing
	counted                      string // else; "" if it is no refusal
}{
	{"accepted", inBody, get, fixed(ok, taken), false, ""},
	{"accepted in chunks", inBody, get, chunked(ok, taken[:3], taken[3:]), false, ""},
	{"empty", inBody, get, fixed(ok, ""), false, ""},
	{"no document", inBody, get, fixed(ok, "]{"), false, ""},
	{"refused", inBody, get, fixed(ok, tooFast), true, ""},
	{"refused in chunks", inBody, get, chunked(ok, tooFast[:3], tooFast[3:10], tooFast[10:]), true, ""},
	{"refused with a trailer", inBody, get, strings.TrimSuffix(chunked(ok, tooFast), "\r\n") + "X-Sum: 1\r\n\r\n", true, ""},
	{"refused in gzip", inBody, get, fixed(ok+"Content-Encoding: gzip\r\n", zipped(tooFast)), true, ""},
	{"refused with 400", inBody, get, fixed("HTTP/1.1 400 No\r\n", tooFast), true, ""},
	{"refused with 429 and a body", inBody, get, fixed("HTTP/1.1 429 No\r\n", tooFast), true, ""},
	{"refused after 100 and 103", inBody, post("", "{}"), "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" + fixed(ok, tooFast), true, ""},
	{"refused in as much as is held", inBody, get, fixed(ok, padded(tooFast, bound)), true, ""},
	{"refused in more", inBody, get, fixed(ok, padded(tooFast, bound+1)), false, "not_kept"},
	{"refused in chunks of more", inBody, get, chunked(ok, padded(tooFast, 100_000), padded(" ", 100_000)), false, "not_kept"},
	{"refused behind the bound", inBody, get, chunked(ok, padded(" ", bound), tooFast), false, "not_kept"},
	{"refused in more than is read", inBody, get, fixed(ok, padded(tooFast, 300_000)), false, ""},
	{"refused without a length", inBody, get, ok + "\r\n" + tooFast, false, "not_kept"},
	{"refused and closed", inBody, get, fixed(ok+"Connection: close\r\n", tooFast), false, "not_kept"},
	{"refused by HTTP/1.0", inBody, get, fixed("HTTP/1.0 200 OK\r\n", tooFast), false, "not_kept"},
	{"429 and closed", inField, get, fixed("HTTP/1.1 429 No\r\nConnection: close\r\n", "no"), false, "not_kept"},
	{"429 and closed, and its body says so too", inBody, get, fixed("HTTP/1.1 429 No\r\nConnection: close\r\n", tooFast), false, "not_kept"},
	{"429 by HTTP/1.0", inField, get, fixed("HTTP/1.0 429 No\r\n", "no"), false, "not_kept"},
	{"429 with a long body", inField, get, fixed("HTTP/1.1 429 No\r\n", padded("", frame.MaxSwallow+1)), false, "not_kept"},
	{"503 and closed", inField, get, fixed("HTTP/1.1 503 No\r\nRetry-After: 1\r\nConnection: close\r\n", "no"), false, ""},
	{"refused in an event", inBody, get, chunked(ok+"Content-Type: text/event-stream\r\n", "data: "+tooFast+"\n\n"), false, "not_kept"},
	{"refused in another encoding", inBody, get, fixed(ok+"Content-Encoding: br\r\n", tooFast), false, ""},
	{"to HEAD", inBody, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", ok + "Content-Length: 22\r\n\r\n", false, ""},
	{"a field, to HEAD", inField, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", ok + "X-Error: 1\r\nContent-Length: 22\r\n\r\n", true, ""},
	{"a field", inField, get, fixed(ok+"X-Error: 1\r\n", "no"), true, ""},
	{"a field with 204", inField, get, "HTTP/1.1 204 No\r\nX-Error: 1\r\n\r\n", true, ""},
	{"a field of an endless body", inField, get, ok + "X-Error: 1\r\n\r\nno", false, "not_kept"},
	{"a field of a long body", inField, get, fixed(ok+"X-Error: 1\r\n", padded("", frame.MaxSwallow+1)), false, "not_kept"},
	{"another value of a field", inField, get, fixed(ok+"X-Error: 2\r\n", tooFast), false, ""},
}

// An answer is held back until its body says whether it refuses its request. Then it passes on
// unchanged, or the request is sent again; and so if it comes in pieces.
func TestAnswersAreHeldBack(t *testing.T) {
	for _, c := range heldAnswers {
		for _, piece := range []int{0, 1, 7} {
			if piece > 0 && len(c.answer) > 1000 {
				piece *= 1000
			}
			t.Run(fmt.Sprint(c.name, " in pieces of ", piece), func(t *testing.T) {
				w := through(t, policy.HTTP, c.class)
				w.send(c.request + c.request)
				for rest := c.answer; rest != ""; {
					n := len(rest)
					if piece > 0 {
						n = min(n, piece)
					}
					w.answer(rest[:n])
					rest = rest[n:]
				}
				if strings.HasPrefix(c.answer, ok+"\r\n") || strings.HasPrefix(c.answer, ok+"X-Error: 1\r\n\r\n") {
					w.Down.Ends = io.EOF
					w.Drive(w.Now)
				}
				w.checkHeld(c.request, c.answer, c.again, c.counted)
				if n := exchange.KeptMemory(); w.Over && n != 0 {
					t.Errorf("%d bytes are still kept", n)
				}
				w.Finish(stats.OK)
			})
		}
	}
}

// checkHeld checks what became of the first request of two, by the answer to it.
func (w *wire) checkHeld(request, answer string, again bool, counted string) {
	w.t.Helper()
	got, n := string(w.Down.Got), w.classes["c"].Stats.Read().Retried
	if !again {
		if got != answer {
			w.t.Errorf("the client gets %.200q of %d bytes", got, len(got))
		}
		if counted == "" && len(n) > 0 || counted != "" && (n[counted] != 1 || len(n) != 1) {
			w.t.Errorf("counted: %v, want %q", n, counted)
		}
		return
	}
	if informed := answer[:max(strings.LastIndex(answer, "HTTP/1.1"), 0)]; got != informed || n["again"] != 1 {
		w.t.Errorf("the client gets %q; counted: %v", got, n)
	}
	if w.wait(2 * time.Second); string(w.Up.Got) != request+request { // the same one, twice
		w.t.Errorf("the provider gets %q", w.Up.Got)
	}
	w.Down.Got = nil
	w.answer(answer) // it may not be sent once more
	if got := string(w.Down.Got); got != answer || w.classes["c"].Stats.Read().Retried["last"] != 1 {
		w.t.Errorf("then the client gets %.200q; counted: %v", got, n)
	}
	w.wait(5 * time.Second)
	const last = "HTTP/1.1 204 No\r\n\r\n"
	w.answer(last)
	if got := string(w.Down.Got); got != answer+last || strings.Count(string(w.Up.Got), request) != 3 {
		w.t.Errorf("after the next request the client has %q, and the provider %q", got, w.Up.Got)
	}
}

// What ends or breaks amid its body passes on as it came, and is not sent again.
func TestAnswersThatAreCutPassOn(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		end          error
	}{
		{"by the end", fixed(ok, tooFast)[:60], io.EOF},
		{"by a fault", fixed(ok, tooFast)[:60], exchange.ErrCut},
		{"amid a chunk", chunked(ok, tooFast)[:70], io.EOF},
		{"behind a chunk", strings.TrimSuffix(chunked(ok, tooFast), "0\r\n\r\n"), io.EOF},
	} {
		w := through(t, policy.HTTP, inBody)
		w.send(get)
		if w.answer(c.answer); len(w.Down.Got) != 0 {
			t.Errorf("%s: %q passes before the body is there", c.name, w.Down.Got)
		}
		w.Down.Ends = c.end
		w.Drive(w.Now)
		if got := string(w.Down.Got); got != c.answer || w.sent() != 1 {
			t.Errorf("%s: the client gets %q, and %d requests were sent", c.name, got, w.sent())
		}
		w.Finish(stats.OK)
	}
	w := through(t, policy.HTTP, inBody)
	w.send(get)
	broken := ok + "Transfer-Encoding: chunked\r\n\r\n" + "3\r\n{}{oops"
	w.answer(broken)
	if w.Down.Fault == nil || !strings.HasPrefix(broken, string(w.Down.Got)) || w.sent() != 1 {
		t.Errorf("an answer that is broken: %v; the client gets %q, and %d requests were sent", w.Down.Fault, w.Down.Got, w.sent())
	}
	w.Finish(stats.OK)
	if n := exchange.KeptMemory(); n != 0 {
		t.Errorf("%d bytes are still kept", n)
	}
}

// The memory of what is held back is bounded for all connections together. If there is no more, the
// answer passes on at once.
func TestAnswersAreHeldWithinBounds(t *testing.T) {
	part := ok + fmt.Sprintf("Content-Length: %d\r\n\r\n", bound) + padded(tooFast, 120_000)
	for many := 0; ; many++ {
		w := through(t, policy.HTTP, inBody)
		defer w.Finish(stats.OK)
		w.send(get)
		w.answer(part)
		if len(w.Down.Got) > 0 {
			if string(w.Down.Got) != part || many < 200 {
				t.Errorf("after %d answers, the client gets %d bytes", many, len(w.Down.Got))
			}
			w.answer(padded("", bound-120_000))
			if n := w.classes["c"].Stats.Read().Retried; n["not_kept"] != 1 {
				t.Errorf("counted: %v", n)
			}
			break
		}
		if many > 1000 {
			t.Fatal("there is no bound")
		}
	}
}

// What is charged for an answer that is held back is what its buffer takes, however little of it has
// come.
func TestHeldAnswersAreChargedWhatTheyTake(t *testing.T) {
	for _, n := range []int{1, 3000, 5000, 40_000, 120_000} {
		w := through(t, policy.HTTP, inBody)
		w.send(get)
		before := exchange.KeptMemory()
		w.answer(ok + fmt.Sprintf("Content-Length: %d\r\n\r\n", bound) + padded("", n))
		if charged, takes := exchange.KeptMemory()-before, w.Machine.InputMemory(); charged < takes || charged > takes+policy.MessageHolds {
			t.Errorf("of %d bytes, %d are charged, and they take %d", n, charged, takes)
		}
		w.Finish(stats.OK)
	}
	if n := exchange.KeptMemory(); n != 0 {
		t.Errorf("%d bytes are still kept", n)
	}
}

// An answer whose body does not end passes on after a minute, and is not held back any longer.
func TestAnswersAreNotHeldForLong(t *testing.T) {
	w := through(t, policy.HTTP, inBody)
	w.send(get)
	part := ok + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
	w.answer(part)
	w.wait(time.Minute)
	if w.tend(); len(w.Down.Got) > 0 {
		t.Fatalf("%q passes within a minute", w.Down.Got)
	}
	w.wait(time.Second)
	if w.tend(); string(w.Down.Got) != part {
		t.Errorf("after a minute, the client gets %q, want %q", w.Down.Got, part)
	}
	w.answer("1\r\n}\r\n0\r\n\r\n")
	if want := part + "1\r\n}\r\n0\r\n\r\n"; string(w.Down.Got) != want {
		t.Errorf("the client gets %q, want %q", w.Down.Got, want)
	}
	w.Finish(stats.OK)
	if n := exchange.KeptMemory(); n != 0 {
		t.Errorf("%d bytes are still kept", n)
	}
}

// tend calls Tend as a host does.
func (w *wire) tend() {
	w.Machine.Tend(w.Now)
	w.Drive(w.Now)
}

// A refusal that is thrown away, and does not end, ends its connection. The client is told that its
// request was refused, and the request is not sent again.
func TestRefusalWithoutAnEnd(t *testing.T) {
	head := "HTTP/1.1 429 No\r\nTransfer-Encoding: chunked\r\n\r\n"
	piece := "8000\r\n" + padded("", 32<<10) + "\r\n"
	for _, c := range []struct {
		name  string
		comes func(w *wire)
	}{
		{"many bytes", func(w *wire) {
			for n := 0; n <= frame.MaxSwallow && !w.Over && w.Down.Fault == nil; n += 32 << 10 {
				w.answer(piece)
			}
		}},
		{"few bytes for a minute", func(w *wire) {
			for range 62 {
				w.wait(time.Second)
				w.answer("1\r\nx\r\n")
				w.tend()
			}
		}},
		{"nothing for a minute", func(w *wire) {
			w.wait(61 * time.Second)
			w.tend()
		}},
	} {
		w := through(t, policy.HTTP, strings.Replace(inField, `"1s"`, `"10m", max = "10m"`, 1))
		w.send(get)
		w.answer(head)
		if w.answer(piece); w.Machine.Waiting() != 1 || len(w.Down.Got) > 0 {
			t.Fatalf("%s: %d requests wait, and the client has %q", c.name, w.Machine.Waiting(), w.Down.Got)
		}
		c.comes(w)
		if got := string(w.Down.Got); !strings.HasPrefix(got, "HTTP/1.1 429 Too Many Requests\r\n") || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%s: the client gets %.200q", c.name, got)
		}
		if w.Down.Fault == nil || w.sent() != 1 {
			t.Errorf("%s: the connection ends with %v, and %d requests were sent", c.name, w.Down.Fault, w.sent())
		}
		w.Finish(stats.OK)
		if n := w.classes["c"].InFlight(); n != 0 {
			t.Errorf("%s: %d requests are in flight", c.name, n)
		}
	}
}

// The chunked body of a refused request is thrown away as one with a length is: if it is longer than
// that, the connection ends after the refusal, and after the answers to the requests before it.
func TestRefusedBodyWithoutAnEnd(t *testing.T) {
	piece := "8000\r\n" + padded("", 32<<10) + "\r\n"
	for _, answered := range []bool{true, false} { // the request before it, when the body becomes too long
		for _, most := range []int{0, 1000} {
			w := through(t, policy.HTTP, "[class.c]\nrate = \"1 messages/h\"\nmax_wait = \"1s\"\n")
			w.Up.Most = most
			w.send(get)
			if answered {
				w.answer(fixed(ok, "hi"))
			}
			w.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
			n := 0
			for ; n <= frame.MaxSwallow; n += len(piece) {
				if w.Lingers {
					t.Errorf("it ends after %d bytes", n)
				}
				w.send(piece)
			}
			if w.Lingers != answered {
				t.Errorf("answered: %v; after %d bytes, it ends: %v", answered, n, w.Lingers)
			}
			w.send(piece + get)
			if !answered {
				w.answer(fixed(ok, "hi"))
			}
			got := string(w.Down.Got)
			if rest, _ := strings.CutPrefix(got, fixed(ok, "hi")); !strings.HasPrefix(rest, "HTTP/1.1 429 Too Many Requests\r\n") || strings.Count(rest, "HTTP/1.1") != 1 {
				t.Errorf("the client gets %.200q", got)
			}
			if closes := strings.Contains(got, "\r\nConnection: close\r\n"); closes == answered || !w.Lingers || !w.Down.Told || w.Up.Fault != nil || w.sent() != 1 {
				t.Errorf("answered: %v; it closes: %v; it ends: %v, %v, %v; %d requests were sent", answered, closes, w.Lingers, w.Down.Told, w.Up.Fault, w.sent())
			}
			w.Finish(stats.OK)
		}
	}
}

// A refusal that its status and its body say is one signal, and the class that its body names pauses:
// with per, the key, and not the account.
func TestRefusalsPauseOnce(t *testing.T) {
	const account = "[class.account]\nrate = \"1000 messages/s\"\non_throttle = { pause = \"1s\" }\n"
	for _, c := range []struct{ name, answer, who string }{
		{"in the body of a 200", fixed(ok, tooFast), "c"},
		{"429, and in its body", fixed("HTTP/1.1 429 No\r\n", tooFast), "c"},
		{"429, and in chunks", chunked("HTTP/1.1 429 No\r\n", tooFast[:3], tooFast[3:]), "c"},
		{"429, and nothing in its body", fixed("HTTP/1.1 429 No\r\n", taken), "account"},
		{"429, and in a body that is too long to wait for", chunked("HTTP/1.1 429 No\r\n", padded(tooFast, bound+1)), "account"},
	} {
		for _, retry := range []string{"", "retry = { max = 1 }\n"} {
			who := c.who
			if retry == "" && strings.Contains(c.name, "too long") {
				who = "c" // what passes is read to its end
			}
			for _, most := range []int{0, 40} {
				w := through(t, policy.HTTP, account+"[class.c]\nparent = \"account\"\nrate = \"1000 messages/s\"\nthrottled_by = { json = \"a.status\", equals = \"1\" }\n"+retry)
				w.Down.Most = most
				w.send(get)
				w.answer(c.answer)
				signals := 0
				for _, n := range w.classes["account"].Stats.Throttled.Read() { // with those to "c"
					signals += int(n)
				}
				if signals != 1 {
					t.Errorf("%s, %q: %d signals, want 1", c.name, retry, signals)
				}
				for name, class := range w.classes {
					if until, _ := class.Provider().Signals(w.Now); until.IsZero() == (name == who) {
						t.Errorf("%s, %q: %s pauses until %v", c.name, retry, name, until)
					}
				}
				w.Finish(stats.OK)
			}
		}
	}
}

// Without retry, or for a request that is not kept, an answer passes on as it comes.
func TestOtherAnswersAreNotHeldBack(t *testing.T) {
	for _, c := range []struct{ class, request string }{
		{strings.Replace(inBody, "retry = { max = 1 }\n", "", 1), get},
		{inBody, post("", padded("", 300_000))},
	} {
		w := through(t, policy.HTTP, c.class)
		w.send(c.request)
		part := fixed(ok, tooFast)[:60]
		if w.answer(part); string(w.Down.Got) != part {
			t.Errorf("of %q, the client gets %q", part, w.Down.Got)
		}
		w.Finish(stats.OK)
	}
}

// A request that is refused in part is not sent again: the provider has accepted the rest.
func TestAnswersThatRefuseInPartPassOn(t *testing.T) {
	inBody := judged + "{ json = \"all.*.status\", equals = [\"1\", \"2\"] }\n"
	for _, c := range []struct {
		body  string
		again bool
	}{
		{`{"all": [{"status": "1"}]}`, true},
		{`{"all": [{"status": "1"}, {"status": 2}]}`, true},
		{`{"all": {"a": {"status": "1"}}}`, false}, // it is no array
		{`{"all": [{"status": "0"}, {"status": "1"}]}`, false},
		{`{"all": [{"status": "1"}, {"status": "0"}]}`, false},
		{`{"all": [{"status": "1"}, {"status": null}]}`, false},
		{`{"all": [{"status": "1"}, {"status": {}}]}`, false},
		{`{"all": [{"status": "1"}, {"id": "7"}]}`, false},
		{`{"all": [{"status": "1"}, "0"]}`, false},
		{`{"all": [{"status": "1"}, []]}`, false},
		{`{"all": [{"status": "1"}, {"sta`, false},
	} {
		w := through(t, policy.HTTP, inBody)
		w.send(get)
		answer := fixed(ok, c.body)
		w.answer(answer)
		n := w.classes["c"].Stats.Read().Retried
		if got := string(w.Down.Got) == ""; got != c.again || !got && string(w.Down.Got) != answer || !got && len(n) > 0 {
			t.Errorf("%s: sent again: %v; the client gets %q; counted: %v", c.body, got, w.Down.Got, n)
		}
		w.Finish(stats.OK)
	}
}

// An old connection ends with an answer that was held back up to the bound of an input.
func TestLastAnswerMayBeLong(t *testing.T) {
	w := through(t, policy.HTTP, inBody)
	w.send(get)
	w.Machine.Retire(w.Now, false)
	answer := chunked(ok, padded(" ", 400_000))
	w.answer(answer)
	if want := ok + "Connection: close\r\n" + strings.TrimPrefix(answer, ok); string(w.Down.Got) != want {
		t.Errorf("the client gets %.100q of %d bytes, want %d", w.Down.Got, len(w.Down.Got), len(want))
	}
	w.Finish(stats.OK)
}

// A connection may end amid an answer that refuses its request, whether that is thrown away or passes
// on. The request is in flight no more then, and is not given up once more.
func TestEndAmidRefusingAnswer(t *testing.T) {
	for _, c := range []struct {
		class, answer string
		waiting       int
	}{
		{inField, fixed(ok+"X-Error: 1\r\n", "no"), 1},
		{inField, fixed("HTTP/1.1 429 No\r\n", "no"), 1},
		{inField + "max_wait = \"1ms\"\n", fixed(ok+"X-Error: 1\r\n", "no"), 0},
		{inField + "max_wait = \"1ms\"\n", fixed("HTTP/1.1 429 No\r\n", "no"), 0},
		{inField, fixed(ok, "no"), 0},
	} {
		w := through(t, policy.HTTP, strings.Replace(c.class, "throttled_by", "per = \"path\"\nthrottled_by", 1))
		w.send(get)
		if w.answer(c.answer[:len(c.answer)-1]); w.Machine.Waiting() != c.waiting {
			t.Fatalf("after %q, %d requests wait, want %d", c.answer, w.Machine.Waiting(), c.waiting)
		}
		w.Finish(stats.OK)
		if n := w.classes["c"].InFlight(); n != 0 {
			t.Errorf("after %q, %d requests are in flight", c.answer, n)
		}
	}
}
