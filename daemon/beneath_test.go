package daemon

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"shaper/stats"
	"shaper/tests/trial"
	"shaper/web"
)

// beneathPolicy has a class beneath which a message waits for an hour, and a class that nothing uses.
const beneathPolicy = `[daemon]
control = "c.sock"
http = "127.0.0.1:0"
[class.account]
rate = "20 messages/s"
[class.bulk]
parent = "account"
rate = "1 messages/h"
[class.idle]
rate = "1 messages/h"
[listener.l]
listen = "127.0.0.1:0"
protocol = "lines"
upstream = "discard:"
class = "bulk"
`

// waitBeneath starts a daemon with beneathPolicy, and lets a message wait.
func waitBeneath(t *testing.T) *process {
	t.Helper()
	p := begin(t, beneathPolicy)
	conn, err := net.Dial("tcp", p.address("l"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "the second message waits", func() bool { return p.class(t, "bulk").BacklogItems == 1 })
	return p
}

// row returns a class as the dashboard and top show it.
func (p *process) row(name string) (of web.Class) {
	p.t.Helper()
	first, err := firstOf[Tree](p, "classes")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range first.View.Classes {
		if c.Name == name {
			of = c
		}
	}
	return of
}

// Whoever shows classes says for how long something has waited in each of them, and beneath it.
func TestOldestIsShown(t *testing.T) {
	p := waitBeneath(t)
	trial.Await(t, "it has waited for a millisecond", func() bool { return p.class(t, "bulk").Oldest >= stats.Seconds(time.Millisecond) })
	one, err := firstOf[ClassView](p, "class/account")
	if err != nil {
		t.Fatal(err)
	}
	for name, waited := range map[string]stats.Seconds{
		"bulk": p.class(t, "bulk").Oldest, "account": p.class(t, "account").Oldest, "the row of bulk": p.row("bulk").Oldest,
		"the row of account": p.row("account").Oldest, "the page of account": one.View.Class.Oldest,
	} {
		if least, most := stats.Seconds(time.Millisecond), stats.Seconds(time.Minute); waited < least || waited > most {
			t.Errorf("%s: the oldest message has waited for %v", name, time.Duration(waited))
		}
	}
	if idle, row := p.class(t, "idle").Oldest, p.row("idle").Oldest; idle != 0 || row != 0 {
		t.Errorf("in a class that nobody uses something has waited for %v and %v", time.Duration(idle), time.Duration(row))
	}
}

// A class with a child is empty when the child is.
func TestDrainOfWhatWaitsBeneath(t *testing.T) {
	p := waitBeneath(t)
	for name, left := range map[string]stats.Seconds{"bulk": p.class(t, "bulk").Drain, "account": p.class(t, "account").Drain, "the row of account": p.row("account").Drain} {
		if least, most := stats.Seconds(50*time.Minute), stats.Seconds(time.Hour); left < least || left > most {
			t.Errorf("%s is empty in %v, want an hour", name, time.Duration(left))
		}
	}
}

// A class whose child waits for a limit of its own waits for that, and not for its turn.
func TestHoldOfWhatWaitsBeneath(t *testing.T) {
	p := waitBeneath(t)
	for name, hold := range map[string]*stats.Hold{"bulk": p.class(t, "bulk").WaitsFor, "account": p.class(t, "account").WaitsFor, "the row of account": p.row("account").WaitsFor} {
		if hold == nil || hold.String() != "1 messages/h of class bulk" || hold.Until.IsZero() {
			t.Errorf("%s waits for %+v", name, hold)
		}
	}
}

// What comes now waits for the same as what waits already, in the words of `why`, and behind it.
func TestExplainSaysWhatWhySays(t *testing.T) {
	p := waitBeneath(t)
	why, err := p.Client.Why(t.Context(), "bulk")
	if err != nil {
		t.Fatal(err)
	}
	all, err := p.Explain(t.Context(), ExplainRequest{Source: "127.0.0.1"})
	if err != nil || len(all) != 1 || len(all[0].Holds) == 0 {
		t.Fatalf("it explains %+v, %v", all, err)
	}
	e := all[0]
	want := "  an item that comes now leaves at about " + moment(e.WaitsUntil) + "; items that wait before it: 1\n    " + why.Path[0].String() + "\n"
	if !strings.Contains(e.String(), want) || e.WaitsUntil.Before(why.At.Add(59*time.Minute)) {
		t.Errorf("it prints\n%vwithout\n%s", e, want)
	}
}
