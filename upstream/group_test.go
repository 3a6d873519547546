package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"shaper/policy"
	"shaper/tests/trial"
	"shaper/unit"
)

// world is the network of a test: which addresses answer, and who was asked when.
type world struct {
	mu    sync.Mutex // guards the fields below
	dead  map[string]bool
	asked map[string]int
	serve func(c net.Conn) // what answers; nil: nothing
}

func (w *world) dial(_ context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[to.String()]++
	if w.dead[to.String()] {
		return nil, unix.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	serve := w.serve
	if serve == nil {
		serve = func(c net.Conn) { c.Close() }
	}
	go serve(theirs)
	return ours, nil
}

func (w *world) kill(dead bool, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addrs {
		w.dead[a] = dead
	}
}

func (w *world) isDead(addr string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[addr]
}

// stateOf returns the state of a target.
func stateOf(t *Target) State {
	t.group.mu.Lock()
	defer t.group.mu.Unlock()
	return t.state
}

func (w *world) checks(addr string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[addr]
}

// inWorld runs a test of a group in virtual time.
func inWorld(t *testing.T, test func(w *world, g *Group, f *fakeNames, log *trial.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, f, log := &world{dead: map[string]bool{}, asked: map[string]int{}}, &fakeNames{}, &trial.Log{}
		logger := slog.New(slog.NewTextHandler(log, nil))
		names := NewNames(f.lookup, logger)
		ctx, cancel := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		g := NewGroup(GroupConfig{Names: names, Log: logger, Dial: w.dial, Ctx: ctx, Wait: &wait})
		defer wait.Wait()
		defer names.Close()
		defer cancel()
		test(w, g, f, log)
	})
}

// start puts the upstreams of a listener in force, and lets the checks begin.
func start(g *Group, l *policy.Listener) *Set {
	s := g.Set(l)
	g.Start()
	return s
}

// three is a listener with three upstreams.
func three(balance policy.Balance, weights ...int) *policy.Listener {
	return &policy.Listener{Name: "l", Balance: balance, Upstream: []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"}, Weights: weights}
}

// choose begins a session, which reaches the first upstream that is not dead. It returns where it
// is, and how many were tried in vain.
func choose(w *world, s *Set) (t *Target, failed int) {
	walk := s.Walk()
	for walk.Next(time.Now()) {
		addrs, known := walk.Known()
		if !known {
			continue
		}
		for _, at := range walk.Arrange(time.Now(), addrs) {
			t := walk.Take(at)
			if !w.isDead(at.String()) {
				return walk.Keep(), failed
			}
			t.Failed(time.Now(), unix.ECONNREFUSED)
			failed++
		}
	}
	return nil, failed
}

// shares returns how many of n sessions each upstream gets, as text.
func shares(w *world, s *Set, n int) string {
	counts := make([]int, len(s.entries))
	for range n {
		if t, _ := choose(w, s); t != nil {
			counts[slices.Index(s.entries, t.entry)]++
		}
	}
	return strings.Trim(fmt.Sprint(counts), "[]")
}

// Each balance gives each upstream its share.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		balance policy.Balance
		weights []int
		want    string
	}{
		{policy.InOrder, nil, "600 0 0"},
		{policy.RoundRobin, nil, "200 200 200"},
		{policy.RoundRobin, []int{1, 2, 3}, "100 200 300"},
		{policy.LeastConnections, nil, "200 200 200"},
		{policy.LeastConnections, []int{1, 2, 3}, "100 200 300"},
	} {
		inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
			if got := shares(w, start(g, three(c.balance, c.weights...)), 600); got != c.want {
				t.Errorf("%s %v: %s, want %s", c.balance, c.weights, got, c.want)
			}
		})
	}
}

