package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// fleetOf runs so many shapers whose class acme is shared, with these lines more, and that lead to one
// upstream by a protocol.
func fleetOf(t *testing.T, n int, bin, store, protocol, upstream, class string) (all []*program) {
	t.Helper()
	for range n {
		all = append(all, start(t, bin, fmt.Sprintf(`
[fleet.prod]
address = %q

[class.acme]
%s
shared = "prod"

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = %q
upstream = %q
class    = "acme"
`, store, class, protocol, upstream)))
	}
	return all
}

// sendAll lets the first client of a fleet send so many messages at once, and each other one so many.
// It waits for all answers.
func sendAll(t *testing.T, fleet []*program, first, others int) {
	t.Helper()
	var wg sync.WaitGroup
	for i, d := range fleet {
		e, n := bind(t, d.addr("gateway"), fmt.Sprint("client", i)), others
		if i == 0 {
			n = first
		}
		wg.Go(func() {
			for e.submit(fmt.Sprint("client", i), n); e.answered < n; {
				e.read()
			}
		})
	}
	wg.Wait()
}

// TestFleetSharesOneAccount lets shapers send through one account of 20 messages a second, at a provider
// that refuses what comes sooner. All of them send all the time, or one sends and the others are
// idle. All is accepted, and at least 98 % of the limit is used. The cases run side by side: each takes
// little of a processor.
func TestFleetSharesOneAccount(t *testing.T) {
	members, each := trial.Size(3, 8), trial.Size(20, 250)
	const limit = "rate = \"20 messages/s\"\nheadroom = \"1%\""
	for _, c := range []struct {
		name          string
		first, others int
		class         string
	}{
		{"all greedy", each, each, limit},
		{"one greedy", 3 * each, 0, limit},
		{"two limits", each, each, "rate = \"30 messages/s\"\nalso = [{ rate = \"1200 messages/min\", algorithm = \"leaky\", headroom = \"1%\" }]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store := fleettest.StartRedis(t)
			rule := &spacing{gap: 50 * time.Millisecond}
			p := spacedProvider(t, rule)
			fleet := fleetOf(t, members, plain(), store.Addr, "smpp", p.addr, c.class)
			sum := c.first + (members-1)*c.others
			trial.Judge(t, 200*time.Microsecond, func() *trial.Miss {
				sendAll(t, fleet, c.first, c.others)
				accepted, refused, took := rule.score()
				used := float64(accepted-1) * float64(rule.gap) / float64(took)
				// A busy machine causes refusals, since a member may be late, and each is a pause of a second or more.
				without := float64(rule.gap) / float64(rule.meanBelow(time.Second))
				trial.Figure(t, c.name+": refused; of the limit", "%d of %d; %.2f %%", refused, sum, 100*used)
				t.Logf("%d messages of %d shapers in %v: %d refused, %.2f %% of the limit; the shortest gap is %v", sum, members, took, refused, 100*used, rule.closest())
				drawFleet(t, fmt.Sprintf("%d messages of %d shapers to one account of 20 messages/s: %d refused, shortest gap %v, %.1f %% of the limit",
					sum, members, refused, rule.closest().Round(10*time.Microsecond), 100*used), p.got())
				rule.checkSum(t, sum, members) // one of each may be late
				return trial.Join(
					trial.Least(used, 0.98, 0.2, "%.1f %% of the limit was used, want 98 %%", 100*used),
					trial.Least(without, 0.98, 0.55, "%.1f %% of the limit was used without the pauses, want 98 %%", 100*without),
					rule.kept())
			})
		})
	}
}

