package conn

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// Addresses of ours in these tests.
var (
	ourOne = netip.MustParseAddr("192.0.2.1")
	ourTwo = netip.MustParseAddr("192.0.2.2")
	ourSix = netip.MustParseAddr("fd00::1")
)

// binding is a policy with listener "l", which leaves from some addresses. lines are further
// lines of its class, and more those of the listener.
func binding(to, rate, lines string, from []netip.Addr, more ...string) string {
	return "[class.c]\nrate = \"" + rate + "\"\n" + lines + "\n" +
		fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nclass = \"c\"\nupstream = [%q]\nbind = [\"%s\"]\n", to, strings.Join(texts(from), `", "`)) + strings.Join(more, "\n") + "\n"
}

func texts(all []netip.Addr) (text []string) {
	for _, a := range all {
		text = append(text, a.String())
	}
	return text
}

// arrival is a connection at an upstream: when, and where it comes from.
type arrival struct {
	from netip.Addr
	at   time.Duration // since began
	conn tcpConn
}

// arrivals notes n connections to come.
func arrivals(t *testing.T, conns <-chan tcpConn, began time.Time, n int) (all []arrival) {
	t.Helper()
	for range n {
		c := next(t, conns)
		all = append(all, arrival{addrPortOf(c.RemoteAddr()).Addr(), time.Since(began), c})
	}
	return all
}

// At a provider that counts connections by address, two addresses of 20 connections a second
// reach 40, and none of them has a short gap.
func TestBindDoublesTheRate(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := run(t, binding(to, "20 connections/s", `per = "bind"`, []netip.Addr{ourOne, ourTwo}))
		began := time.Now()
		for range 81 {
			r.dial("l")
		}
		last := map[netip.Addr]time.Duration{}
		all := arrivals(t, conns, began, 81)
		for _, a := range all {
			if before, known := last[a.from]; known && a.at-before < 50*time.Millisecond {
				t.Errorf("from %v they come at %v and %v", a.from, before, a.at)
			}
			last[a.from] = a.at
		}
		if len(last) != 2 || all[80].at != 2*time.Second {
			t.Errorf("81 connections from %d addresses take %v, want 2s", len(last), all[80].at)
		}
	})
}

// A message leaves in the bucket of the address of its session, and sessions spread over the
// addresses. A rule about messages finds that bucket, too.
func TestBindOfMessages(t *testing.T) {
	for _, rule := range []string{"", "[class.other]\nrate = \"8gbit\"\n[[rule]]\nmethod = \"GET\"\nclass = \"c\"\n"} {
		virtually(t, func(t *testing.T) {
			to, conns := listen(t)
			text := binding(to, "10 messages/s", `per = "bind"`, []netip.Addr{ourOne, ourTwo}, `protocol = "http"`) + rule
			if rule != "" {
				text = strings.Replace(text, `class = "c"`, `class = "other"`, 1)
			}
			r := run(t, text)
			var clients []tcpConn
			for range 4 {
				clients = append(clients, r.dial("l"))
			}
			servers := arrivals(t, conns, time.Now(), 4)
			const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
			for _, c := range clients {
				send(t, c, get)
			}
			began := time.Now()
			left := map[netip.Addr][]time.Duration{}
			for _, s := range servers {
				expect(t, s.conn, get)
			}
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("two messages from each of two addresses take %v, want 100ms", took)
			}
			for _, s := range servers {
				left[s.from] = append(left[s.from], s.at)
			}
			if len(left[ourOne]) != 2 || len(left[ourTwo]) != 2 {
				t.Errorf("the sessions come from %v", left)
			}
		})
	}
}

