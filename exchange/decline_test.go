package exchange_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/frame"
	"shaper/policy"
	"shaper/stats"
)

// A request that waits in its class has not reached the server. If that ends the connection meanwhile, as servers do
// with one that is idle, the client is told so, and need not guess whether to send the request again.
func TestARequestThatHasNotLeftIsRefusedIfTheServerEnds(t *testing.T) {
	const slow = "[class.c]\nrate = \"1 messages/s\"\n"
	answer := fixed(ok, strings.Repeat("x", 2*frame.MaxSwallow))
	for _, class := range []string{slow, slow + "overflow = \"wait\"\nqueue = \"1 messages\"\n", slow + "retry = { max = 1 }\n"} {
		for _, end := range []error{io.EOF, exchange.ErrCut} {
			w := through(t, policy.HTTP, class)
			w.send(get)
			w.answer(answer)
			w.send(post("", "body"))
			w.Down.Ends = end
			w.Drive(w.Now)
			got, found := strings.CutPrefix(string(w.Down.Got), answer)
			if !found || !strings.HasPrefix(got, "HTTP/1.1 429 ") || !strings.Contains(got, "\r\nConnection: close\r\n") || strings.Count(got, "HTTP/1.1") != 1 {
				t.Errorf("%s, %v: behind the answer, the client gets %q", class, end, got)
			}
			w.wait(5 * time.Second)
			if n := w.classes["c"].Stats.Refused[stats.Reset].Items.Load(); string(w.Up.Got) != get || n != 1 {
				t.Errorf("%s, %v: %q has left, and %d were refused", class, end, w.Up.Got, n)
			}
		}
	}
}

// So is one that its class has just let go, if it has not been written. It costs nothing.
func TestARequestThatIsAboutToLeaveIsRefusedIfTheServerEnds(t *testing.T) {
	const slow = "[class.c]\nrate = \"1 messages/s\"\n"
	submit := pdu(4, 0, 1, "")
	for name, c := range map[string]struct {
		protocol            policy.Protocol
		keys                string
		one, answer         string
		next, left, refusal string
	}{
		"HTTP":                    {policy.HTTP, "", get, fixed(ok, "hi"), post("", "body"), get, "HTTP/1.1 429 "},
		"HTTP, with retry":        {policy.HTTP, "retry = { max = 1 }\n", get, fixed(ok, "hi"), get, get, "HTTP/1.1 429 "},
		"HTTP, with keys":         {policy.HTTP, "per = \"path\"\n", get, fixed(ok, "hi"), get, get, "HTTP/1.1 429 "},
		"SMPP, one to send again": {policy.SMPP, "retry = { max = 1 }\non_throttle = { pause = \"1s\" }\n", submit, pdu(0x80000004, 0x58, 1, ""), "", submit, pdu(0x80000004, 0x58, 1, "")},
	} {
		for _, end := range []error{io.EOF, exchange.ErrCut} {
			w := through(t, c.protocol, slow+c.keys)
			w.send(c.one)
			w.answer(c.answer)
			w.send(c.next)
			w.Now = w.Now.Add(time.Second)
			about := w.classes["c"].Release(w.Now)
			if about == nil {
				t.Fatalf("%s: nothing is about to leave", name)
			}
			before := len(w.Down.Got)
			w.Down.Ends = end
			w.Drive(w.Now)
			if got := string(w.Down.Got[before:]); !strings.HasPrefix(got, c.refusal) || strings.Count(got, c.refusal) != 1 {
				t.Errorf("%s, %v: the client gets %q", name, end, got)
			}
			about.Owner.Leave(w.Now)
			w.wait(5 * time.Second)
			class := w.classes["c"]
			if n := class.Stats.Refused[stats.Reset].Items.Load(); string(w.Up.Got) != c.left || n != 1 || class.Stats.Dropped[stats.Reset].Items.Load() > 0 {
				t.Errorf("%s, %v: %q has left, and %d were refused", name, end, w.Up.Got, n)
			}
		}
	}
}