// TestFleetWithoutItsStore kills the store under load. The shapers go on at their shares, never above the
// limit, and come back to the store.
func TestFleetWithoutItsStore(t *testing.T) {
	t.Parallel()
	const limit, members = 40, 3
	store := fleettest.StartRedis(t)
	p := newProvider(t, func(moment) uint32 { return 0 })
	fleet := fleetOf(t, members, plain(), store.Addr, "smpp", p.addr, fmt.Sprintf("rate = \"%d messages/s\"\nheadroom = \"2%%\"", limit))
	for i, d := range fleet {
		bind(t, d.addr("gateway"), fmt.Sprint("client", i)).submit("acme", 900)
	}
	trial.Await(t, "the store serves all of them, and each has a share", func() bool { return len(p.got()) >= limit && allAre(fleet, "store") })
	store.Kill()
	away, at := time.Now(), len(p.got())
	trial.Await(t, "all are on their shares", func() bool { return allAre(fleet, "share") })
	began, before, watch := time.Now(), len(p.got()), trial.Begin()
	trial.Await(t, "some have left at the shares", func() bool { return len(p.got()) >= before+2*limit })
	atShares := float64(len(p.got())-before) / time.Since(began).Seconds()
	watch.Judge(t, 5*time.Millisecond, trial.Least(atShares, 0.65*limit, 0.2*limit, "%.1f/s of %d/s leave at the shares", atShares, limit))
	if d := fleet[0]; d.metric(`shaper_fleet_up{fleet="prod"}`) != 0 || d.metric(`shaper_fleet_fallback_seconds_total{class="acme"}`) <= 0 {
		t.Error("the metrics do not say that the store is away")
	}
	ended := time.Now()
	store.Start()
	trial.Await(t, "all are back at the store", func() bool { return allAre(fleet, "store") })
	back := len(p.got())
	trial.Await(t, "some have left from the store", func() bool { return len(p.got()) >= back+limit })
	var all []moment
	onShare := map[int][]moment{} // of each shaper
	for _, s := range p.got() {
		all = insert(all, s.moment)
		if s.after.After(began) && s.by.Before(ended) {
			onShare[s.conn] = insert(onShare[s.conn], s.moment)
		}
	}
	trial.Figure(t, "messages/s at the shares, of a limit of 40", "%.1f", atShares)
	t.Logf("%d had left when the store ended; on shares after %v, at %.1f/s of %d; %d in all in %v", at, began.Sub(away), atShares, limit, len(all), all[len(all)-1].by.Sub(all[0].by))
	// Of each shaper, a message from the store and one at its share may be late.
	if err := excess(all, time.Second/limit, 2*members); err != nil {
		t.Error(err)
	}
	for conn, some := range onShare {
		if err := excess(some, members*time.Second/limit, 1); err != nil {
			t.Errorf("connection %d, on its share: %v", conn, err)
		}
	}
	if len(onShare) != members {
		t.Errorf("%d shapers have sent at their shares, want %d", len(onShare), members)
	}
}

// allAre reports whether class acme has a mode in all shapers, and each of them its share.
func allAre(fleet []*program, mode string) bool {
	for _, d := range fleet {
		var all []struct {
			Classes []struct {
				Mode  string
				Share float64
			}
		}
		if d.ask(&all, "fleet"); len(all) != 1 || len(all[0].Classes) != 1 {
			return false
		}
		if c := all[0].Classes[0]; c.Mode != mode || c.Share*float64(len(fleet)) < 0.9 {
			return false
		}
	}
	return true
}

// TestFleetPausesTogether has a provider refuse one message. The shaper that hears it pauses, and the
// others with it: the class, or the key of the message.
func TestFleetPausesTogether(t *testing.T) {
	t.Parallel()
	for name, per := range map[string]string{"class": "", "key": "per = \"recipient\"\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pauseTogether(t, per)
		})
	}
}

func pauseTogether(t *testing.T, per string) {
	const pause = 2 * time.Second
	store := fleettest.StartRedis(t)
	var came atomic.Int64
	p := newProvider(t, func(moment) uint32 {
		if came.Add(1) == 20 {
			return smppThrottled
		}
		return 0
	})
	fleet := fleetOf(t, 3, plain(), store.Addr, "smpp", p.addr, fmt.Sprintf("%srate = \"40 messages/s\"\nheadroom = \"2%%\"\non_throttle = { pause = \"%v\" }", per, pause))
	trial.Judge(t, 20*time.Millisecond, func() *trial.Miss {
		sendAll(t, fleet, 20, 20)
		all := p.got()
		refused := slices.IndexFunc(all, func(s submission) bool { return s.status != 0 })
		early := 0
		for _, s := range all {
			// What is on its way still comes: the answer, the call to the store, and the next
			// calls of the others.
			if after := s.by.Sub(all[refused].by); after > 300*time.Millisecond && after < pause-50*time.Millisecond {
				early++
			}
		}
		t.Logf("of %d messages, number %d was refused, and %d came during the pause", len(all), refused, early)
		return trial.Most(early, 0, 10, "%d messages came during the pause", early)
	})
}

