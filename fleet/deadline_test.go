package fleet

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// joinWith lets a greedy member come whose policy has a deadline.
func (s *sim) joinWith(name string, deadline time.Duration) {
	s.class.Deadline = deadline
	s.join(name).greedy = true
}

// leave lets the first member go.
func (s *sim) leave() {
	m := s.members[0]
	c := m.machine.Leave(m.local())
	s.model.Do(s.stamp(), &c)
	m.asleep = true
	s.members = s.members[1:]
}

// differ runs members with different deadlines while the store loses what it knows, again and again. Others may come between.
func differ(t *testing.T, fault fault, come bool, mutate func(*sim)) *sim {
	s := newSim(t, classNamed(t, "leaky"), 0, 5)
	if mutate != nil {
		mutate(s)
	}
	for i, d := range []time.Duration{maxDeadline, defaultDeadline, maxDeadline} {
		s.joinWith(fmt.Sprint("m", i), d)
	}
	s.run(3 * time.Second)
	for i := range 20 {
		wait, name := time.Duration(s.r.Int64N(int64(600*time.Millisecond))), fmt.Sprint("r", i)
		if come {
			s.leave()
			s.run(wait)
		}
		switch next := []time.Duration{defaultDeadline, maxDeadline}[i/2%2]; {
		case !come:
			fault.begin(s)
		case i%4 == 0: // who comes is the first to ask
			fault.begin(s)
			s.joinWith(name, next)
		default:
			s.joinWith(name, next)
			s.run(wait)
			fault.begin(s)
		}
		s.run(50*time.Millisecond + time.Duration(s.r.Int64N(int64(time.Second))))
		if fault.end != nil {
			fault.end(s)
		}
		s.run(2 * time.Second)
	}
	s.ledger.mark()
	s.run(10 * time.Second)
	return s
}

// TestStoreLostWithDifferentDeadlines loses what the store knows, while some members have a long deadline and others a
// short one. Who asks first fences the others, also a member that has just come. Without the two rules that are for this, the
// ledger objects.
func TestStoreLostWithDifferentDeadlines(t *testing.T) {
	t.Parallel()
	if trial.Raced {
		t.Skip("the simulation has one goroutine")
	}
	mutants := []struct {
		name   string
		mutate func(*sim)
		found  bool
	}{
		{"not mutated", nil, false},
		{"slots reach as far as each policy says", func(s *sim) {
			s.store = func(now Stamp, c *Call) (Reply, error) {
				far, class := *c, *c.Class
				class.Deadline, class.shortest = maxDeadline, 0
				far.Class = &class
				return s.model.Do(now, &far), nil
			}
		}, true},
		{"who has just come fences by its own deadline", func(s *sim) {
			s.store = func(now Stamp, c *Call) (Reply, error) {
				hasty := *c
				hasty.Fence = 0
				return s.model.Do(now, &hasty), nil
			}
		}, true},
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			found := false
			for _, name := range []string{"FLUSHALL", "fail-over at once", "clock set forward"} {
				f := faults[slices.IndexFunc(faults, func(f fault) bool { return f.name == name })]
				for _, come := range []bool{false, true} {
					s := differ(t, f, come, m.mutate)
					err := s.ledger.gaps()
					if err != nil && !m.found {
						t.Errorf("%s, others come %v: %v", name, come, err)
					}
					if used := s.ledger.used(); used < 0.97 && !come && !m.found {
						t.Errorf("%s: %.1f %% of the limit is used after it", name, 100*used)
					}
					if found = found || err != nil; found && m.found {
						return
					}
				}
			}
			if found != m.found {
				t.Errorf("the ledger objects: %v", found)
			}
		})
	}
}