// Sessions go to where the fewest are, for its weight, whatever ends and begins.
func TestLeastLoad(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		g := NewGroup(GroupConfig{Names: NewNames(nil, slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler), Ctx: t.Context()})
		balance := rapid.SampledFrom([]policy.Balance{policy.LeastConnections, policy.LeastInFlight}).Draw(r, "balance")
		s := start(g, three(balance, rapid.SliceOfN(rapid.IntRange(1, 5), 3, 3).Draw(r, "weights")...))
		load := func(t *Target) float64 {
			n := t.sessions.Load()
			if balance == policy.LeastInFlight {
				n = t.inFlight.Load()
			}
			return float64(n+1) / float64(t.entry.weight)
		}
		var open []*Target
		for range rapid.IntRange(1, 50).Draw(r, "steps") {
			if len(open) > 0 && rapid.Bool().Draw(r, "ends") {
				i := rapid.IntRange(0, len(open)-1).Draw(r, "which")
				open[i].AddInFlight(-1)
				open[i].Quit()
				open = slices.Delete(open, i, i+1)
				continue
			}
			least, loads := math.Inf(1), map[*Target]float64{}
			for _, e := range s.entries {
				loads[e.targets[0]] = load(e.targets[0])
				least = min(least, loads[e.targets[0]])
			}
			walk := s.Walk()
			if walk.Next(time.Now()); loads[walk.target] > least {
				r.Fatalf("a session goes to a load of %v, and the least is %v", loads[walk.target], least)
			}
			t := walk.Keep()
			t.AddInFlight(1)
			open = append(open, t)
		}
		for _, t := range open {
			t.AddInFlight(-1)
			t.Quit()
		}
		for _, e := range s.entries {
			if t := e.targets[0]; t.sessions.Load() != 0 || t.inFlight.Load() != 0 {
				r.Fatalf("all have ended, and %d sessions with %d requests are counted", t.sessions.Load(), t.inFlight.Load())
			}
		}
	})
}

// A dead upstream among three costs one failed connection. It comes back by itself when it
// answers again, with less than its share at first.
func TestDeadUpstreamCostsOneConnection(t *testing.T) {
	for _, l := range []*policy.Listener{three(policy.RoundRobin), three(policy.LeastConnections), {Name: "l", Balance: policy.InOrder, Health: policy.DefaultHealth, Upstream: three("").Upstream}} {
		inWorld(t, func(w *world, g *Group, _ *fakeNames, log *trial.Log) {
			s := start(g, l)
			w.kill(true, "192.0.2.1:1")
			failed := 0
			for range 1000 {
				t, n := choose(w, s)
				t.Quit()
				failed += n
				time.Sleep(100 * time.Millisecond)
			}
			if failed > 1 {
				t.Errorf("%s: %d connections have failed", l.Balance, failed)
			}
			w.kill(false, "192.0.2.1:1")
			back := time.Now()
			for stateOf(s.entries[0].targets[0]) != Up {
				time.Sleep(time.Second)
				if time.Since(back) > 11*time.Second {
					t.Fatalf("%s: it is not back after %v", l.Balance, time.Since(back))
				}
			}
			if l.Balance == policy.RoundRobin {
				share := func() (n int) {
					fmt.Sscan(shares(w, s, 210), &n)
					return n
				}
				if n := share(); n < 8 || n > 12 {
					t.Errorf("at first it gets %d of 210", n)
				}
				time.Sleep(slowStart)
				if n := share(); n < 69 || n > 71 {
					t.Errorf("then it gets %d of 210", n)
				}
			}
			if got := log.String(); strings.Count(got, "an upstream is ejected")+strings.Count(got, "an upstream is down") == 0 || strings.Count(got, "an upstream is back") != 1 {
				t.Errorf("%s: the log is\n%s", l.Balance, got)
			}
			before := w.checks("192.0.2.1:1")
			time.Sleep(time.Minute)
			if more := w.checks("192.0.2.1:1") - before; more > 0 && l.Health == (policy.Health{}) {
				t.Errorf("%s: %d checks of one that is up", l.Balance, more)
			}
		})
	}
}