// TestFleetNamesItsMembers asks one shaper of three who is there. One of them stops, and one is killed.
func TestFleetNamesItsMembers(t *testing.T) {
	t.Parallel()
	store := fleettest.StartRedis(t)
	p := newProvider(t, func(moment) uint32 { return 0 })
	fleet := fleetOf(t, 3, plain(), store.Addr, "smpp", p.addr, "rate = \"40 messages/s\"\nheadroom = \"2%\"\nalso = [\"600 messages/h\"]")
	// states returns what the first shaper says of each, in the order of their starts; "" of one that is not there.
	states := func() string {
		var all []string
		lines := strings.Split(fleet[0].must("fleet"), "\n")
		for _, d := range fleet {
			state, name := "", fmt.Sprintf("-%d-", d.pid())
			for _, line := range lines {
				if strings.Contains(line, name) && strings.Contains(line, " ago ") {
					fields := strings.Fields(line)
					state = fields[len(fields)-1]
				}
			}
			all = append(all, state)
		}
		return strings.Join(all, ",")
	}
	trial.Await(t, "all are there", func() bool { return states() == "shaper,here,here" })
	fleet[1].stop()
	fleet[2].kill()
	trial.Await(t, "one has left, and one is silent", func() bool { return states() == "shaper,,silent" })
	b := newBrowser(t)
	b.open("http://" + fleet[0].status().HTTP + "/#fleet")
	b.await("the dashboard shows both", `[...document.querySelectorAll("main tbody tr")].map((row) => row.cells[row.cells.length - 1].innerText).sort().join().endsWith("silent,this shaper")`)
	b.open("about:blank")
	var all []struct {
		Shapers []struct {
			State   string
			Budgets int
		}
		Classes []struct {
			Member string
			Peers  []struct {
				Name   string
				Age    float64 `json:"age_seconds"`
				Seen   float64 `json:"seen_seconds"`
				Silent bool
			}
		}
	}
	fleet[0].read(&all, "fleet")
	for _, s := range all[0].Shapers {
		if s.Budgets != 2 {
			t.Errorf("a shaper shares %d limits, want 2: %+v", s.Budgets, all[0].Shapers)
		}
	}
	for _, c := range all[0].Classes {
		if len(c.Peers) != 2 {
			t.Fatalf("of the members %+v are left", c.Peers)
		}
		for _, p := range c.Peers {
			if p.Silent == (p.Name == c.Member) || p.Seen > p.Age || p.Age > 600 {
				t.Errorf("%s sees %+v", c.Member, p)
			}
		}
	}
	if len(all[0].Classes) != 2 {
		t.Errorf("the fleet has %+v", all)
	}
	fleet[2].run()
	trial.Await(t, "one has come again", func() bool { return states() == "shaper,,here" })
	t.Log(fleet[0].must("fleet"))
}

// startMember starts a shaper that has a state file, and shares the class acme, with this limit.
func startMember(t *testing.T, store *fleettest.Redis, p *provider, limit string) *program {
	return start(t, plain(), daemonSection+fmt.Sprintf(`state = "state"
[fleet.prod]
address = %q

[class.acme]
shared = "prod"
%s

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "acme"
`, store.Addr, limit, p.addr))
}

// TestFleetMemberComesBack kills the only shaper of a fleet. It has a state file, so it comes again under its name, and its
// budget is not held back for ten minutes.
func TestFleetMemberComesBack(t *testing.T) {
	t.Parallel()
	store, p := fleettest.StartRedis(t), newProvider(t, func(moment) uint32 { return 0 })
	d := startMember(t, store, p, `rate = "40 messages/s"`)
	for range 3 {
		before := len(p.got())
		bind(t, d.addr("gateway"), "client").submit("acme", 100)
		trial.Await(t, "messages leave", func() bool { return len(p.got()) >= before+40 })
		d.kill()
		if members := store.Do("ZCARD", "shaper:{acme}:members"); members != int64(1) {
			t.Fatalf("the store has %v members, want 1", members)
		}
		d.run()
	}
}

