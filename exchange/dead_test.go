package exchange_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// Messages of each protocol: one that counts, and one that does not.
var (
	counted = map[policy.Protocol]string{policy.SMPP: pdu(4, 0, 1, ""), policy.HTTP: get, policy.ISO8583: prefixed("0200"), policy.Lines: "line\n"}
	free    = map[policy.Protocol]string{policy.SMPP: enquire, policy.ISO8583: prefixed("0800")} // and may overtake
)

// perWindow is how many messages leave in each window of 10 s in the next test.
const perWindow = 5

// deaths are the ways in which a connection to the provider dies. Each returns how many messages of this window have
// left before.
var deaths = []struct {
	name, queue string
	die         func(w *wire, one, free string) (left int)
}{
	{"a message that comes finds out", "9 messages", func(w *wire, one, _ string) int {
		w.send(one + one)
		w.Up.Dead = true
		w.send(one + one + one)
		return 2
	}},
	{"a message that has waited finds out", "9 messages", func(w *wire, one, _ string) int {
		w.send(strings.Repeat(one, perWindow+3))
		w.Up.Dead = true
		w.wait(10 * time.Second)
		return 0
	}},
	{"a message that has waited finds out, and others are parked", "1 messages", func(w *wire, one, _ string) int {
		w.send(strings.Repeat(one, perWindow+3))
		w.Up.Dead = true
		w.wait(10 * time.Second)
		return 0
	}},
	{"what costs nothing finds out", "9 messages", func(w *wire, one, free string) int {
		if free == "" {
			w.t.Skip("nothing overtakes")
		}
		w.send(strings.Repeat(one, perWindow+3))
		w.Up.Dead = true
		w.send(free)
		return perWindow
	}},
	{"it is found out when a message is about to leave", "9 messages", func(w *wire, one, free string) int {
		w.send(strings.Repeat(one, perWindow+3))
		w.wait(10*time.Second - 1)
		w.Now = w.Now.Add(1)
		about := w.classes["c"].Release(w.Now)
		w.Up.Dead = true
		w.send(free)
		about.Owner.Leave(w.Now)
		return 0
	}},
}

// Once the connection to the provider is dead, no message takes a turn of its class, in any protocol, and the one that
// finds out costs nothing: another connection sends as many as if those of this one had never come.
func TestNothingIsChargedForADeadConnection(t *testing.T) {
	for _, c := range deaths {
		for _, protocol := range protocols {
			t.Run(fmt.Sprint(c.name, ": ", protocol), func(t *testing.T) {
				p, classes, roots := world(t, time.Unix(0, 0), fmt.Sprintf("[class.c]\nrate = \"30 messages/min\"\nalgorithm = \"fixed-window\"\n"+
					"window = \"10s\"\nqueue = %q\noverflow = \"wait\"\n[listener.l]\nlisten = \"127.0.0.1:1\"\nprotocol = %q\nupstream = \"192.0.2.1:1\"\nclass = \"c\"\n", c.queue, protocol))
				w := &wire{connect(p, classes, time.Unix(0, 0)), t, classes, roots}
				left := c.die(w, counted[protocol], free[protocol])
				if n := w.Machine.Waiting(); n > 0 || w.Over {
					t.Errorf("%d messages wait, and the connection has ended: %v", n, w.Over)
				}
				other := &wire{connect(p, classes, w.Now), t, classes, roots}
				other.send(strings.Repeat(counted[protocol], 2*perWindow))
				if n := other.Up.Cost.Messages; int(n) != perWindow-left {
					t.Errorf("another connection sends %d messages in this window, want %d", n, perWindow-left)
				}
			})
		}
	}
}