// An upstream of datagrams cannot be asked. One that is ejected is tried again after as long as others take to come back, and
// after twice as long each time that the try is refused; after as long as at first when it has answered, or was not refused for
// long.
func TestEjectedUpstreamOfDatagramsIsTriedAgain(t *testing.T) {
	inWorld(t, func(w *world, g *Group, _ *fakeNames, log *trial.Log) {
		l := three(policy.RoundRobin)
		l.Protocol = policy.UDP
		of := start(g, l).entries[0].targets[0]
		w.kill(true, "192.0.2.1:1") // no connection can be made there
		refuse := func(most time.Duration) {
			of.Failed(time.Now(), unix.ECONNREFUSED)
			began := time.Now()
			for stateOf(of) != Up {
				if time.Sleep(time.Second); time.Since(began) > time.Hour {
					t.Fatal("it is not tried again")
				}
			}
			if took := time.Since(began); took > most+time.Second || took < most*8/10-time.Second {
				t.Errorf("it is tried again after %v, want %v", took, most)
			}
		}
		for _, most := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			refuse(most * time.Second)
			time.Sleep(time.Minute) // nothing comes for a while
		}
		of.Answered()
		refuse(10 * time.Second)
		refuse(20 * time.Second)
		time.Sleep(2 * time.Hour)
		refuse(10 * time.Second)
		if n := w.checks("192.0.2.1:1"); n > 0 {
			t.Errorf("%d connections were tried", n)
		}
		if got := log.String(); strings.Contains(got, "is back") || strings.Count(got, "an upstream is tried again") != 10 || strings.Count(got, "an upstream is ejected") != 10 {
			t.Errorf("the log is\n%s", got)
		}
	})
}

// An upstream of datagrams that answers a session it still has is there again: it is tried after the next checks, not when the
// pause is over.
func TestAnswerEndsThePauseOfAnUpstreamOfDatagrams(t *testing.T) {
	inWorld(t, func(_ *world, g *Group, _ *fakeNames, _ *trial.Log) {
		l := three(policy.RoundRobin)
		l.Protocol = policy.UDP
		of := start(g, l).entries[0].targets[0]
		eject := func() { of.Failed(time.Now(), unix.ECONNREFUSED) }
		away := func() (took time.Duration) {
			for began := time.Now(); stateOf(of) != Up; took = time.Since(began) {
				time.Sleep(time.Second)
			}
			return took
		}
		for range 6 {
			eject()
			away()
		}
		eject()
		time.Sleep(time.Minute)
		if got := stateOf(of); got != Ejected {
			t.Fatalf("after a minute of its pause it is %v", got)
		}
		of.Answered()
		if took, most := away(), time.Duration(policy.DefaultHealth.Every)+time.Second; took > most {
			t.Errorf("it has answered, and is tried again %v later, want at most %v", took, most)
		}
		eject()
		if took := away(); took > 11*time.Second {
			t.Errorf("ejected again, it is tried after %v, want 10 s as after any answer", took)
		}
	})
}

// Where clients choose the addresses, an answer counts for all of them, as sessions and failures do.
func TestAnswerCountsWhereFailuresDo(t *testing.T) {
	all := &Target{}
	one := &Target{total: all}
	one.Answered()
	if !all.answers.Load() || one.answers.Load() {
		t.Errorf("the address has the answer: %v, all of them: %v", one.answers.Load(), all.answers.Load())
	}
}

// Sessions eject at most half of the upstreams. When all are away, all are tried.
func TestAtMostHalfIsEjected(t *testing.T) {
	for n := 1; n <= 6; n++ {
		inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
			l := &policy.Listener{Name: "l", Balance: policy.RoundRobin}
			for i := range n {
				l.Upstream = append(l.Upstream, fmt.Sprintf("192.0.2.%d:1", i+1))
			}
			s := start(g, l)
			w.kill(true, l.Upstream...)
			ejected := 0
			if _, failed := choose(w, s); failed != n {
				t.Errorf("of %d, %d are tried", n, failed)
			}
			for _, e := range s.entries {
				if stateOf(e.targets[0]) == Ejected {
					ejected++
				}
			}
			if ejected != n/2 {
				t.Errorf("of %d, %d are ejected", n, ejected)
			}
		})
	}
}