// Without buckets, sessions leave from one address after the other, and show it.
func TestBindTakesTurns(t *testing.T) {
	virtually(t, func(t *testing.T) {
		to, conns := listen(t)
		r := run(t, binding(to, fast, "", []netip.Addr{ourOne, ourTwo}))
		for i := range 6 {
			r.dial("l")
			got := arrivals(t, conns, time.Now(), 1)[0].from
			if want := []netip.Addr{ourOne, ourTwo}[i%2]; got != want {
				t.Errorf("session %d leaves from %v, want %v", i, got, want)
			}
			synctest.Wait()
			if all := r.Sessions(); all[i].Bind != got.String() {
				t.Errorf("it shows %q", all[i].Bind)
			}
		}
	})
}

// A session leaves from an address of the family of its destination, also after a fail-over, and
// has the bucket of that.
func TestBindOfBothFamilies(t *testing.T) {
	for _, lines := range []string{"", `per = "bind"`} {
		virtually(t, func(t *testing.T) {
			m := memoryOf(t)
			l, err := m.Listen("tcp", "[fd00::9]:7")
			if err != nil {
				t.Fatal(err)
			}
			to, conns := handOver(t, memoryAccepts{l.(*sock.MemoryListener)})
			r := bare(t)
			r.addresses("192.0.2.9:1", to)
			r.reload(binding("test:1", "20 connections/s", lines, []netip.Addr{ourOne, ourTwo, ourSix}))
			for range 2 {
				r.dial("l")
			}
			all := arrivals(t, conns, time.Now(), 2)
			if all[0].from != ourSix || all[1].from != ourSix {
				t.Errorf("they come from %v and %v", all[0].from, all[1].from)
			}
			if gap := all[1].at - all[0].at; gap != 50*time.Millisecond && lines != "" {
				t.Errorf("they come %v after each other", gap)
			}
		})
	}
}

// If an address has no port left, the session leaves from another one, in the bucket of that.
// If none has, the session fails, and all that says why.
func TestBindWithoutPort(t *testing.T) {
	for _, lines := range []string{"", `per = "bind"`} {
		virtually(t, func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, binding(to, "20 connections/s", lines, []netip.Addr{ourOne, ourTwo}))
			memoryOf(t).Refuse(ourOne, sock.ErrNoPort)
			for range 10 {
				r.dial("l")
			}
			all := arrivals(t, conns, time.Now(), 10)
			for i, a := range all {
				if a.from != ourTwo {
					t.Errorf("one leaves from %v", a.from)
				}
				if i > 0 && a.at-all[i-1].at < 50*time.Millisecond {
					t.Errorf("they arrive at %v and %v", all[i-1].at, a.at)
				}
			}
			for _, a := range all {
				a.conn.Close()
			}
			memoryOf(t).Refuse(ourTwo, sock.ErrNoPort)
			before := r.failures(to)[stats.NoPort]
			r.expectRefused("l")
			synctest.Wait()
			if n := r.service("l").stats.Ended[stats.DialFailed].Load(); n != 1 {
				t.Errorf("%d sessions have failed, want 1", n)
			}
			if got := r.failures(to)[stats.NoPort] - before; got != 2 {
				t.Errorf("%d failures are counted, want 2: %v", got, r.failures(to))
			}
			if want := "all ports of 192.0.2.2 are in use"; !strings.Contains(r.log.String(), want) {
				t.Errorf("the log lacks %q: %s", want, r.log)
			}
			memoryOf(t).Refuse(ourOne, nil)
			r.dial("l")
			if a := arrivals(t, conns, time.Now(), 1)[0]; a.from != ourOne {
				t.Errorf("afterwards it leaves from %v", a.from)
			}
			for _, u := range r.Upstreams() {
				if u.Failures != 0 {
					t.Errorf("the upstream is blamed: %+v", u)
				}
			}
		})
	}
}