// So is one whose body has to say what it costs, and has not come yet.
func TestARequestThatHasEnteredNoClassIsRefusedIfTheServerEnds(t *testing.T) {
	for _, end := range []error{io.EOF, exchange.ErrCut} {
		w := through(t, policy.HTTP, "[class.c]\nrate = \"1 tokens/s\"\ncost = { json = \"n\", max = 30 }\n")
		w.send(get)
		w.answer(fixed(ok, "hi"))
		w.send(strings.TrimSuffix(post("", `{"n":10}`), "}"))
		before := len(w.Down.Got)
		w.Down.Ends = end
		w.Drive(w.Now)
		if got := string(w.Down.Got[before:]); !strings.HasPrefix(got, "HTTP/1.1 429 ") || !strings.Contains(got, "Connection: close") || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%v: the client gets %q", end, got)
		}
		w.send("}" + get)
		w.wait(time.Minute)
		w.Finish(stats.OK)
		of := w.classes["c"].Stats
		if n := of.Refused[stats.Reset].Items.Load(); string(w.Up.Got) != get || n != 1 || of.Dropped[stats.Reset].Items.Load() > 0 {
			t.Errorf("%v: %q has left, and %d were refused", end, w.Up.Got, n)
		}
	}
}

// Nothing follows an answer that ends with the connection, or that belongs to an earlier request.
func TestARefusalIsNoPartOfAnotherAnswer(t *testing.T) {
	for _, answer := range []string{
		ok + "\r\nhi", ok + "Connection: close\r\nContent-Length: 2\r\n\r\nhi", ok + "Content-Length: 2\r\n\r\nh", "",
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
	} {
		w := through(t, policy.HTTP, "[class.c]\nrate = \"1 messages/s\"\n")
		w.send(get + get)
		w.Down.Ends = io.EOF
		w.answer(answer)
		if string(w.Down.Got) != answer {
			t.Errorf("of the answer %q, the client gets %q", answer, w.Down.Got)
		}
	}
}

// What the provider sends without a request, the client takes for the answer to the one that waits. Bytes that are no
// answer say that the provider has lost count.
func TestARefusalDoesNotFollowWhatAnswersNothing(t *testing.T) {
	const late = "HTTP/1.1 408 Request Timeout\r\n"
	for _, c := range []struct{ said, passes string }{
		{late + "Connection: close\r\n\r\nlate", late + "Connection: close\r\n\r\nlate"},
		{fixed(late, "late"), fixed(late, "late")},
		{late + "Content-Length: 9\r\n\r\nlate", late + "Content-Length: 9\r\n\r\nlate"},
		{late, ""},
		{"late", ""},
	} {
		for _, end := range []error{io.EOF, exchange.ErrCut} {
			w := through(t, policy.HTTP, "[class.c]\nrate = \"1 messages/s\"\n")
			w.send(get)
			w.answer(fixed(ok, "hi"))
			w.send(get)
			w.Down.Ends = end
			w.answer(c.said)
			if want := fixed(ok, "hi") + c.passes; string(w.Down.Got) != want {
				t.Errorf("%q, %v: the client gets %q, want %q", c.said, end, w.Down.Got, want)
			}
		}
	}
}

// A client that reads slowly gets all of the refusal: no linger hurries it.
func TestARefusalWaitsForAClientThatReadsSlowly(t *testing.T) {
	for _, end := range []error{io.EOF, exchange.ErrCut} {
		answer := fixed(ok, "hi")
		w := through(t, policy.HTTP, "[class.c]\nrate = \"1 messages/s\"\n")
		w.Down.Room = len(answer) + 10
		w.send(get)
		w.answer(answer)
		w.send(get)
		w.Down.Ends = end
		w.Drive(w.Now)
		if w.wait(time.Minute); w.Over || w.Lingers || w.Down.Told {
			t.Errorf("%v: the connection ends before the client has its refusal", end)
		}
		w.Down.Room = -1
		w.Drive(w.Now)
		if got, found := strings.CutPrefix(string(w.Down.Got), answer+"HTTP/1.1 429 "); !found || !strings.Contains(got, "Connection: close") || !w.Down.Told {
			t.Errorf("%v: the client gets %q", end, w.Down.Got)
		}
	}
}