// The message that finds out that the provider is dead costs no gap either: another connection may send at once.
func TestNoGapFollowsADeadConnection(t *testing.T) {
	for _, protocol := range protocols {
		p, classes, roots := world(t, time.Unix(0, 0), fmt.Sprintf("[class.c]\nrate = \"1 messages/s\"\nqueue = \"9 messages\"\noverflow = \"wait\"\n"+
			"[listener.l]\nlisten = \"127.0.0.1:1\"\nprotocol = %q\nupstream = \"192.0.2.1:1\"\nclass = \"c\"\n", protocol))
		w := &wire{connect(p, classes, time.Unix(0, 0)), t, classes, roots}
		one := counted[protocol]
		w.send(one + one)
		w.Up.Dead = true
		w.wait(time.Second)
		other := &wire{connect(p, classes, w.Now), t, classes, roots}
		if other.send(one + one); string(other.Up.Got) != one {
			t.Errorf("%s: another connection sends %q at once, want one message", protocol, other.Up.Got)
		}
		other.free(time.Second)
	}
}

// What a provider answers although the request has never reached it settles nothing: the charge was given back.
func TestDeadConnectionSettlesNothing(t *testing.T) {
	for _, used := range []string{"0", "15"} {
		p, classes, roots := world(t, time.Unix(0, 0), "[class.c]\nrate = \"3 tokens/s\"\nalgorithm = \"fixed-window\"\nwindow = \"10s\"\nqueue = \"9 messages\"\n"+
			"cost = { json = \"n\", max = 30 }\nsettle = { header = \"X-Used\" }\n"+
			"[listener.l]\nlisten = \"127.0.0.1:1\"\nprotocol = \"http\"\nupstream = \"192.0.2.1:1\"\nclass = \"c\"\n")
		dial := func() *wire { return &wire{connect(p, classes, time.Unix(0, 0)), t, classes, roots} }
		ten := post("", `{"n":10}`)
		other, w := dial(), dial()
		other.send(ten)
		w.Up.Dead = true
		w.send(ten)
		w.answer("HTTP/1.1 408 Request Timeout\r\nX-Used: " + used + "\r\nContent-Length: 0\r\n\r\n")
		if len(w.Down.Got) == 0 {
			t.Error("the client gets no answer")
		}
		if other.send(ten + ten + ten); string(other.Up.Got) != ten+ten+ten {
			t.Errorf("an answer says %s: %d of 30 tokens leave in the window", used, 10*len(other.Up.Got)/len(ten))
		}
	}
}

// Messages that are about to leave when their connection ends cost nothing: another connection sends as many in the
// window as if they had never come.
func TestNothingIsChargedForWhatWasAboutToLeave(t *testing.T) {
	for _, protocol := range protocols {
		for name, keys := range map[string]string{"": "", "per source": "per = \"source\"\n", "per key": perOf(protocol)} {
			p, classes, roots := world(t, time.Unix(0, 0), fmt.Sprintf("[class.c]\nrate = \"30 messages/min\"\nalgorithm = \"fixed-window\"\n"+
				"window = \"10s\"\nqueue = \"9 messages\"\noverflow = \"wait\"\n%s[listener.l]\nlisten = \"127.0.0.1:1\"\nprotocol = %q\nupstream = \"192.0.2.1:1\"\nclass = \"c\"\n", keys, protocol))
			dial := func(now time.Time) *wire { return &wire{connect(p, classes, now), t, classes, roots} }
			w, stays := dial(time.Unix(0, 0)), dial(time.Unix(0, 0)) // which keeps the bucket
			one := counted[protocol]
			w.send(strings.Repeat(one, 2*perWindow))
			w.wait(10*time.Second - 1)
			w.Now = w.Now.Add(1)
			var about []*shaper.Item
			for it := classes["c"].Release(w.Now); it != nil; it = classes["c"].Release(w.Now) {
				about = append(about, it)
			}
			w.Finish(stats.OK)
			for _, it := range about {
				it.Owner.Leave(w.Now)
			}
			stays.Drive(w.Now)
			if stays.send(strings.Repeat(one, 2*perWindow)); len(about) == 0 || stays.Up.Cost.Messages != perWindow {
				t.Errorf("%s, %s: %d were about to leave, and then %d leave in the window, want %d", protocol, name, len(about), stays.Up.Cost.Messages, perWindow)
			}
		}
	}
}
