package simulate

import (
	"fmt"
	"io"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

func parse(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, _, err := policy.Parse("p.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// udp returns a UDP listener with a class.
func udp(name, class string) string {
	return fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:0\"\nprotocol = \"udp\"\nupstream = \"discard:\"\nclass = %q\n", name, class)
}

func tcp(name, class string) string {
	return fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:0\"\nupstream = \"discard:\"\nclass = %q\n", name, class)
}

func loads(t testing.TB, p *policy.Policy, texts ...string) []Source {
	t.Helper()
	var all []Load
	for _, text := range texts {
		l, err := ParseLoad(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	sources, err := Sources(p, all, 1)
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// simulated runs a simulation. It returns its report, and when each item left.
func simulated(t testing.TB, p *policy.Policy, sources []Source, o Options) (*Report, []time.Duration) {
	t.Helper()
	var left []time.Duration
	o.Departures = func(d *Departure) error {
		left = append(left, d.At.Sub(Epoch))
		return nil
	}
	r, err := Run(p, sources, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Classes {
		if got := c.Left.Items + c.Waiting.Items + total(c.Dropped) + total(c.Refused); got != c.Offered.Items {
			t.Errorf("class %s: of %d items, %d are accounted for", c.Name, c.Offered.Items, got)
		}
	}
	return r, left
}

func total(losses map[stats.Reason]stats.LossReading) (n uint64) {
	for _, l := range losses {
		n += l.Items
	}
	return n
}

// all returns a source of the arrivals of a slice.
func all(arrivals []Arrival) Source {
	return Source{Next: func(a *Arrival) error {
		if len(arrivals) == 0 {
			return io.EOF
		}
		*a, arrivals = arrivals[0], arrivals[1:]
		return nil
	}}
}

// burst returns a source of n datagrams at each of some times.
func burst(p *policy.Policy, n int, at ...time.Duration) Source {
	var arrivals []Arrival
	l := p.Listeners[0]
	client, _ := parseClient("127.0.0.1")
	for _, after := range at {
		for range n {
			arrivals = append(arrivals, Arrival{At: Epoch.Add(after), Conn: connTo(l, client, 0), Bytes: 100, Opens: true})
		}
	}
	return all(arrivals)
}

// A leaky bucket has room for 10. Of a burst of 20, it keeps 10; one leaves each 100 ms.
func TestLeakyKeepsTenOfTwenty(t *testing.T) {
	p := parse(t, "[class.a]\nrate = \"10 packets/s\"\nqueue = \"10 packets\"\n"+udp("in", "a"))
	r, left := simulated(t, p, []Source{burst(p, 1, 0), burst(p, 20, time.Nanosecond)}, Options{})
	if len(left) != 11 {
		t.Fatalf("%d items leave: %v", len(left), left)
	}
	for i, at := range left {
		if want := time.Duration(i) * 100 * time.Millisecond; at != want {
			t.Errorf("item %d leaves at %v, want %v", i, at, want)
		}
	}
	a, _ := r.Class("a")
	if a.Offered.Items != 21 || a.Dropped[stats.QueueFull].Items != 10 || a.MostWaiting.Items != 10 {
		t.Errorf("%+v", a)
	}
	if want := stats.Seconds(time.Second - time.Nanosecond); a.WaitMax != want || r.Period != stats.Seconds(time.Second) {
		t.Errorf("the longest wait is %v, want %v; the period is %v", a.WaitMax, want, r.Period)
	}
	if a.Reached.PerSecond != 10 || a.Utilisation != 1 { // the last one takes 100 ms, too
		t.Errorf("the rate reached is %v, which is %v of the limit", a.Reached, a.Utilisation)
	}
}

// What waits for a quota waits for days. Quantiles are those of the departures, to within a bucket.
func TestWaitsOfALongQuota(t *testing.T) {
	p := parse(t, "[class.a]\nrate = \"1 packets/day\"\n"+udp("in", "a"))
	r, left := simulated(t, p, []Source{burst(p, 75, 0)}, Options{})
	a, _ := r.Class("a")
	if want := 74 * 24 * time.Hour; len(left) != 75 || time.Duration(a.WaitMax) != want {
		t.Fatalf("%d items leave, after %v at most, want %v", len(left), time.Duration(a.WaitMax), want)
	}
	for _, q := range []struct{ got, want stats.Seconds }{{a.WaitP50, stats.Seconds(left[37])}, {a.WaitP99, stats.Seconds(left[74])}} {
		if q.got < q.want || float64(q.got) > 1.091*float64(q.want) {
			t.Errorf("a quantile is %v, want %v", time.Duration(q.got), time.Duration(q.want))
		}
	}
}

// 100 items come at 0.99 s and 100 at 1.01 s. The limit is 100 a second.
func TestWindowsAtABoundary(t *testing.T) {
	const first, then = 990 * time.Millisecond, 1010 * time.Millisecond
	for algorithm, want := range map[string]int{"fixed-window": 200, "sliding-log": 100, "sliding-window": 101} {
		p := parse(t, fmt.Sprintf("[class.a]\nalgorithm = %q\nrate = \"100 packets/s\"\n%s", algorithm, udp("in", "a")))
		_, left := simulated(t, p, []Source{burst(p, 100, first, then)}, Options{})
		n := 0
		for _, at := range left {
			if at <= then {
				n++
			}
		}
		if n != want || len(left) != 200 {
			t.Errorf("%s: %d of %d have left at 1.01 s, want %d of 200", algorithm, n, len(left), want)
		}
	}
}

const account = `[class.account]
rate = "300 packets/s"
[class.urgent]
parent = "account"
rate = "100 packets/s"
ceil = "300 packets/s"
priority = 0
[class.bulk]
parent = "account"
rate = "50 packets/s"
ceil = "300 packets/s"
`

// In the example of docs/policy.md, classes get what is assured, and then the better priority
// goes first.
func TestATreeShares(t *testing.T) {
	p := parse(t, account+udp("urgent", "urgent")+udp("bulk", "bulk"))
	r, _ := simulated(t, p, loads(t, p, "rate=1000 packets/s"), Options{For: 100 * time.Second})
	for name, want := range map[string]float64{"urgent": 250, "bulk": 50, "account": 300} {
		c, _ := r.Class(name)
		if diff := c.Reached.PerSecond - want; diff > 1 || diff < -1 {
			t.Errorf("%s reaches %v packets/s, want %v", name, c.Reached.PerSecond, want)
		}
	}
	account, _ := r.Class("account")
	if account.Offered.Items != 200_000 {
		t.Errorf("the account is offered %d items, with those of the classes beneath it", account.Offered.Items)
	}
}

// A client is held if its class has overflow "wait", and not if it has "refuse".
func TestOverflow(t *testing.T) {
	for overflow, wantRefused := range map[string]bool{"wait": false, "refuse": true} {
		p := parse(t, fmt.Sprintf("[class.a]\nrate = \"10KB/s\"\nqueue = \"10KB\"\noverflow = %q\n%s", overflow, tcp("in", "a")))
		r, _ := simulated(t, p, loads(t, p, "rate=100KB/s,size=1KB"), Options{For: 10 * time.Second})
		a, _ := r.Class("a")
		if refused := total(a.Refused) > 0; refused != wantRefused {
			t.Errorf("%s: %d items are refused", overflow, total(a.Refused))
		}
		if overflow == "wait" && (a.MostWaiting.Items > 1 || a.Utilisation < 0.99) {
			t.Errorf("at most %d items of a client wait, and %v of the limit is used", a.MostWaiting.Items, a.Utilisation)
		}
	}
}

// What a client sends over TCP at once leaves in pieces of its class.
func TestAStreamIsCut(t *testing.T) {
	p := parse(t, "[class.a]\nrate = \"1MB/s\"\n"+tcp("in", "a"))
	r, left := simulated(t, p, loads(t, p, "rate=1MB/s,size=1MB,count=1"), Options{})
	a, _ := r.Class("a")
	if a.Left.Bytes != 1_000_000 || len(left) < 100 || r.Period < stats.Seconds(990*time.Millisecond) {
		t.Errorf("%d bytes in %d pieces within %v", a.Left.Bytes, len(left), time.Duration(r.Period))
	}
}

func TestConnections(t *testing.T) {
	p := parse(t, "[class.a]\nrate = \"5 connections/s\"\n[class.b]\nrate = \"1 connections/s\"\n"+tcp("in", "a")+
		"[[rule]]\nsource = \"10.0.0.0/8\"\nclass = \"b\"\n")
	r, _ := simulated(t, p, loads(t, p, "rate=10 connections/s", "rate=10 connections/s,source=10.1.2.3"), Options{For: 10 * time.Second})
	a, _ := r.Class("a")
	b, _ := r.Class("b")
	if a.Left.Items != 50 || b.Left.Items != 10 || total(a.Refused) != 0 {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// A rate of 0 lets nothing pass, and the simulation still ends.
func TestRateZero(t *testing.T) {
	p := parse(t, "[class.a]\nrate = \"0 packets/s\"\n"+udp("in", "a"))
	r, left := simulated(t, p, []Source{burst(p, 5, 0)}, Options{})
	if a, _ := r.Class("a"); len(left) > 0 || a.Waiting.Items != 5 || a.Utilisation != 0 {
		t.Errorf("items leave at %v, and %d wait", left, a.Waiting.Items)
	}
}

func TestMaxWait(t *testing.T) {
	p := parse(t, "[class.a]\nrate = \"10 packets/s\"\nmax_wait = \"500ms\"\n"+udp("in", "a"))
	r, _ := simulated(t, p, []Source{burst(p, 20, 0)}, Options{})
	if a, _ := r.Class("a"); a.Left.Items != 6 || a.Dropped[stats.MaxWait].Items != 14 {
		t.Errorf("%+v", a)
	}
}

// Each source has a bucket; with one for each connection, each of its ports has one.
func TestBuckets(t *testing.T) {
	for per, want := range map[string]int{"source": 3 * 10, "source/24": 2 * 10, "connection": 4 * 10, "source-port": 2 * 10, "destination": 10} {
		p := parse(t, fmt.Sprintf("[class.a]\nrate = \"10 packets/s\"\nper = %q\n", per)+udp("l", "a"))
		sources := loads(t, p, "rate=100 packets/s,source=10.0.0.1:1", "rate=100 packets/s,source=10.0.0.1:2",
			"rate=100 packets/s,source=10.0.0.2:1", "rate=100 packets/s,source=10.0.1.1:1")
		r, _ := simulated(t, p, sources, Options{For: time.Second})
		if got := int(r.Classes[0].Left.Items); got != want {
			t.Errorf("per %s: %d items leave in a second, want %d", per, got, want)
		}
	}
}

// Each address of ours has a bucket: connections and messages go to the one that is free the
// soonest, and a client of datagrams stays at one.
func TestBucketsOfBinds(t *testing.T) {
	const bind = "bind = [\"192.0.2.1\", \"192.0.2.2\"]\n"
	for _, c := range []struct {
		listener, unit string
		want           uint64
	}{{udp("l", "a"), "packets", 40}, {tcp("l", "a"), "connections", 41}, {tcp("l", "a") + "protocol = \"http\"\n", "messages", 41}} {
		p := parse(t, fmt.Sprintf("[class.a]\nrate = \"20 %s/s\"\nper = \"bind\"\n", c.unit)+c.listener+bind)
		r, _ := simulated(t, p, loads(t, p, "rate=100 "+c.unit+"/s,source=10.0.0.1:1", "rate=100 "+c.unit+"/s,source=10.0.0.2:1"), Options{For: time.Second})
		if got := r.Classes[0].Left.Items; got < c.want-1 || got > c.want+1 {
			t.Errorf("%s: %d items leave in a second, want %d", c.unit, got, c.want)
		}
	}
	for _, c := range []struct{ listener, rate, load string }{{udp("l", "a"), "20 packets/s", "rate=100 packets/s"}, {tcp("l", "a"), "20KB/s", "rate=100KB/s,size=1KB"}} {
		p := parse(t, fmt.Sprintf("[class.a]\nrate = %q\nper = \"bind\"\n", c.rate)+c.listener+bind)
		r, _ := simulated(t, p, loads(t, p, c.load+",source=10.0.0.1:1"), Options{For: 10 * time.Second})
		if a := r.Classes[0]; a.Utilisation > 1.01 || a.Utilisation < 0.99 {
			t.Errorf("one client sends at %v of %s, from one address", a.Reached.Text, c.rate)
		}
	}
}

// Messages leave one by one. If there is no room, they are refused if the protocol can refuse;
// otherwise the client waits.
func TestMessages(t *testing.T) {
	for protocol, want := range map[string][2]uint64{"smpp": {6, 94}, "http": {6, 94}, "lines": {10, 0}, "iso8583": {10, 0}} {
		p := parse(t, "[class.a]\nrate = \"10 messages/s\"\nqueue = \"5 messages\"\n"+
			fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = \"discard:\"\nclass = \"a\"\n", protocol))
		r, _ := simulated(t, p, loads(t, p, "rate=100 messages/s,pattern=seconds"), Options{For: time.Second})
		c := r.Classes[0]
		if got := [2]uint64{c.Left.Items, c.Refused[stats.QueueFull].Items}; got != want {
			t.Errorf("%s: %d messages leave and %d are refused, want %v", protocol, got[0], got[1], want)
		}
	}
}
