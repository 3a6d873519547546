package fleet

import (
	"testing"
	"time"

	"shaper/tests/trial"
)

// TestNap tells a machine that was suspended from one whose wall clock was set.
func TestNap(t *testing.T) {
	slept, reads := time.Duration(0), 0
	n := newNap(func() time.Duration { reads++; return slept })
	now := time.Now()
	for i, c := range []struct {
		moved, slept time.Duration // since the last look
		over         bool
		reads        int
	}{
		{0, 0, false, 0},
		{time.Hour, time.Hour, true, 1},
		{0, 0, false, 0},
		{-time.Hour, 0, false, 1}, // the wall clock was set
		{time.Minute, 0, false, 1},
		{-time.Minute, time.Second, true, 1}, // both
		{0, 0, false, 0},
	} {
		reads, slept, n.skew = 0, slept+c.slept, n.skew-c.moved
		if over := n.over(now); over != c.over || reads != c.reads {
			t.Errorf("look %d: suspended %v, after %d readings; want %v and %d", i, over, reads, c.over, c.reads)
		}
	}
	if d := suspended(); d < 0 || suspended()-d > skewed {
		t.Errorf("the machine was suspended for %v, and soon after for %v", d, suspended())
	}
}

// TestSlept suspends a member together with its clock, and its kernel says so. Nothing leaves twice, also not by a share: for
// the others that was over after ten minutes.
func TestSlept(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]bool{"fast": false, "leaky": true} {
		s := newSim(t, classNamed(t, name), 4, 1)
		for _, m := range s.members {
			m.greedy = true
		}
		s.run(3 * time.Second)
		m := s.members[0]
		for range trial.Size(2, 5) {
			if m.cut = cut; cut {
				s.run(time.Second)
				if mode := m.machine.Status(m.local()).Mode; mode != OnShare {
					t.Errorf("without the store the member is %v", mode)
				}
			}
			m.asleep = true
			slept := time.Duration(1+s.r.IntN(9_000)) * time.Millisecond
			if cut {
				slept += 11 * time.Minute
				s.ledger.all = nil
			}
			s.run(slept)
			m.zero = m.zero.Add(-slept)
			m.machine.Slept(m.local())
			m.asleep, m.wakeAt = false, 0
			woke := len(s.ledger.all)
			m.pump()
			s.run(5 * time.Second)
			for _, d := range s.ledger.all[woke:] {
				if cut && d.Member == m.name {
					t.Fatalf("something leaves by the share %v after the machine was suspended", d.At)
				}
			}
			m.cut = false
			s.run(2 * time.Second)
			s.ledger.mark()
			s.run(5 * time.Second)
			if used := s.ledger.used(); used < 0.96 {
				t.Errorf("%.1f %% of the limit is used", 100*used)
			}
		}
		if err := s.ledger.gaps(); err != nil {
			t.Error(err)
		}
	}
}

// TestSleptBesideACall suspends the machine while an answer is on its way. The share in it was given to others meanwhile.
func TestSleptBesideACall(t *testing.T) {
	m, err := NewMachine(classNamed(t, "fast"), "m", Fallback{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_760_000_000, 0)
	model := Model{ID: "0"}
	for range 100 {
		for c, ok := m.Poll(now); ok; c, ok = m.Poll(now) {
			r := model.Do(Stamp(now.UnixMicro()), &c)
			m.Answer(now, &c, &r)
		}
		now = now.Add(100 * time.Millisecond)
	}
	m.Lease("").Want(now, 100, 1)
	c, _ := m.Poll(now)
	r := model.Do(Stamp(now.UnixMicro()), &c)
	if r.Share == 0 {
		t.Fatal("the answer has no share")
	}
	now = now.Add(time.Millisecond)
	m.Slept(now)
	m.Answer(now, &c, &r)
	if s := m.Status(now.Add(time.Minute)); s.Mode != Stopped || m.Leased(now) > 0 {
		t.Errorf("after it was suspended, the member has %d units, and %+v", m.Leased(now), s)
	}
}
