package exchange_test

import (
	"io"
	"slices"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/exchange/exchangetest"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// When the provider of HTTP has ended the connection, no request leaves there any more: one that waits
// takes no turn of the others, and neither does one that comes later. The one that waits is refused, and one that
// comes later is dropped. The end of the client is seen at once.
func TestRequestsDoNotWaitForAProviderThatHasEnded(t *testing.T) {
	const class = "[class.c]\nrate = \"1 messages/s\"\nqueue = \"9 messages\"\noverflow = \"wait\"\n"
	for _, c := range []struct {
		name, before, after string
		refused             bool
	}{
		{"one waits", get + get, "", true},
		{"one waits, with a body", get + post("", "body"), "", true},
		{"one waits, before another one", get + get + get, "", true},
		{"the body has not come", get + "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n", "body" + get, true},
		{"one comes later", get, get, false},
		{"one with a body comes later", get, post("", "body"), false},
	} {
		for _, keys := range []string{"", "retry = { max = 2 }\n"} {
			w := through(t, policy.HTTP, class+keys)
			w.send(c.before)
			w.answer(fixed(ok, "hi"))
			w.Down.Ends = io.EOF
			w.Drive(w.Now)
			w.send(c.after)
			w.wait(time.Millisecond)
			if n := w.Machine.Waiting(); n > 0 || !w.Down.Told || w.Up.Told {
				t.Errorf("%s: %d requests wait; the client is told of the end: %v", c.name, n, w.Down.Told)
			}
			w.Up.Ends = io.EOF
			if w.Drive(w.Now); !w.Over || w.Result != stats.OK {
				t.Errorf("%s: the connection has ended: %v, by %v", c.name, w.Over, w.Result)
			}
			w.wait(time.Minute)
			if got := string(w.Up.Got); got != get || w.classes["c"].Backlog().Items > 0 || w.classes["c"].InFlight() > 0 {
				t.Errorf("%s: %q has left", c.name, got)
			}
			lost := &w.classes["c"].Stats.Dropped
			if c.refused {
				lost = &w.classes["c"].Stats.Refused
			}
			if n := lost[stats.Reset].Items.Load(); n == 0 {
				t.Errorf("%s: nothing counts as lost", c.name)
			}
		}
	}
}

// A request that the provider does not answer before it ends the connection gets no answer any more, so a class that
// sends again waits for it no longer: once the client has ended too, the connection has, and the request is not in flight.
func TestEndOfTheProviderEndsWhatIsKept(t *testing.T) {
	const class = "[class.c]\nrate = \"100 messages/s\"\nqueue = \"9 messages\"\noverflow = \"wait\"\n"
	for _, keys := range []string{"", "retry = { max = 2 }\n"} {
		for _, c := range []struct {
			name     string
			protocol policy.Protocol
			said     string
		}{
			{"HTTP", policy.HTTP, get},
			{"HTTP, with a body", policy.HTTP, post("", "body")},
			{"HTTP, amid a body", policy.HTTP, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo"},
			{"HTTP, and another one comes", policy.HTTP, get + get},
			{"SMPP", policy.SMPP, pdu(4, 0, 1, "")},
		} {
			for _, clientFirst := range []bool{false, true} {
				w := through(t, c.protocol, class+keys)
				w.send(c.said)
				ends := []*exchangetest.Stream{&w.Down, &w.Up}
				if clientFirst {
					slices.Reverse(ends)
				}
				for _, e := range ends {
					e.Ends = io.EOF
					w.Drive(w.Now)
				}
				if !w.Over {
					t.Errorf("%s, %q, the client ends first: %v: the connection goes on, and %d messages are in flight", c.name, keys, clientFirst, w.classes["c"].InFlight())
					w.Finish(stats.OK)
				}
			}
		}
	}
}

// A reload waits for a message that is about to leave. If its provider ends the connection meanwhile, the
// message is dropped, and the connection goes on to its end.
func TestReloadDoesNotWaitForADroppedMessage(t *testing.T) {
	const class = "[class.next]\nrate = \"1 messages/s\"\n[class.c]\nrate = \"1 messages/s\"\n" +
		"queue = \"9 messages\"\nretry = { max = 2 }\non_throttle = { pause = \"1s\" }\n"
	submit := pdu(4, 0, 1, "")
	for name, c := range map[string]struct {
		protocol     policy.Protocol
		said, answer string
	}{
		"HTTP":                   {policy.HTTP, get + get, fixed(ok, "hi")},
		"one that is sent again": {policy.SMPP, submit, pdu(0x80000004, 0x58, 1, "")},
	} {
		w := through(t, c.protocol, class)
		w.send(c.said)
		w.answer(c.answer)
		w.Now = w.Now.Add(time.Second)
		about := w.classes["c"].Release(w.Now)
		if about == nil {
			t.Fatalf("%s: nothing is about to leave", name)
		}
		w.Machine.Belong(w.Now, w.classes["next"])
		w.Machine.Reroute(w.Now, map[*shaper.Class]bool{w.classes["c"]: true}, nil)
		w.Down.Ends = io.EOF
		w.Drive(w.Now)
		about.Owner.Leave(w.Now)
		w.Up.Ends = io.EOF
		if w.Drive(w.Now); !w.Over || w.Result != stats.OK {
			t.Errorf("%s: the connection has ended: %v, by %v", name, w.Over, w.Result)
		}
		w.Finish(stats.OK)
	}
}

// When the provider of SMPP has ended, messages still leave for it, at the rate of their class and in their order. None
// waits for the answer to another one, and none counts as in flight, whether it left before or after the end.
func TestNothingWaitsForAnswersOfAProviderThatHasEnded(t *testing.T) {
	const class = "[class.c]\nrate = \"100 messages/s\"\nqueue = \"9 messages\"\noverflow = \"wait\"\n"
	var all string
	for sequence := range uint32(5) {
		all += pdu(4, 0, sequence, "")
	}
	all += pdu(6, 0, 9, "")
	for _, keys := range []string{"", "retry = { max = 2 }\n", "retry = { max = 2, in_flight = 2 }\n", "in_flight = 1\n", "retry = { max = 2 }\nin_flight = 1\n"} {
		w := through(t, policy.SMPP, class+keys)
		seen := &unexpecting{}
		w.Machine.Watch(seen)
		w.send(all)
		w.Down.Ends = io.EOF
		w.Drive(w.Now)
		if n := w.classes["c"].InFlight(); n != 0 || !seen.told {
			t.Errorf("%q: %d messages are in flight; the watcher is told: %v", keys, n, seen.told)
		}
		w.wait(time.Second)
		if string(w.Up.Got) != all || w.Machine.Waiting() > 0 || w.classes["c"].InFlight() > 0 {
			t.Errorf("%q: after a second %d bytes of %d have left, %d messages wait, and %d are in flight", keys, len(w.Up.Got), len(all), w.Machine.Waiting(), w.classes["c"].InFlight())
		}
		w.Up.Ends = io.EOF
		if w.Drive(w.Now); !w.Over || w.Result != stats.OK {
			t.Errorf("%q: the connection has ended: %v, by %v", keys, w.Over, w.Result)
		}
		w.Finish(stats.OK)
	}
}

// unexpecting is a watcher. It notes whether it is told that all that has left gets no answer any more.
type unexpecting struct {
	departures
	told bool
}

func (u *unexpecting) Expired(now, before time.Time) { u.told = before.After(now) }

// A request that was sent again before all of its refusal had come counts as in flight no longer when the provider ends
// amid that refusal.
func TestEndAmidARefusalGivesUpTheRequestThatWasSentAgain(t *testing.T) {
	const class = "[class.c]\nrate = \"100 messages/s\"\nretry = { max = 2 }\non_throttle = { pause = \"1s\" }\n"
	for _, end := range []error{io.EOF, exchange.ErrCut} {
		w := through(t, policy.HTTP, class)
		w.send(get)
		w.answer("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nno")
		w.wait(2 * time.Second)
		if got := string(w.Up.Got); got != get+get {
			t.Fatalf("%q has left", got)
		}
		w.Down.Ends = end
		w.Drive(w.Now)
		w.Finish(stats.OK)
		if n := w.classes["c"].InFlight(); n != 0 {
			t.Errorf("%v: %d requests are in flight", end, n)
		}
	}
}