// If this machine has lost an address of bind, sessions and checks leave from another one, and the
// upstream is not blamed.
func TestBindToALostAddress(t *testing.T) {
	for _, lines := range []string{"", `per = "bind"`} {
		virtually(t, func(t *testing.T) {
			to, conns := listen(t)
			r := run(t, binding(to, "20 connections/s", lines, []netip.Addr{ourOne, ourTwo}, `balance = "round-robin"`))
			lost := fmt.Errorf("bind: %w", unix.EADDRNOTAVAIL)
			memoryOf(t).Refuse(ourOne, lost)
			for range 10 {
				r.dial("l")
			}
			for _, a := range arrivals(t, conns, time.Now(), 10) {
				if a.conn.Close(); a.from != ourTwo {
					t.Errorf("one leaves from %v", a.from)
				}
			}
			synctest.Wait()
			if want := "from 192.0.2.1: bind: cannot assign"; !strings.Contains(r.log.String(), want) {
				t.Errorf("the log lacks %q: %s", want, r.log)
			}
			for _, u := range r.Upstreams() {
				if u.Failures != 0 {
					t.Errorf("the upstream is blamed: %+v", u)
				}
			}
			over, connect := netip.Addr{}, r.connectFrom
			r.connectFrom = func(ctx context.Context, from sock.Local, to netip.AddrPort) (net.Conn, error) {
				if over = from.Addr; over == ourOne {
					return nil, lost
				}
				return connect(ctx, from, to)
			}
			c, err := r.dialCheck(t.Context(), r.service("l").terms.Load(), to, netip.MustParseAddrPort(to))
			if err != nil || over != ourTwo {
				t.Fatalf("a check leaves from %v: %v", over, err)
			}
			c.Close()
			next(t, conns).Close()
		})
	}
}

// Sessions remember for some seconds which address of bind is lost. So they spread over the others, none
// waits for the bucket of the lost one, and only one in that time tries it.
func TestLostAddressIsLeftOut(t *testing.T) {
	virtually(t, func(t *testing.T) {
		three := netip.MustParseAddr("192.0.2.3")
		for _, lines := range []string{"", `per = "bind"`} {
			to, conns := listen(t)
			r := run(t, binding(to, "1000 connections/s", lines, []netip.Addr{ourOne, ourTwo, three}))
			memoryOf(t).Refuse(ourOne, unix.EADDRNOTAVAIL)
			from := map[netip.Addr]int{}
			for range 13 {
				r.dial("l")
				from[arrivals(t, conns, time.Now(), 1)[0].from]++
			}
			if diff := from[ourTwo] - from[three]; diff < -1 || diff > 1 {
				t.Errorf("%q: the sessions leave from %v", lines, from)
			}
			if got := r.failures(to)[stats.Unfit]; got != 1 {
				t.Errorf("%q: %d sessions have tried the lost address", lines, got)
			}
			memoryOf(t).Refuse(ourOne, nil)
			time.Sleep(lostFor) // in virtual time
			for range 3 {
				r.dial("l")
				from[arrivals(t, conns, time.Now(), 1)[0].from]++
			}
			if from[ourOne] == 0 {
				t.Errorf("%q: when it is back, no session leaves from it: %v", lines, from)
			}
		}
	})
}

// Sessions of datagrams leave from another address, too, and say why. If none is left, that is logged.
func TestDatagramsFromALostAddress(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	to := upstream.LocalAddr().String()
	lines := func(bind string) string {
		return class("c", fast, `per = "bind"`) + listener("l", "udp", to, "c", "bind = "+bind)
	}
	r := run(t, lines(`["192.0.2.1", "127.0.0.2"]`))
	for range 3 {
		send(t, dialUDP(t, r.addr("l")), "x")
		if from := expectDatagram(t, upstream, "x"); from.Addr() != netip.MustParseAddr("127.0.0.2") {
			t.Errorf("one comes from %v", from)
		}
	}
	counted := r.failures(to)[stats.Unfit]
	if counted == 0 {
		t.Error("no failure is counted")
	}
	if want := "failed over to another address"; !strings.Contains(r.log.String(), want) || !strings.Contains(r.log.String(), "from 192.0.2.1: bind") {
		t.Errorf("the log lacks %q: %s", want, r.log)
	}
	r.reload(lines(`["192.0.2.1"]`))
	send(t, dialUDP(t, r.addr("l")), "x")
	trial.Await(t, "the log says why", func() bool {
		return strings.Contains(r.log.String(), "no upstream could be reached") && r.failures(to)[stats.Unfit] > counted
	})
}

