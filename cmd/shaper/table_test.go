package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"shaper/daemon"
	"shaper/simulate"
	"shaper/stats"
	"shaper/tc"
	"shaper/unit"
)

// longest returns the length of the longest line, in characters.
func longest(text string) (n int) {
	for line := range strings.Lines(text) {
		n = max(n, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return n
}

func TestTable(t *testing.T) {
	table := table{header: []string{"NAME", ">RATE", "WHY"}}
	table.add("a", "9µs", "because")
	table.add("long one", "10s", "")
	var out bytes.Buffer
	table.write(&out, "  ")
	if want := "  NAME      RATE  WHY\n  a          9µs  because\n  long one   10s\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// If there is no room, a table cuts texts and then omits columns. Both can be seen.
func TestTableWithoutRoom(t *testing.T) {
	for width, want := range map[string]string{
		"48": "NAME                   BYTES  ITEMS  WHERE\na-class-of-many-words   1234      5  upstream:80\n",
		"40": "NAME           BYTES  ITEMS  WHERE\na-class-of-m…   1234      5  upstream:80\n",
		"36": "NAME              BYTES  WHERE\na-class-of-many…   1234  upstream:80\n\nno room for ITEMS; a wider terminal\nshows more, or COLUMNS=200\n",
		"30": "NAME                   BYTES\na-class-of-many-words   1234\n\nno room for ITEMS, WHERE; a\nwider terminal shows more, or\nCOLUMNS=200\n",
		"14": "NAME     BYTES\na-clas…   1234\n\nno room for\nITEMS, WHERE;\na wider\nterminal shows\nmore, or\nCOLUMNS=200\n",
	} {
		t.Setenv("COLUMNS", width)
		one := &table{header: []string{"NAME", ">BYTES", ">ITEMS", "WHERE"}, spare: []string{"ITEMS", "WHERE"}}
		one.add("a-class-of-many-words", "1234", "5", "upstream:80")
		var out bytes.Buffer
		if one.write(&out, ""); out.String() != want {
			t.Errorf("in %s columns:\n%s\nwant\n%s", width, &out, want)
		}
	}
}

// In a narrow terminal a class shows both what it waits for and for how long, and the column by which
// it is sorted.
func TestWaitsForInANarrowTerminal(t *testing.T) {
	now := time.Now()
	waits := func(name, parent, rate, of, limit string, left time.Duration) (c daemon.Class) {
		c.Name, c.Parent, c.Rate = name, parent, stats.RateReading{Text: rate, Unit: unit.Messages.String()}
		c.Now.Text, c.BacklogItems, c.BacklogBytes, c.WaitP99 = "9.69 messages/s", 283, 1400, stats.Seconds(12300*time.Millisecond)
		c.WaitsFor = &stats.Hold{Class: of, Limit: limit, Until: now.Add(left)}
		return c
	}
	all := []daemon.Class{waits("aggregator", "", "20 messages/s", "aggregator", "20 messages/s", 40*time.Millisecond),
		waits("otp", "aggregator", "10 messages/s", "aggregator", "20 messages/s", 11900*time.Millisecond),
		waits("bulk", "aggregator", "1 messages/h", "bulk", "1 messages/h", 59*time.Minute+44*time.Second)}
	want := "CLASS                RATE              NOW  ITEMS  WAITS FOR             DROPPED\n" +
		"aggregator  20 messages/s  9.69 messages/s    283  20 messages/s, 40ms         0\n" +
		"  otp       10 messages/s  9.69 messages/s    283  20 messages/…, 11.9s        0\n" +
		"  bulk       1 messages/h  9.69 messages/s    283  1 messages/h, 59m44s        0\n"
	t.Setenv("COLUMNS", "80")
	var out bytes.Buffer
	if printClasses(&out, all, now, ""); !strings.HasPrefix(out.String(), want) || longest(out.String()) > 80 {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	for _, by := range []order{"oldest", "p99", "-p99", "drain", "in-flight"} {
		var out bytes.Buffer
		name := strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(string(by), "-"), "-", " "))
		if printClasses(&out, all, now, by); !strings.Contains(strings.SplitN(out.String(), "\n", 2)[0], name) || longest(out.String()) > 80 {
			t.Errorf("sorted by %s:\n%s", by, &out)
		}
	}
}

// A class from which nothing has left for hours is the one that waits longest, whatever the others have waited.
func TestSortByOldest(t *testing.T) {
	one := func(name string, items int64, oldest, p99 time.Duration) (c daemon.Class) {
		c.Name, c.Rate.Text, c.Now.Text = name, "1 messages/day", "0 messages/s"
		c.BacklogItems, c.Oldest, c.WaitP99 = items, stats.Seconds(oldest), stats.Seconds(p99)
		return c
	}
	all := []daemon.Class{one("busy", 9, 3*time.Second, 12*time.Second), one("done", 0, 0, time.Hour), one("held", 1, 17*time.Hour, 0)}
	t.Setenv("COLUMNS", "80")
	for by, want := range map[order]string{"p99": "done busy held", "oldest": "held busy done", "-oldest": "busy held done"} {
		var out bytes.Buffer
		printClasses(&out, all, time.Now(), by)
		var names []string
		for line := range strings.Lines(out.String()) {
			names = append(names, strings.Fields(line + " -")[0])
		}
		if got := strings.Join(names[1:4], " "); got != want {
			t.Errorf("by %s come %s, want %s:\n%s", by, got, want, &out)
		}
		if by == "oldest" && !strings.Contains(out.String(), "17h") {
			t.Errorf("it does not say for how long:\n%s", &out)
		}
	}
	if got, want := classFacts(all[2], time.Now()), [2]string{"oldest", "17h0m"}; !slices.Contains(got, want) {
		t.Errorf("the facts %q are without %q", got, want)
	}
}

// In a pipe nothing is cut or omitted.
func TestTableInAPipe(t *testing.T) {
	x := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	all := wideClasses(x)
	printClasses(&out, all, time.Now(), "")
	for _, part := range []string{"  " + all[1].Name, "WEIGHT", "WOULD DROP", "CEIL"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is missing in\n%s", part, &out)
		}
	}
	if strings.ContainsAny(out.String(), "…") || strings.Contains(out.String(), "no room") {
		t.Errorf("the table is cut:\n%s", &out)
	}
}

// Tables fit into 80 columns and more, with figures of any size, names of up to 64 letters and
// addresses of IPv6.
func TestTablesFit(t *testing.T) {
	x := rand.New(rand.NewPCG(1, 2))
	for _, width := range []int{80, 100, 132, 200} {
		t.Setenv("COLUMNS", fmt.Sprint(width))
		for name, print := range map[string]func(*bytes.Buffer){
			"classes":  func(out *bytes.Buffer) { printClasses(out, wideClasses(x), time.Now(), "") },
			"sessions": func(out *bytes.Buffer) { printSessions(out, wideSessions(x), time.Now(), "") },
			"shadow": func(out *bytes.Buffer) {
				s := daemon.Shadow{File: "next.toml", Since: time.Now()}
				for _, c := range wideClasses(x) {
					s.Classes = append(s.Classes, daemon.Divergence{Name: c.Name, Parent: c.Parent, Rate: c.Rate, ShadowReading: *c.Shadow,
						Live: &daemon.Live{Rate: c.Rate, Delayed: x.Uint64(), Dropped: x.Uint64()}})
				}
				printShadow(out, s, time.Now())
			},
			"status": func(out *bytes.Buffer) {
				var s daemon.Status
				s.Listeners = []stats.ListenerReading{{Name: longName(x), Protocol: "iso8583", Open: x.Int64(),
					Addresses: []string{"[2001:db8:1111:2222:3333:4444:5555:6666]:65535", "[2001:db8:1111:2222:3333:4444:5555:7777]:65535"}}}
				printStatus(out, s, time.Now())
			},
			"upstreams": func(out *bytes.Buffer) {
				ttl := stats.Seconds(time.Hour)
				printUpstreams(out, []daemon.Upstream{{Listener: longName(x), Upstream: longName(x) + ".example:2775", Number: 1, Weight: 10000, Address: "[2001:db8:1111:2222:3333:4444:5555:6666]:65535",
					TTL: &ttl, State: "unresolved", Since: time.Now().Add(-100 * time.Hour), Sessions: 1 << 31, InFlight: 1 << 20, Failures: x.Uint64(), Error: strings.Repeat("no such host ", 9)}}, time.Now(), "")
			},
			"fleet": func(out *bytes.Buffer) {
				printFleets(out, []daemon.Fleet{{Name: "production", Addresses: []string{"redis.example:6379"}, Up: true, Members: 100, Calls: x.Uint64(), Failures: x.Uint64(),
					CallTime: stats.Seconds(1234567), ClockError: stats.Seconds(1234567), Headroom: stats.Seconds(1234567),
					Shapers: []stats.ShaperReading{{Name: longName(x), Share: 0.123, Age: stats.Seconds(time.Hour), Seen: stats.Seconds(time.Hour), Budgets: 1000, State: stats.HeldBack, Deadline: 1 << 27}},
					Classes: []stats.SharedReading{{Class: longName(x), Limit: "123456 messages/15min", Mode: "stopped", Members: 100, Share: 0.123, Leased: x.Int64(), Used: x.Uint64(), Expired: x.Uint64(), Returned: x.Uint64(),
						Calls: x.Uint64(), Age: stats.Seconds(time.Hour), Fallback: stats.Seconds(time.Hour), Error: strings.Repeat("no such host ", 9), Shortest: 1, Longest: 1 << 30}}}})
			},
			"simulate":        func(out *bytes.Buffer) { printReport(out, wideReport(x, 0)) },
			"simulate, fleet": func(out *bytes.Buffer) { printFleetReport(out, wideReport(x, 2)) },
			"simulate, two":   func(out *bytes.Buffer) { printComparison(out, comparison{wideReport(x, 0), wideReport(x, 0)}) },
			"tc show": func(out *bytes.Buffer) {
				printShown(out, []tc.Shown{
					{Device: "shaper-device-1", Type: tc.Class, Handle: "7fff:ffff", Parent: "7fff:fffe", Kind: "htb", Class: longName(x),
						Words: strings.Repeat("rate 1gbit ceil 1gbit ", 4), Counts: tc.Counters{Bytes: x.Uint64(), Packets: x.Uint64(), Dropped: x.Uint64(), Overlimits: x.Uint64()}},
					{Device: "shaper-device-1", Type: tc.Filter, Handle: "800::800", Parent: "7fff:", Kind: "flower", Class: longName(x),
						Words: strings.Repeat("ip_proto tcp dst_port 443 ", 5)},
				})
			},
		} {
			var out bytes.Buffer
			if print(&out); longest(out.String()) > width {
				t.Errorf("%s in %d columns:\n%s", name, width, &out)
			}
		}
	}
}

func longName(x *rand.Rand) string { return strings.Repeat(string(rune('a'+x.IntN(26))), 64) }

// wideClasses returns a parent and a child that use every column.
func wideClasses(x *rand.Rand) []daemon.Class {
	var all []daemon.Class
	parent := ""
	for i := range 2 {
		var c daemon.Class
		c.Name, c.Parent, c.Per, c.Set = longName(x)[1:]+fmt.Sprint(i), parent, "source", true
		c.Rate = stats.RateReading{Text: "123456 messages/15min", PerSecond: 137, Unit: unit.Messages.String()}
		c.Ceil, c.Now.Text = &c.Rate, "123 messages/s"
		c.BacklogBytes, c.BacklogItems, c.Keys, c.InFlight = x.Int64(), x.Int64(), 1<<24, 1<<20
		c.Throttled, c.Share = map[string]uint64{"0x58": x.Uint64() >> 20}, 0.0625
		c.WaitP50, c.WaitP99, c.Drain = stats.Seconds(time.Hour), stats.Seconds(time.Hour), stats.Never
		c.Dropped = map[stats.Reason]stats.LossReading{stats.QueueFull: {Items: x.Uint64()}}
		c.Overlimits = x.Uint64()
		c.Shadow = &stats.ShadowReading{WouldDelay: x.Uint64(), WouldDrop: x.Uint64()}
		all, parent = append(all, c), c.Name
	}
	return all
}

// wideReport returns what a fleet of so many members did; 0: there is none.
func wideReport(x *rand.Rand, members int) *simulate.Report {
	r := &simulate.Report{Policy: "/etc/shaper/policies/next.toml", Hash: "0123456789ab", Period: stats.Seconds(24 * time.Hour)}
	for _, c := range wideClasses(x) {
		amount := func() simulate.Amount { return simulate.Amount{Items: x.Uint64() >> 24} }
		lost := map[stats.Reason]stats.LossReading{stats.QueueFull: {Items: x.Uint64() >> 24}}
		gap := stats.Seconds(time.Millisecond)
		r.Classes = append(r.Classes, simulate.Class{Name: c.Name, Parent: c.Parent, Limit: c.Rate, Offered: amount(), Left: amount(), Dropped: lost, Refused: lost, Waiting: amount(), MostWaiting: amount(),
			WaitP50: c.WaitP50, WaitP99: c.WaitP99, WaitMax: c.WaitP99, Reached: c.Now, Utilisation: 1, Shared: &simulate.Shared{Gap: &gap, CallsPerSecond: 12345.6}})
	}
	for range members {
		r.Members = append(r.Members, wideReport(x, 0))
	}
	return r
}

func wideSessions(x *rand.Rand) []daemon.Session {
	return []daemon.Session{{ID: x.Uint64(), Listener: longName(x), Client: "[2001:db8:1111:2222:3333:4444:5555:6666]:65535", Upstream: longName(x) + ".example:65535",
		Class: longName(x), ReturnClass: longName(x), Upward: x.Uint64(), Downward: x.Uint64(), Waiting: x.Int64(), ClientTLS: "1.3", UpstreamTLS: "1.3"}}
}

func TestSort(t *testing.T) {
	all := []daemon.Session{{ID: 1, Client: "b", Upward: 5}, {ID: 2, Client: "a", Upward: 7}, {ID: 3, Client: "c", Upward: 6}}
	for by, want := range map[order]string{"": "123", "up": "231", "UP": "231", "-up": "132", "client": "213", "-client": "312", "id": "123"} {
		rows, err := sorted(sessionColumns(time.Now()), all, by)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, s := range rows {
			got += fmt.Sprint(s.ID)
		}
		if got != want {
			t.Errorf("--sort %s gives %s, want %s", by, got, want)
		}
	}
	if _, err := sorted(sessionColumns(time.Now()), all, "clint"); err == nil || err.Error() != `shaper: --sort: there is no column "clint"; did you mean "client"?` {
		t.Errorf("got %v", err)
	}
	var out bytes.Buffer
	printClasses(&out, treeOfClasses(), time.Now(), "priority")
	if rows := strings.Fields(out.String()); !strings.Contains(out.String(), "\nbulk ") || strings.Index(out.String(), "\nbulk ") > strings.Index(out.String(), "\notp ") {
		t.Errorf("sorted by priority: %v\n%s", rows, &out)
	}
}

// Rows without a figure come last in either order.
func TestSortWithoutAFigure(t *testing.T) {
	ceil := func(n float64) *stats.RateReading { return &stats.RateReading{Text: fmt.Sprint(n), PerSecond: n} }
	all := make([]daemon.Class, 4)
	for i := range all {
		all[i].Name = string(rune('a' + i))
	}
	all[1].Ceil, all[3].Ceil = ceil(5), ceil(7)
	all[1].Parent, all[3].Parent = "a", "a"
	for by, want := range map[order]string{"ceil": "dbac", "-ceil": "bdac", "priority": "bdac"} {
		columns := classColumns(time.Now())
		rows, err := sorted(columns, inTreeOrder(all, func(c daemon.Class) (name, parent string) { return c.Name, c.Parent }), by)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range rows {
			got += r.of.Name
		}
		if got != want {
			t.Errorf("--sort %s gives %s, want %s", by, got, want)
		}
	}
}

func TestWrapped(t *testing.T) {
	t.Setenv("COLUMNS", "24")
	var out bytes.Buffer
	writeWrapped(&out, "class a: it matches all\n  not rule 1: source 10.0.0.1 is not in 10.1.0.0/16\n")
	if want := "class a: it matches all\n  not rule 1: source\n      10.0.0.1 is not in\n      10.1.0.0/16\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