// Addresses that no session can get do not count as ones that stay: those of a family that bind does not
// have, and those that the DNS has dropped while sessions are there.
func TestOnlyAddressesOfUseStay(t *testing.T) {
	both := func(host string) []Address {
		four, six := netip.MustParseAddrPort("192.0.2."+host+":1"), netip.MustParseAddrPort("[2001:db8::"+host+"]:1")
		return []Address{{AddrPort: four}, {AddrPort: six}}
	}
	for name, c := range map[string]struct {
		bind  []netip.Addr
		later int // how many addresses each upstream has in the end
	}{
		"of another family": {[]netip.Addr{netip.MustParseAddr("192.0.2.100")}, 2},
		"dropped":           {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
				var has atomic.Int64
				has.Store(2)
				g.Names.Use(func(_ context.Context, upstream string, _ []Address) (Answer, error) {
					return Answer{both(upstream[:1])[:has.Load()], time.Second}, nil
				})
				s := start(g, &policy.Listener{Name: "l", Balance: policy.RoundRobin, Upstream: []string{"1:1", "2:1"}, Bind: c.bind})
				time.Sleep(time.Minute)
				var four []*Target
				for _, e := range s.entries {
					g.mu.Lock()
					g.renew(e)
					for _, one := range e.targets {
						one.sessions.Add(1)
					}
					four = append(four, e.targets[0])
					g.mu.Unlock()
				}
				has.Store(int64(c.later))
				time.Sleep(time.Minute)
				for _, one := range four {
					one.Failed(time.Now(), unix.ECONNREFUSED)
				}
				if first, second := stateOf(four[0]), stateOf(four[1]); first != Ejected || second != Up {
					t.Errorf("they are %v and %v, and one of the two has to stay", first, second)
				}
			})
		})
	}
}

// An address that the listener cannot dial from its own is not up.
func TestAddressOfAnotherFamilyIsNotUp(t *testing.T) {
	inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
		g.Names.Use(func(context.Context, string, []Address) (Answer, error) {
			return Answer{[]Address{{AddrPort: netip.MustParseAddrPort("192.0.2.1:1")}, {AddrPort: netip.MustParseAddrPort("[2001:db8::1]:1")}}, time.Minute}, nil
		})
		l := &policy.Listener{Name: "l", Upstream: []string{"x:1"}, Bind: []netip.Addr{netip.MustParseAddr("192.0.2.100")}, Health: policy.DefaultHealth}
		s := start(g, l)
		w.kill(true, "192.0.2.1:1")
		time.Sleep(time.Minute)
		for i, want := range []string{"down", "unusable"} {
			if one := s.Read(time.Now())[i]; one.State != want || one.IsUp() {
				t.Errorf("%s is %s, want %s", one.Address, one.State, want)
			}
		}
	})
}

// Whoever only reads an upstream, such as a scrape of metrics, leaves no target for each address that its name has had.
// One that has a session stays.
func TestReadForgetsAddresses(t *testing.T) {
	inWorld(t, func(_ *world, g *Group, f *fakeNames, _ *trial.Log) {
		s := start(g, &policy.Listener{Name: "l", Upstream: []string{"x:1"}})
		f.answers("192.0.2.1:1", time.Second)
		addrs, err := g.Names.Find(context.Background(), "x:1")
		if err != nil {
			t.Fatal(err)
		}
		w := s.Walk()
		w.Next(time.Now())
		w.Take(addrs[0])
		for i := range 100 {
			f.answers(fmt.Sprintf("192.0.2.%d:1", 2+i), time.Second)
			time.Sleep(2 * time.Second)
			s.Read(time.Now())
		}
		if all := s.entries[0].targets; len(all) != 2 || all[0] != w.Target() {
			t.Errorf("the upstream has %d targets, want the one with a session and the last one", len(all))
		}
		w.Quit()
		if s.Read(time.Now()); len(s.entries[0].targets) != 1 {
			t.Error("the target stays without its session")
		}
	})
}

