package fleet

import "time"

// A nap tells whether the machine was suspended. Meanwhile the clock by which a Member counts stands still, and the wall
// clock goes on. So a nap asks the kernel only if one clock has moved against the other: somebody may also have set the
// wall clock.
type nap struct {
	read  func() time.Duration // asks the kernel how long the machine was suspended since its start
	slept time.Duration        // what read returned last
	begun time.Time            // by both clocks
	skew  time.Duration        // of the wall clock against the other one, since begun, at the last look
}

func newNap(read func() time.Duration) nap {
	return nap{read: read, slept: read(), begun: time.Now()}
}

// skewed is how far the clocks have to move against each other. Less may be between their readings in one time.Time, which
// are not of one moment.
const skewed = time.Millisecond

// over reports whether the machine was suspended since the last look.
func (n *nap) over(now time.Time) bool {
	skew := now.Round(0).Sub(n.begun.Round(0)) - now.Sub(n.begun)
	if (skew - n.skew).Abs() < skewed {
		return false
	}
	slept := n.read()
	over := slept-n.slept >= skewed
	n.skew, n.slept = skew, slept
	return over
}

// Slept says that the machine was suspended, and the local clock with it. Other members have had what was in hand, and
// perhaps the share of this member. So the member begins as if it had just come.
func (m *Machine) Slept(now time.Time) {
	k := &m.link
	k.clock, k.joined, k.known, k.share, m.woke = clock{}, time.Time{}, time.Time{}, 0, now
	if m.mode == OnShare {
		m.absence.inherit(now)
	}
	for _, l := range m.leases {
		m.absence.withdraw(l)
		l.discard()
		l.retry = time.Time{}
		m.wake(l, now)
	}
}
