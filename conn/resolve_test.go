package conn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// question is a lookup of the name "test:1" that waits for its answer.
type question struct {
	answer chan<- []netip.AddrPort // an empty one: there is no such name
	over   <-chan struct{}         // closed when nobody waits for the answer any more
}

func (q question) is(addrs ...string) {
	var all []netip.AddrPort
	for _, addr := range addrs {
		all = append(all, netip.MustParseAddrPort(addr))
	}
	q.answer <- all
}

// awaitEnd waits until the lookup is given up.
func (q question) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-q.over:
	case <-time.After(patience):
		t.Fatal("the lookup goes on")
	}
}

// asked returns the next question.
func asked(t *testing.T, questions <-chan question) question {
	t.Helper()
	select {
	case q := <-questions:
		return q
	case <-time.After(patience):
		t.Fatal("the name is not looked up")
		return question{}
	}
}

// answerAll answers all questions until the test ends. How many there are may depend on who comes
// first.
func answerAll(t *testing.T, questions <-chan question, addrs ...string) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case q := <-questions:
				q.is(addrs...)
			case <-over:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(over)
		wg.Wait()
	})
}

// asks starts a server, and lets the test answer lookups of the name "test:1".
func asks(t *testing.T) (*rig, <-chan question) {
	r, questions := bare(t), make(chan question, 100)
	r.meaning(func(ctx context.Context) ([]netip.AddrPort, error) {
		answer := make(chan []netip.AddrPort, 1)
		questions <- question{answer, ctx.Done()}
		select {
		case addrs := <-answer:
			if len(addrs) == 0 {
				return nil, errors.New("no such host")
			}
			return addrs, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return r, questions
}

// connections returns how many connections a class has let go.
func (r *rig) connections(class string) uint64 {
	return r.sent(class, stats.Upstream).Connections.Load()
}

// look calls f with the session that began first, if there is one. The session's lock is held.
func (r *rig) look(f func(t *tcpSession)) {
	if len(r.sessions.all()) > 0 {
		r.one().do(f)
	}
}

// awaitRetry waits until a session has no descriptor to dial with, and waits for its next try.
func (r *rig) awaitRetry() {
	r.t.Helper()
	trial.Await(r.t, "a session lacks a descriptor", func() (lacks bool) {
		for _, s := range r.sessions.all() {
			s.(*tcpSession).do(func(t *tcpSession) { lacks = lacks || t.stage == connecting && t.dialling.clock.timer != nil })
		}
		return lacks
	})
}

// awaitStage waits until the session that began first is in a stage.
func (r *rig) awaitStage(want stage) {
	r.t.Helper()
	trial.Await(r.t, fmt.Sprintf("the session is in stage %d", want), func() (is bool) {
		r.look(func(t *tcpSession) { is = t.stage == want })
		return is
	})
}

// lookups are the reasons to resolve a name: for the dial, or before that for rules.
var lookups = map[string]string{"": "", "for rules": "[[rule]]\ndestination = \"" + second + "\"\nclass = \"second\"\n" + class("second", fast)}

// If no upstream has an address, the session ends, and the class is not charged.
func TestUnresolvedIsNotCharged(t *testing.T) {
	for name, rules := range lookups {
		t.Run(name, func(t *testing.T) {
			r, questions := asks(t)
			r.reload(strings.NewReplacer(fast, "1 connections/h", "200ms", "1min").Replace(quoted("test:1", "test:1") + rules))
			answerAll(t, questions)
			for range 2 {
				expectReset(t, r.dial("l"))
			}
			r.awaitEnd(stats.DialFailed, 2)
			if n := r.connections("c"); n != 0 {
				t.Errorf("the class is charged for %d connections", n)
			}
			if got := fmt.Sprint(r.failures("test:1")); got != fmt.Sprint(map[stats.Failure]uint64{stats.Unresolved: 4}) {
				t.Errorf("counted: %v", got)
			}
			if got := strings.Count(r.log.String(), "dial test:1: no such host"); got != 4 || !strings.Contains(r.log.String(), unreachable.String()) {
				t.Errorf("the log has %d errors of 4: %s", got, r.log)
			}
		})
	}
}

// The session finds the next upstream before it asks its class, and the class is charged once.
func TestNextUpstreamIsFoundBeforeTheClass(t *testing.T) {
	to, conns := listen(t)
	r, questions := asks(t)
	r.reload(strings.Replace(quoted("test:1", to), fast, "1 connections/h", 1))
	r.dial("l")
	q := asked(t, questions)
	if n := r.connections("c"); n != 0 {
		t.Errorf("the class has let %d go that have no address", n)
	}
	q.is()
	next(t, conns)
	if n := r.connections("c"); n != 1 {
		t.Errorf("the class is charged for %d connections", n)
	}
}

// A name that is resolved after the class has let the connection go holds up nobody. Here the
// upstream before it, one of our own listeners, was not dialled.
func TestHangingSecondNameHoldsUpNobody(t *testing.T) {
	addr, conns := listen(t)
	r, questions := asks(t)
	text := class("c", "1000 connections/s") + listener("sound", "tcp", addr, "c")
	r.reload(text) // now "sound" has its port
	r.reload(text + "[listener.l]\nlisten = \"127.0.0.1:0\"\nclass = \"c\"\nconnect_timeout = \"10s\"\nupstream = [\"" + r.addr("sound") + "\", \"test:1\"]\n")
	const n = 20 // a second for each would exceed connect_timeout
	for range n {
		r.dial("l")
	}
	asked(t, questions) // for all of them
	trial.Await(t, "they wait for the name", func() bool { return len(r.Sessions()) == n })
	for range n {
		r.dial("sound")
		next(t, conns)
	}
	if got := len(r.Sessions()); got != 2*n {
		t.Errorf("%d sessions, want %d: those that wait for the name still do", got, 2*n)
	}
}

// A client that leaves while the name is resolved ends the lookup, and gives up its permit.
func TestClientLeavesDuringResolve(t *testing.T) {
	for name, rules := range lookups {
		for how, leave := range map[string]func(tcpConn){"reset": reset, "fin": func(c tcpConn) { c.Close() }} {
			t.Run(name+" "+how, func(t *testing.T) {
				r, questions := asks(t)
				r.reload(class("c", "1000 connections/s", "max_connections = 1") + listener("l", "tcp", "test:1", "c", `connect_timeout = "1h"`) + rules)
				client := r.dial("l")
				q := asked(t, questions)
				leave(client)
				r.awaitEnd(stats.Aborted, 1)
				q.awaitEnd(t)
				if n, open := r.connections("c"), r.shaper.Class("c").Sessions(); n != 0 || open != 0 {
					t.Errorf("%d connections are charged, and %d permits are taken", n, open)
				}
			})
		}
	}
}

// Shutdown ends sessions that wait for a name.
func TestShutdownDuringResolve(t *testing.T) {
	for name, rules := range lookups {
		t.Run(name, func(t *testing.T) {
			r, questions := asks(t)
			r.reload(class("c", fast) + listener("l", "tcp", "test:1", "c", `connect_timeout = "1h"`) + rules)
			client := r.dial("l")
			q := asked(t, questions)
			if n := r.Shutdown(expired); n != 1 {
				t.Errorf("%d sessions were reset", n)
			}
			q.awaitEnd(t)
			expectReset(t, client)
			r.awaitEnd(stats.Drained, 1)
		})
	}
}

// If a reload removes the class while the name is resolved, the session asks the class of the
// new rules.
func TestReloadDuringResolve(t *testing.T) {
	to, conns := listen(t)
	r, questions := asks(t)
	text := func(name string) string {
		return class(name, "1000 connections/s", "max_connections = 1") + listener("l", "tcp", "test:1", name)
	}
	r.reload(text("c"))
	r.dial("l")
	q := asked(t, questions)
	old := r.shaper.Class("c")
	r.reload(text("d"))
	q.is(to)
	next(t, conns)
	if n := old.Stats.Sent[stats.Upstream].Connections.Load() + uint64(old.Sessions()); n != 0 {
		t.Errorf("%d connections and permits are those of the class that is gone", n)
	}
	if n, open := r.connections("d"), r.shaper.Class("d").Sessions(); n != 1 || open != 1 {
		t.Errorf("%d connections and %d permits are those of the new class", n, open)
	}
}

// The same, if the reload removes the listener, too.
func TestListenerRemovedDuringResolve(t *testing.T) {
	to, conns := listen(t)
	r, questions := asks(t)
	r.reload(class("c", "1000 connections/s") + listener("l", "tcp", "test:1", "c"))
	client := r.dial("l")
	q := asked(t, questions)
	r.reload(class("d", fast) + listener("other", "tcp", policy.Echo, "d")) // which forgets the name
	q.is(to)
	answerAll(t, questions, to) // the session may ask once more, since it had not yet begun to wait
	upstream := next(t, conns)
	send(t, client, "x")
	expect(t, upstream, "x")
	if got := r.Sessions()[0].Class; got != "c" { // rather than go on unlimited
		t.Errorf("the session is in %q", got)
	}
}

// Rules by destination that come into force while the first name is resolved hold for the
// upstream that is then found. The class of the first is not charged.
func TestRulesDuringResolve(t *testing.T) {
	to, conns := listenOn(t, second)
	r, questions := asks(t)
	text := pair("tcp", []string{"test:1", to}, class("first", "1 connections/h"), class("second", "1000 connections/s"))
	without, _, _ := strings.Cut(text, "[[rule]]")
	r.reload(without)
	r.dial("l")
	q := asked(t, questions)
	r.reload(text)
	q.is()
	next(t, conns)
	if first, second := r.connections("first"), r.connections("second"); first != 0 || second != 1 {
		t.Errorf("the classes are charged for %d and %d connections", first, second)
	}
}

// A session keeps its permit while its name is resolved. The next one looks its name up when it
// has a permit.
func TestPermitDuringResolve(t *testing.T) {
	to, conns := listen(t)
	r, questions := asks(t)
	r.reload(class("c", fast, "max_connections = 1") + listener("l", "tcp", "test:1", "c", `connect_timeout = "1h"`))
	first := r.dial("l")
	q := asked(t, questions)
	send(t, r.dial("l"), "second")
	trial.Await(t, "the second waits for the permit", func() bool { return r.shaper.Class("c").Stats.Overlimits.Load() == 1 })
	if len(questions) != 0 || r.shaper.Class("c").Sessions() != 1 {
		t.Error("the second does not wait")
	}
	reset(first)
	trial.Await(t, "the first has ended", func() bool { return len(r.Sessions()) == 1 })
	q.is(to) // the second may have joined the lookup of the first before that ended
	answerAll(t, questions, to)
	expect(t, next(t, conns), "second")
}

// A session that has waited for a permit looks its name up again, since that may lead elsewhere
// by then. Only the class of the address that it dials is charged.
func TestNameMovesDuringTheWait(t *testing.T) {
	near, nearConns := listen(t)
	far, farConns := listenOn(t, second)
	r, questions := asks(t)
	r.ttl.Store(int64(time.Millisecond)) // it is looked up again each second
	r.reload(pair("tcp", []string{"test:1"}, class("first", "1000 connections/s", "max_connections = 1", `overflow = "wait"`), class("second", "1000 connections/s")))
	client := r.dial("l")
	asked(t, questions).is(near)
	upstream := next(t, nearConns)
	send(t, r.dial("l"), "moved")
	trial.Await(t, "the other waits for the permit", func() bool { return r.shaper.Class("first").Stats.Overlimits.Load() == 1 })
	asked(t, questions).is(far)
	asked(t, questions) // now the answer before it is known
	client.Close()
	upstream.Close()
	expect(t, next(t, farConns), "moved")
	if first, second := r.connections("first"), r.connections("second"); first != 1 || second != 1 {
		t.Errorf("the classes are charged for %d and %d connections, want one each", first, second)
	}
}

// A session without a descriptor tries the same address again. It neither looks its name up
// nor asks its class a second time.
func TestResolvedWithoutDescriptors(t *testing.T) {
	to, conns := listen(t)
	r, questions := asks(t)
	r.reload(class("c", "1000 connections/s") + listener("l", "tcp", "test:1", "c", `connect_timeout = "1h"`))
	client := r.dial("l")
	q := asked(t, questions)
	restore := withoutDescriptors(t)
	q.is(to)
	r.awaitRetry()
	restore()
	send(t, client, "x")
	expect(t, next(t, conns), "x")
	if n := r.connections("c"); n != 1 || len(questions) != 0 {
		t.Errorf("it was charged %d times, and asked for its name %d times more", n, len(questions))
	}
	if got := r.failures("test:1"); len(got) != 0 {
		t.Errorf("counted: %v", got)
	}
}

// A session that needs no lookup needs no goroutine: whoever starts it connects it.
func TestLiteralsAreDialledAtOnce(t *testing.T) {
	to, conns := listen(t)
	for _, upstream := range []string{to, policy.Echo, policy.Discard} {
		r := run(t, class("c", "1000 connections/s")+listener("l", "tcp", upstream, "c"))
		client, theirs, err := sock.NewPair()
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		sv := r.service("l")
		sv.gate.tryEnter()
		r.start(client, netip.AddrPort{}, &localAddr{}, sv)
		r.look(func(one *tcpSession) {
			if one.stage < connecting {
				t.Errorf("%s: the session has only come to stage %d", upstream, one.stage)
			}
		})
		if upstream == to {
			next(t, conns)
		}
	}
}

// connect_timeout bounds the lookup and the connect together, without the wait for the class
// between them.
func TestConnectTimeoutOfAName(t *testing.T) {
	const slow = 600 * time.Millisecond
	text := func(rate string) string {
		return class("c", rate, `overflow = "wait"`) + listener("l", "tcp", "test:1", "c", `connect_timeout = "1h"`)
	}
	mute := silent(t)
	r, questions := asks(t)
	r.reload(text("0 connections/s"))
	r.dial("l")
	q := asked(t, questions)
	time.AfterFunc(slow, func() { q.is(mute) }) // a slow name server
	r.awaitStage(opening)
	var remaining time.Duration
	r.look(func(t *tcpSession) { remaining = t.dialling.clock.timeout })
	if remaining > time.Hour-slow {
		t.Errorf("after a lookup of %v, %v of an hour remain", slow, remaining)
	}
	released := time.Now()
	r.reload(text("1000 connections/s"))
	r.awaitStage(connecting)
	r.look(func(one *tcpSession) {
		if by := one.dialling.clock.giveUpAt; by.Before(released.Add(remaining)) {
			t.Errorf("of %v, the wait for the class has taken %v", remaining, released.Add(remaining).Sub(by))
		}
	})
}