// What is our own fault ejects nobody.
func TestOwnFaultsEjectNobody(t *testing.T) {
	inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
		s := start(g, three(policy.RoundRobin))
		target, _ := choose(w, s)
		for _, err := range []error{ErrLoop, ErrFamily, unix.EMFILE, unix.EADDRNOTAVAIL, &LookupError{errors.New("no such host")}, &HandshakeError{os.NewSyscallError("dup", unix.EMFILE)}} {
			target.Failed(time.Now(), err)
		}
		if stateOf(target) != Up {
			t.Errorf("it is %v", stateOf(target))
		}
		for _, err := range []error{ErrSilent, ErrTimeout, &HandshakeError{io.EOF}, unix.ECONNRESET, unix.EHOSTUNREACH} {
			if !TellsOfTarget(err) {
				t.Errorf("%v tells nothing of the address", err)
			}
		}
	})
}

// Checks take an upstream out after fall failures and bring it back after rise successes. They
// come at their interval.
func TestChecksRiseAndFall(t *testing.T) {
	inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
		l := three(policy.RoundRobin)
		l.Health = policy.Health{Every: unit.Duration(2 * time.Second), Timeout: unit.Duration(time.Second), Rise: 3, Fall: 4}
		s := start(g, l)
		of := s.entries[0].targets[0]
		state := func() State {
			synctest.Wait()
			return stateOf(of)
		}
		time.Sleep(time.Minute)
		if n := w.checks("192.0.2.1:1"); n < 30 || n > 36 {
			t.Errorf("%d checks in a minute, every 2 s", n)
		}
		w.kill(true, "192.0.2.1:1")
		before := w.checks("192.0.2.1:1")
		for state() == Up {
			time.Sleep(100 * time.Millisecond)
		}
		if n := w.checks("192.0.2.1:1") - before; n != 4 {
			t.Errorf("it falls after %d checks", n)
		}
		w.kill(false, "192.0.2.1:1")
		before = w.checks("192.0.2.1:1")
		for state() != Up {
			time.Sleep(100 * time.Millisecond)
		}
		if n := w.checks("192.0.2.1:1") - before; n != 3 {
			t.Errorf("it rises after %d checks", n)
		}
		g.Rest()
		before = w.checks("192.0.2.1:1")
		time.Sleep(time.Minute)
		if n := w.checks("192.0.2.1:1") - before; n != 0 {
			t.Errorf("%d checks after the listener has gone", n)
		}
	})
}