// losesForLong makes a listener leave out addresses of bind for longer than any test takes, and says whose
// turn it is of those towards IPv4.
func (sv *service) losesForLong(turn uint32, lost ...netip.Addr) {
	sv.lost.mu.Lock()
	defer sv.lost.mu.Unlock()
	sv.turns[1].Store(turn)
	sv.lost.until = map[netip.Addr]time.Time{}
	for _, from := range lost {
		sv.lost.until[from] = time.Now().Add(time.Hour)
	}
}

// A session of datagrams tries each address of bind once, also if only one was not known to be lost, whosever
// turn it is.
func TestDatagramsTryEachAddress(t *testing.T) {
	to := bindUDP(t, "127.0.0.1:0").LocalAddr().String()
	foreign := [2]netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")}
	r := run(t, class("c", fast)+listener("l", "udp", to, "c", fmt.Sprintf("bind = [%q, %q]", foreign[0], foreign[1])))
	for turn := range uint32(2) {
		r.service("l").losesForLong(turn, foreign[0])
		counted, logged := r.failures(to)[stats.Unfit], len(r.log.String())
		send(t, dialUDP(t, r.addr("l")), "x")
		trial.Await(t, "the session has failed", func() bool { return strings.Contains(r.log.String()[logged:], unreachable.String()) })
		if n := r.failures(to)[stats.Unfit] - counted; n != 2 {
			t.Errorf("turn %d: %d failures are counted, want 2", turn, n)
		}
		for _, from := range foreign {
			if log := r.log.String()[logged:]; strings.Count(log, "from "+from.String()) != 1 {
				t.Errorf("turn %d: %v is not there once: %s", turn, from, log)
			}
		}
	}
}

// A lost address is logged, however the session fares from the next one.
func TestLostAddressIsLogged(t *testing.T) {
	const beyond = "198.51.100.9:7" // not from the loopback device
	r := run(t, class("c", fast)+listener("l", "udp", beyond, "c", `bind = ["198.51.100.1", "127.0.0.2"]`))
	send(t, dialUDP(t, r.addr("l")), "x")
	trial.Await(t, "the session has failed", func() bool { return r.service("l").stats.Ended[stats.DialFailed].Load() == 1 })
	if log := r.log.String(); !strings.Contains(log, "from 198.51.100.1: bind") {
		t.Errorf("the log is %s", log)
	}
}

// A policy in the shadow chooses among its own addresses.
func TestBindInShadow(t *testing.T) {
	p := parse(t, binding("192.0.2.9:1", "20 connections/s", `per = "bind"`, []netip.Addr{ourTwo, ourSix}))
	trial := shaper.NewTrial(time.Now(), p.Classes)
	s := &shadow{routes: routes{policy.Compile(p), map[string]*shaper.Class{"c": trial.Classes()[0]}}, trial: trial,
		binds: map[string][]netip.Addr{"l": p.Listeners[0].Bind}}
	to := netip.MustParseAddrPort("192.0.2.9:1")
	for _, c := range []struct{ from, want netip.Addr }{{ourOne, ourTwo}, {ourTwo, ourTwo}, {ourSix, ourSix}, {netip.Addr{}, ourTwo}} {
		if got := s.withBind(policy.Conn{Listener: "l", Destination: to, Bind: c.from}).Bind; got != c.want {
			t.Errorf("from %v it leaves from %v there, want %v", c.from, got, c.want)
		}
	}
	var none *shadow
	if got := none.withBind(policy.Conn{Bind: ourOne}).Bind; got != ourOne {
		t.Errorf("without a shadow it leaves from %v", got)
	}
}
