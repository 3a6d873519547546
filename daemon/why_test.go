package daemon

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"shaper/shaper"
	"shaper/tests/trial"
)

// A class that waits says why, in the same words to the command line and as JSON.
func TestWhy(t *testing.T) {
	p := begin(t, `[daemon]
control = "c.sock"
http = "127.0.0.1:0"
[class.acme]
rate = "100 messages/h"
[class.otp]
rate = "50 messages/h"
parent = "acme"
queue = "10 messages"
overflow = "wait"
[listener.l]
listen = "127.0.0.1:0"
protocol = "lines"
upstream = "discard:"
class = "otp"
`)
	ctx := context.Background()
	idle, err := p.Client.Why(ctx, "otp")
	if err != nil || idle.Text != "class otp: nothing waits, and an item that comes now leaves at once" || len(idle.Path) != 0 {
		t.Errorf("nothing waits: %+v, %v", idle, err)
	}
	conn, err := net.Dial("tcp", p.address("l"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	var w Why
	trial.Await(t, "the second message waits", func() bool {
		w, err = p.Client.Why(ctx, "acme")
		return err != nil || w.Items == 1 && len(w.Path) == 2
	})
	if err != nil || w.From != "otp" || !w.Exact || time.Until(w.At) < time.Minute || time.Until(w.At) > 72*time.Second {
		t.Errorf("it waits 72 s: %+v, %v", w, err)
	}
	if own := w.Path[0]; own.Class != "otp" || own.Cause != string(shaper.ByLimit) || own.Text != "the limit of 50 messages/h" || !own.Until.Equal(w.At) {
		t.Errorf("its own class says %+v, want until %v", own, w.At)
	}
	if above := w.Path[1]; above.Class != "acme" || above.Text != "the limit of 100 messages/h" || !above.Until.Before(w.At) {
		t.Errorf("the class above says %+v", above)
	}
	if _, err := p.Client.Why(ctx, "opt"); CodeOf(err) != CodeNotFound || !strings.Contains(err.Error(), `there is no class "opt"; did you mean "otp"?`) {
		t.Errorf("a class that does not exist: %v", err)
	}
}

// The summary of a class whose permits are taken does not say that nothing waits.
func TestWhyCountsSessions(t *testing.T) {
	now := time.Now()
	for want, w := range map[string]Why{
		"class a: nothing waits, and an item that comes now leaves at once":                                         {At: now},
		"class a: waiting items: 3; the next leaves at once":                                                        {At: now, Items: 3},
		"class a: waiting sessions: 2; an item of a session that is open leaves at once":                            {At: now, Sessions: 2},
		"class a: waiting sessions: 2; waiting items: 3; the next waits for something that time alone does not end": {Sessions: 2, Items: 3},
	} {
		if w.Class = "a"; w.summary(now) != want {
			t.Errorf("it says %q, want %q", w.summary(now), want)
		}
	}
}