// How each kind of check judges what it gets. Its reason, which is logged, has no key that stands in a query.
func TestChecks(t *testing.T) {
	answer := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			request, err := http.ReadRequest(bufio.NewReader(c))
			if err == nil && request.URL.Path == "/up" && request.Host == "192.0.2.1:1" {
				io.WriteString(c, text)
			}
			c.Close()
		}
	}
	pdu := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			var asked [16]byte
			io.ReadFull(c, asked[:])
			if string(asked[:]) == "\x00\x00\x00\x10\x00\x00\x00\x15\x00\x00\x00\x00\x00\x00\x00\x01" {
				io.WriteString(c, text)
			}
			c.Close()
		}
	}
	overHTTP, overSMPP := policy.Health{HTTP: `/up?key="s3cret`}, policy.Health{SMPP: true}
	for name, c := range map[string]struct {
		health policy.Health
		serve  func(net.Conn)
		well   bool
	}{
		"tcp":                {policy.Health{TCP: true}, nil, true},
		"http 200":           {overHTTP, answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), true},
		"http 302":           {overHTTP, answer("HTTP/1.1 302 Found\r\n\r\n"), true},
		"http 503":           {overHTTP, answer("HTTP/1.1 503 No\r\n\r\n"), false},
		"http nothing":       {overHTTP, answer(""), false},
		"http another":       {overHTTP, answer("220 smtp.example\r\n"), false},
		"http echo":          {overHTTP, answer("GET /up?key=\"s3cret HTTP/1.1\r\n"), false},
		"http echoed":        {overHTTP, answer("HTTP/1.1 404 /up?key=\"s3cret is not here\r\n\r\n"), false},
		"http silence":       {overHTTP, func(net.Conn) {}, false},
		"smpp response":      {overSMPP, pdu("\x00\x00\x00\x10\x80\x00\x00\x15\x00\x00\x00\x00\x00\x00\x00\x01"), true},
		"smpp nack":          {overSMPP, pdu("\x00\x00\x00\x10\x80\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01"), true},
		"smpp request":       {overSMPP, pdu("\x00\x00\x00\x10\x00\x00\x00\x15\x00\x00\x00\x00\x00\x00\x00\x01"), false},
		"smpp another":       {overSMPP, pdu("HTTP/1.1 400 Bad Request\r\n"), false},
		"smpp cut":           {overSMPP, pdu("\x00\x00\x00\x10"), false},
		"smpp false lengths": {overSMPP, pdu("\xff\xff\xff\xff\x80\x00\x00\x15\x00\x00\x00\x00\x00\x00\x00\x01"), false},
	} {
		inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
			w.serve = c.serve
			s := start(g, three(policy.RoundRobin))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := g.ask(ctx, s.entries[0].targets[0], c.health); (err == nil) != c.well || strings.Contains(fmt.Sprint(err), "s3cret") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A service leads to the hosts of its lowest priority by their weights, and to others only if
// none of these is up.
func TestServices(t *testing.T) {
	inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
		var addrs []Address
		for i, weight := range []uint16{30, 10, 1} {
			at := netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:1", i+1))
			addrs = append(addrs, Address{AddrPort: at, Host: at.String(), Priority: uint16(i / 2), Weight: weight})
		}
		g.Names.Use(func(context.Context, string, []Address) (Answer, error) { return Answer{addrs, time.Minute}, nil })
		l := &policy.Listener{Name: "l", Balance: policy.InOrder, Upstream: []string{"srv:_x._tcp.example"}}
		s := start(g, l)
		synctest.Wait()
		count := func() string {
			counts := map[string]int{}
			for range 400 {
				if t, _ := choose(w, s); t != nil {
					counts[t.address.String()]++
				}
			}
			return fmt.Sprint(counts)
		}
		if got := count(); got != "map[192.0.2.1:1:300 192.0.2.2:1:100]" {
			t.Error(got)
		}
		w.kill(true, "192.0.2.1:1", "192.0.2.2:1")
		if got := count(); got != "map[192.0.2.3:1:400]" {
			t.Error(got)
		}
	})
}

// Checks use what the caller makes ready after Set, so none begins before Start; at a reload, too.
func TestChecksAwaitStart(t *testing.T) {
	inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
		l := three(policy.RoundRobin)
		l.Health = policy.DefaultHealth
		for range 2 {
			before := w.checks("192.0.2.1:1")
			s := g.Set(l)
			w.kill(true, "192.0.2.2:1")
			choose(w, s)
			choose(w, s)
			time.Sleep(time.Minute)
			if n := w.checks("192.0.2.1:1") - before; n != 0 {
				t.Fatalf("%d checks before Start", n)
			}
			g.Start()
			time.Sleep(time.Minute)
			if w.checks("192.0.2.1:1") == before {
				t.Error("no check after Start")
			}
		}
	})
}

// A reload keeps what is known of an address.
func TestReloadKeepsState(t *testing.T) {
	inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
		s := start(g, three(policy.RoundRobin))
		w.kill(true, "192.0.2.2:1")
		shares(w, s, 9)
		l := three(policy.RoundRobin)
		slices.Reverse(l.Upstream)
		l.Upstream = append(l.Upstream, "192.0.2.4:1")
		for _, u := range start(g, l).Read(time.Now()) {
			wantState, wantSessions := "up", int64(4)
			switch u.Address {
			case "192.0.2.2:1":
				wantState, wantSessions = "ejected", 0
			case "192.0.2.4:1":
				wantSessions = 0
			}
			if u.State != wantState || u.Sessions < wantSessions || u.Number == 0 {
				t.Errorf("%+v", u)
			}
		}
	})
}

