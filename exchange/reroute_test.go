package exchange_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// A message that had its turn in one class, and moves to another by a reload, jumps no queue there: neither if it enters the other
// class at once, nor if it has to wait until its provider reads.
func TestMovedMessageJumpsNoQueue(t *testing.T) {
	const throttled = 0x58
	for _, stalls := range []bool{false, true} {
		w := through(t, policy.SMPP, `
[class.c]
rate = "10 messages/s"
retry = { max = 3 }
[class.d]
rate = "10 messages/s"
`)
		w.send(submit(1, 1))
		one := len(w.Up.Got)
		w.answer(pdu(0x80000004, throttled, 1, ""))
		if w.Machine.Waiting() != 1 {
			t.Fatal("the message does not wait to be sent again")
		}
		d, early, late := w.classes["d"], 0, 0
		item := func(left *int) *shaper.Item {
			return &shaper.Item{Owner: leaves{func() { *left = len(w.Up.Got) }}, Cost: shaper.Cost{Messages: 1, Bytes: 1}, Held: 1}
		}
		d.Pass(w.Now, shaper.Cost{Messages: 1})
		d.Enter(w.Now, item(&early))
		if stalls {
			w.Up.Room = 0
		}
		w.Machine.Belong(w.Now, d.Join(w.Now, policy.Conn{}))
		w.Machine.Reroute(w.Now, map[*shaper.Class]bool{w.classes["c"]: true}, nil)
		w.Drive(w.Now)
		w.Up.Room = -1
		w.Drive(w.Now)
		d.Enter(w.Now, item(&late))
		w.wait(10 * time.Second)
		if early != one || late != 2*one {
			t.Errorf("stalls: %v: %d bytes of the message have left before what waited, want 0, and %d of %d before what came later", stalls, early-one, late-one, one)
		}
		w.Finish(stats.OK)
	}
}

// A reload moves a request that waits by the host that the client asked for, though it asks for the provider's by then.
func TestReloadMovesRequestsByTheClientsHost(t *testing.T) {
	for _, tt := range []struct{ rule, head string }{
		{`host = "a.local"`, "GET / HTTP/1.1\r\nHost: a.local\r\n\r\n"},
		{`host = "a.local"`, "GET http://a.local:80/ HTTP/1.1\r\nHost: x\r\n\r\n"},
		{`"header:Host" = "a.local:80"`, "GET / HTTP/1.1\r\nHost: a.local:80\r\nX: y\r\n\r\n"},
		{`"header:HOST" = "x"`, "GET http://a.local:80/ HTTP/1.1\r\nHost: x\r\n\r\n"},
		{`"header:X" = "y"`, "GET / HTTP/1.1\r\nHost: a.local\r\nX: y\r\n\r\n"},
	} {
		w := through(t, policy.HTTP, slowTo("a", tt.rule))
		origin := frame.NewOrigin("https", "api.example")
		w.Machine.AskFor(&origin)
		for _, class := range w.classes {
			class.Pass(w.Now, shaper.Cost{Messages: 1})
		}
		if w.send(tt.head); w.classes["a"].Backlog().Items != 1 {
			t.Fatalf("%q does not wait in its class", tt.head)
		}
		p, _, err := policy.Parse("test.toml", []byte(slowTo("b", tt.rule)+listenerOf(policy.HTTP)))
		if err != nil {
			t.Fatal(err)
		}
		who := policy.Conn{Listener: "l"}
		w.Machine.Obey(w.Now, who, policy.Compile(p).Messages(who), func(name string) *shaper.Class { return w.classes[name].Join(w.Now, who) })
		w.Machine.Reroute(w.Now, map[*shaper.Class]bool{w.classes["a"]: true}, nil)
		if b, c := w.classes["b"].Backlog().Items, w.classes["c"].Backlog().Items; b != 1 || c != 0 {
			t.Errorf("%s: %d wait in the class of the host, and %d in that of the connection", tt.rule, b, c)
		}
		w.Finish(stats.OK)
	}
}

// slowTo returns three classes and a rule, which leads requests for one host to a class.
func slowTo(class, rule string) string {
	const each = "rate = \"1 messages/s\"\n"
	return fmt.Sprintf("[class.a]\n%s[class.b]\n%s[class.c]\n%s[[rule]]\n%s\nclass = %q\n", each, each, each, rule, class)
}

// moveTo is a reload that takes the class of the connection away, and leads it to another one.
func (w *wire) moveTo(from, to string) {
	w.Machine.Belong(w.Now, w.classes[to].Join(w.Now, policy.Conn{}))
	w.Machine.Reroute(w.Now, map[*shaper.Class]bool{w.classes[from]: true}, nil)
	w.Drive(w.Now)
}

// A connection that moves to a class with a bucket for each key of a message makes none before its next message. Only bytes whose
// message was found before have one, because their key is not known any more: they pass in a bucket without a key.
func TestMovedConnectionMakesNoBucket(t *testing.T) {
	const (
		request = "POST / HTTP/1.1\r\nHost: h\r\nX-Key: a\r\nContent-Length: 900\r\n\r\n"
		upgrade = "GET / HTTP/1.1\r\nHost: h\r\nX-Key: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
		accepts = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
	)
	body := strings.Repeat("x", 900)
	for _, c := range []struct {
		name, rate, before, answer, after string
		keys                              int // that the class has for what came before
	}{
		{"new", "10 messages/s", "", "", "", 0},
		{"between messages", "10 messages/s", request + body, answered(""), "", 0},
		{"between messages, in bytes", "10KB/s", request + body, answered(""), "", 0},
		{"amid a body", "10 messages/s", request + body[:100], "", body[100:], 0},
		{"amid a body, in bytes", "10KB/s", request + body[:100], "", body[100:], 1},
		{"a body waits, in bytes", "10KB/s", request + body, "", "", 1},
		{"a tunnel, in bytes", "10KB/s", upgrade, accepts, "through", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := through(t, policy.HTTP, "[class.c]\nrate = \"1KB/s\"\n[class.d]\nrate = \""+c.rate+"\"\nper = \"header:X-Key\"\n")
			if w.send(c.before); c.after == "" && c.answer == "" { // let no more than the head leave
				w.wait(0)
			} else {
				w.wait(10 * time.Second)
			}
			w.answer(c.answer)
			w.moveTo("c", "d")
			keys := func() int { return w.classes["d"].Buckets().Keys(w.Now) }
			w.send(c.after)
			if n := keys(); n != c.keys {
				t.Errorf("%d keys, want %d", n, c.keys)
			}
			w.wait(10 * time.Second)
			if want := c.before + c.after; string(w.Up.Got) != want || w.Over {
				t.Errorf("%d of %d bytes have left, and the connection has ended: %v", len(w.Up.Got), len(want), w.Over)
			}
			if strings.HasPrefix(c.before, upgrade) {
				return
			}
			if c.before != "" && c.answer == "" {
				w.answer(answered(""))
			}
			w.send(request + body)
			w.wait(10 * time.Second)
			if n := w.classes["d"].Buckets().Keys(w.Now); n < 1 || !strings.HasSuffix(string(w.Up.Got), request+body) {
				t.Errorf("the next request has %d buckets, and %d bytes have left in all", n, len(w.Up.Got))
			}
			w.Finish(stats.OK)
		})
	}
}
