package conn

import (
	"testing"
	"testing/synctest"

	"shaper/policy"
)

// tended is a session of which the registry asks only how often it is checked.
type tended struct {
	session
	turns uint64
}

func (t *tended) turnsBetween() uint64 { return t.turns }

// TestRegistryAwaitsAll has a registry wait until its last session and its last tunnel have ended, and lets nobody in meanwhile.
func TestRegistryAwaitsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r registry
		r.init()
		first, second, tn := &tended{turns: 1}, &tended{turns: 1}, &tunnel{}
		if !r.add(second, 2) || !r.add(first, 1) {
			t.Fatal("it lets no session in")
		}
		if all := r.all(); len(all) != 2 || all[0] != first || all[1] != second {
			t.Errorf("its sessions are %v, want the first one first", all)
		}
		r.close()
		if r.add(&tended{turns: 1}, 3) {
			t.Error("it lets a session in after close")
		}
		r.addTunnel(tn)
		over := false
		go func() {
			r.await()
			over = true
		}()
		for _, end := range []func(){func() { r.remove(1) }, func() { r.remove(2) }, func() { r.removeTunnel(tn) }} {
			synctest.Wait()
			if over {
				t.Fatal("it does not wait for all")
			}
			end()
		}
		synctest.Wait()
		if !over {
			t.Error("it waits, and nothing is left")
		}
	})
}

// TestRegistryIsDue has the janitor check a session of each of some turns, and one whose socket closes.
func TestRegistryIsDue(t *testing.T) {
	var r registry
	r.init()
	seldom, often := &tended{turns: 8}, &tended{turns: 1}
	r.add(seldom, 1)
	r.add(often, 2)
	count := func(of session, stops, closes bool) (n int) {
		for turn := range uint64(8) {
			for _, one := range r.due(nil, turn, stops, closes) {
				if one == of {
					n++
				}
			}
		}
		return n
	}
	if n, all := count(seldom, false, false), count(often, false, false); n != 1 || all != 8 {
		t.Errorf("of 8 turns, it checks the sessions in %d and %d, want 1 and 8", n, all)
	}
	if n := count(seldom, true, false); n != 8 {
		t.Errorf("while the server stops, it checks a session in %d turns of 8", n)
	}
	seldom.turns = 1
	if n, all := count(seldom, false, false), count(seldom, false, true); n != 1 || all != 8 {
		t.Errorf("a session that has become impatient is checked in %d turns of 8, and in %d while its socket closes, want 1 and 8", n, all)
	}
}

// closer is a bound socket of which only close matters.
type closer struct {
	bound
	onClose func()
}

func (c closer) close() { c.onClose() }

// TestNoSessionOnceItStops has a connection become a session while a server that stops closes its sockets.
func TestNoSessionOnceItStops(t *testing.T) {
	r := run(t, forward(policy.Echo, fast))
	entered := false
	r.mu.Lock()
	r.bound[address{}] = closer{onClose: func() {
		if entered = r.sessions.add(&tended{turns: 1}, 1<<40); entered {
			r.sessions.remove(1 << 40)
		}
	}}
	r.mu.Unlock()
	r.Shutdown(expired)
	if entered {
		t.Error("a session begins after the stop has begun")
	}
}