// A server that has lost everything is asked by the member with the shorter deadline. What the other member has got does not
// come again. Both hear of the deadlines, and in the list of the members stands who has which.
func TestServerLostWithDifferentDeadlines(t *testing.T) {
	t.Parallel()
	srv := fleettest.StartRedis(t)
	store, err := NewStore(Config{Addresses: []string{srv.Addr}, Deadline: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	seq := int64(0)
	do := func(op Op, member string, deadline time.Duration) Reply {
		t.Helper()
		seq++
		class := Class{Name: "acme", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond, Deadline: deadline}
		r, err := store.Do(context.Background(), &Call{Op: op, Class: &class, Member: member, Seq: seq, Number: seq, Wanted: 10, Need: 1, Grace: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	do(Beat, "short", defaultDeadline)
	time.Sleep(3 * maxDeadline) // the fences of a server that is new
	last := Stamp(0)
	for r := do(Take, "long", maxDeadline); r.Units > 0; r = do(Take, "long", maxDeadline) {
		last = r.First.Add(time.Duration(r.Units) * time.Millisecond)
		if want := int64(defaultDeadline / time.Microsecond); r.Shortest != want || r.Longest != 5*want {
			t.Errorf("the deadlines are %d and %d", r.Shortest, r.Longest)
		}
	}
	all, err := store.Peers(context.Background(), "acme")
	if err != nil || len(all) != 2 || all[0].Deadline != maxDeadline || all[1].Deadline != defaultDeadline {
		t.Errorf("%v: the members are %+v", err, all)
	}
	srv.Do("FLUSHALL")
	r := do(Take, "short", defaultDeadline)
	for ; r.Units == 0; r = do(Take, "short", defaultDeadline) {
		time.Sleep(time.Millisecond)
	}
	if r.First < last {
		t.Errorf("the slot %v before the end of those that were granted is granted again", last.Sub(r.First))
	}
}

// within runs the fleet for a time, and judges the sum of what has left.
func (s *sim) within(what string, d time.Duration) {
	s.t.Helper()
	s.run(d)
	if err := s.ledger.sum(float64(len(s.members) + 1)); err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

// TestShareOfANewcomer has a member with a short deadline come, and soon after that nobody reaches the store. What the others
// got before with a longer one is over when it begins to use its share.
func TestShareOfANewcomer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		s := newSim(t, classNamed(t, "fast"), 0, seed)
		for i := range 2 {
			s.joinWith(fmt.Sprint("old", i), maxDeadline)
		}
		s.run(1500*time.Millisecond + time.Duration(s.r.IntN(200))*time.Millisecond)
		s.joinWith("new", defaultDeadline)
		for s.members[2].machine.link.share == 0 {
			s.run(time.Millisecond)
		}
		s.down = true
		s.within(fmt.Sprint("seed ", seed), 500*time.Millisecond)
	}
}

// TestShareAfterTheShortest has the member with the short deadline leave while one that has not heard of that does not
// reach the store. The others have got slots that are as far ahead as their deadlines say.
func TestShareAfterTheShortest(t *testing.T) {
	for seed := range uint64(10) {
		s := newSim(t, classNamed(t, "fast"), 0, seed)
		for i, d := range []time.Duration{defaultDeadline, maxDeadline, maxDeadline, maxDeadline} {
			s.joinWith(fmt.Sprint("m", i), d)
		}
		idle := s.members[1]
		idle.greedy = false
		s.run(3*time.Second + time.Duration(s.r.IntN(1000))*time.Millisecond)
		idle.cut = true
		s.leave()
		s.run(100 * time.Millisecond)
		idle.greedy = true
		idle.pump()
		s.within(fmt.Sprint("seed ", seed), 2500*time.Millisecond)
	}
}

// TestFarStoreAfterTheShortest has members far away from the store, and one with a short deadline come and leave. They use the
// store again.
func TestFarStoreAfterTheShortest(t *testing.T) {
	s := newSim(t, classNamed(t, "leaky"), 0, 5)
	s.delay, s.steady = 40*time.Millisecond, true
	for i, d := range []time.Duration{defaultDeadline, maxDeadline, maxDeadline} {
		s.joinWith(fmt.Sprint("m", i), d)
	}
	s.run(3 * time.Second)
	for _, m := range s.members[1:] {
		if st := m.machine.Status(m.local()); st.Shortest != defaultDeadline {
			t.Errorf("%s has not heard of the short deadline: %+v", m.name, st)
		}
	}
	s.leave()
	s.run(3 * time.Second)
	s.ledger.mark()
	s.run(20 * time.Second)
	for _, m := range s.members {
		if st := m.machine.Status(m.local()); st.Mode != FromStore || st.Shortest != maxDeadline {
			t.Errorf("%s is %v: %+v", m.name, st.Mode, st)
		}
	}
	if used := s.ledger.used(); used < 0.9 {
		t.Errorf("%.1f %% of the limit is used", 100*used)
	}
	if err := s.ledger.gaps(); err != nil {
		t.Error(err)
	}
}

// TestNewcomerThatTheStoreDoesNotKnow loses the first Beat of a member. The store goes on to grant as far ahead as the others say, and
// the member fences by that.
func TestNewcomerThatTheStoreDoesNotKnow(t *testing.T) {
	m, err := NewMachine(classNamed(t, "fast"), "m", Fallback{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_760_000_000, 0)
	model := Model{ID: "0"}
	m.Lease("").Want(now, 100, 1)
	beat, _ := m.Poll(now)
	m.Fail(now, &beat)
	now = now.Add(3 * maxDeadline)
	m.Answer(now, &Call{Op: Ping}, &Reply{})
	for range 4 {
		beat, _ = m.Poll(now)
		if want := 2 * maxDeadline; beat.Fence != want {
			t.Errorf("a member that the store has not known for %v fences by %v, want %v", want, beat.Fence, want)
		}
		r := model.Do(Stamp(now.UnixMicro()), &beat)
		m.Answer(now, &beat, &r)
		now = now.Add(maxDeadline / 3)
	}
	now = now.Add(maxDeadline)
	if beat = m.call(now, Beat, ""); beat.Fence != 2*defaultDeadline {
		t.Errorf("a member that the store knows fences by %v", beat.Fence)
	}
	now = now.Add(standardTerms.hold)
	if beat = m.call(now, Beat, ""); beat.Fence != 2*maxDeadline {
		t.Errorf("a member that the store may have forgotten fences by %v", beat.Fence)
	}
}