// A name that hangs holds up nobody while another upstream is known.
func TestHangingNameIsLast(t *testing.T) {
	inWorld(t, func(w *world, g *Group, f *fakeNames, _ *trial.Log) {
		f.hang()
		l := &policy.Listener{Name: "l", Balance: policy.RoundRobin, Upstream: []string{"x:1", "192.0.2.1:1"}}
		s := start(g, l)
		for range 100 {
			walk := s.Walk()
			if walk.Next(time.Now()); walk.Upstream() != "192.0.2.1:1" {
				t.Fatal(walk.Upstream())
			}
			walk.Quit()
		}
	})
}

// The upstreams of a policy of today cost nothing: no goroutine, and no allocation.
func TestOrderAllocatesNothing(t *testing.T) {
	g := NewGroup(GroupConfig{Names: NewNames(nil, slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler), Ctx: t.Context()})
	s := start(g, three(policy.InOrder))
	now := time.Now()
	n := testing.AllocsPerRun(100, func() {
		walk := s.Walk()
		walk.Next(now)
		addrs, _ := walk.Known()
		addrs = walk.Arrange(now, addrs)
		walk.Take(addrs[0])
		walk.Keep().Quit()
	})
	if n != 0 || g.checker != nil {
		t.Errorf("%v allocations, checker %v", n, g.checker)
	}
}

// An ejected address that the DNS drops for a while comes back, although a session has kept it.
func TestEjectedAddressComesBackAfterTheDNS(t *testing.T) {
	inWorld(t, func(w *world, g *Group, f *fakeNames, _ *trial.Log) {
		f.answers("192.0.2.1:1", time.Second)
		l := &policy.Listener{Name: "l", Balance: policy.RoundRobin, Upstream: []string{"x:1", "192.0.2.3:1"}}
		s := start(g, l)
		time.Sleep(2 * time.Second)
		held := s.Walk()
		for held.Next(time.Now()) && held.Upstream() != "x:1" {
		}
		w.kill(true, "192.0.2.1:1")
		held.Target().Failed(time.Now(), unix.ECONNREFUSED)
		if got := stateOf(held.Target()); got != Ejected {
			t.Fatalf("it is %v", got)
		}
		f.answers("192.0.2.2:1", time.Second)
		time.Sleep(time.Minute)
		w.kill(false, "192.0.2.1:1")
		f.answers("192.0.2.1:1", time.Second)
		time.Sleep(time.Minute)
		walk := s.Walk()
		walk.Next(time.Now())
		walk.Quit()
		time.Sleep(time.Minute)
		if got := stateOf(held.Target()); got != Up {
			t.Errorf("after it is well for two minutes it is %v", got)
		}
		held.Quit()
	})
}

// What clients choose is one upstream to people, however many addresses they choose.
func TestChosen(t *testing.T) {
	inWorld(t, func(w *world, g *Group, _ *fakeNames, _ *trial.Log) {
		l := &policy.Listener{Name: "l", Mode: policy.SOCKS5}
		s := start(g, l)
		var open []*Target
		for i := range 3 {
			walk := s.Walk()
			if !walk.Next(time.Now()) || walk.Upstream() != Chosen {
				t.Fatal("there is no upstream")
			}
			at := Address{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 1)}
			if target := walk.Take(at); target.Address() != at {
				t.Errorf("the address is %v, want %v", target.Address(), at)
			}
			walk.Target().Failed(time.Now(), unix.ECONNREFUSED)
			open = append(open, walk.Keep())
			if walk.Next(time.Now()) {
				t.Error("there is another upstream")
			}
		}
		open[0].Quit()
		s = start(g, l) // a reload
		if all := s.Read(time.Now()); len(all) != 1 || all[0].Upstream != Chosen || all[0].Address != "" || all[0].Sessions != 2 || all[0].Failures != 3 {
			t.Errorf("the upstreams are %+v", all)
		}
		if n := len(s.entries[0].targets); n != 1 {
			t.Errorf("%d targets are kept", n)
		}
		if s.First().IsValid() {
			t.Error("it has an address")
		}
	})
}