// TestFleetWindowComesBack kills the only shaper of a fleet when 600 units of a window of 1,000 are used, and again when its
// state file is cut. With the file, what remains leaves at once, less what was leased. Without, all of it is held back.
func TestFleetWindowComesBack(t *testing.T) {
	t.Parallel()
	store, p := fleettest.StartRedis(t), newProvider(t, func(moment) uint32 { return 0 })
	d := startMember(t, store, p, `
algorithm = "fixed-window"
rate      = "1000 messages/week"`)
	members := func() any { return store.Do("ZCARD", "shaper:{acme/fixed-window/messages/168h}:members") }
	bind(t, d.addr("gateway"), "client").submit("acme", 600)
	trial.Await(t, "600 leave", func() bool { return len(p.got()) == 600 })
	t.Cleanup(func() {
		t.Logf("%d have left; the window is %v", len(p.got()), store.Do("HGETALL", "shaper:{acme/fixed-window/messages/168h}:bucket:"))
	})
	d.kill()
	d.run()
	bind(t, d.addr("gateway"), "client").submit("acme", 600)
	trial.Await(t, "the rest leaves", func() bool { return len(p.got()) >= 980 }) // two leases may have been in hand
	trial.Await(t, "the store has no more", func() bool {
		return store.Do("HGET", "shaper:{acme/fixed-window/messages/168h}:bucket:", "used") == "1000"
	})
	d.kill()
	if n := len(p.got()); n < 980 || n > 1000 || members() != int64(1) {
		t.Errorf("%d have left, want 980 to 1000; the store has %v members", n, members())
	}
	state := filepath.Join(filepath.Dir(d.config), "state")
	data, err := os.ReadFile(state)
	if err == nil {
		err = os.WriteFile(state, data[:len(data)-1], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.run()
	trial.Await(t, "it has another name", func() bool { return members() == int64(2) })
}

// TestReloadJoinsAndLeavesAFleet has a class become shared, and end to be, under an open connection.
func TestReloadJoinsAndLeavesAFleet(t *testing.T) {
	t.Parallel()
	store := fleettest.StartRedis(t)
	p := newProvider(t, func(moment) uint32 { return 0 })
	policy := func(shared string) string {
		return fmt.Sprintf(`
[fleet.prod]
address = %q

[class.acme]
rate = "50 messages/s"
headroom = "2%%"
%s
[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "acme"
`, store.Addr, shared, p.addr)
	}
	d := start(t, raced(t), policy(""))
	e := bind(t, d.addr("gateway"), "acme")
	before := d.descriptors()
	for _, shared := range []string{"", "shared = \"prod\"\n", "shared = \"prod\"\nalso = [\"500 messages/h\"]\n", "shared = \"prod\"\n", ""} {
		d.write(policy(shared))
		d.must("reload")
		first := e.submit("acme", 10)
		for range 10 {
			e.read()
		}
		text := d.must("classes", "acme")
		if is := strings.Contains(text, "shared"); is != (shared != "") {
			t.Errorf("with %q, shaper classes says:\n%s", shared, text)
		}
		if text, want := d.must("explain", "127.0.0.1"), "its budget is in the fleet prod"; strings.Contains(text, want) != (shared != "") {
			t.Errorf("with %q, shaper explain says:\n%s", shared, text)
		}
		t.Logf("%q: submits from %d on are answered; %d descriptors", shared, first, d.descriptors())
	}
	waitForAtMost(t, "descriptors", before, d.descriptors)
	if members := store.Do("ZCARD", "shaper:{acme}:members"); members != int64(0) {
		t.Errorf("the store has members that have left: %v", members)
	}
}

// TestRemovedClassKeepsToItsFleet has a reload take a shared class away together with its listener, on all shapers, while messages
// wait in it. They leave as the fleet grants them. When the last connection has ended, the members leave the store.
func TestRemovedClassKeepsToItsFleet(t *testing.T) {
	t.Parallel()
	const members, each, rate = 3, 80, 20
	store := fleettest.StartRedis(t)
	p := newProvider(t, func(moment) uint32 { return 0 })
	fleet := fleetOf(t, members, plain(), store.Addr, "smpp", p.addr, fmt.Sprintf("rate = \"%d messages/s\"\nheadroom = \"2%%\"", rate))
	var clients []*esmeConn
	for i, d := range fleet {
		clients = append(clients, bind(t, d.addr("gateway"), fmt.Sprint("client", i)))
		clients[i].submit(fmt.Sprint("client", i), each)
	}
	trial.Await(t, "all members send", func() bool { return len(p.got()) > 10 })
	for _, d := range fleet {
		d.write("[class.other]\nrate = \"1 messages/s\"\n[listener.other]\nlisten = \"127.0.0.1:0\"\nprotocol = \"smpp\"\nupstream = \"discard:\"\nclass = \"other\"\n")
		d.must("reload")
	}
	first := len(p.got())
	time.Sleep(2 * time.Second)
	if n := len(p.got()) - first; n > 2*rate+members || n == 0 {
		t.Errorf("%d messages have left in 2 s after the reload, and the limit is %d", n, 2*rate)
	}
	for _, e := range clients {
		for e.answered < each {
			e.read()
		}
		e.Close()
	}
	trial.Await(t, "the members have left the store", func() bool { return store.Do("ZCARD", "shaper:{acme}:members") == int64(0) })
}
