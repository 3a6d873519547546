package fleet

import "time"

// A nap tells whether the machine was suspended. The clock by which a Member counts stands still meanwhile; the wall clock
// does not. So a look costs nothing unless one has moved against the other, and that the wall clock was set is told
// apart by what the kernel counts.
type nap struct {
	read  func() time.Duration // how long the machine was suspended since it has started
	slept time.Duration        // what that has returned
	begun time.Time
	skew  time.Duration // of the wall clock against the other one, since begun
}

func newNap(read func() time.Duration) nap {
	return nap{read: read, slept: read(), begun: time.Now()}
}

// skewed is how far the clocks have to move against each other; the times of a time.Time are not read at one moment.
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

// Slept says that the machine was suspended, and the local clock with it. Others have had what was in hand, and perhaps its
// share. So the member begins as one that has just come.
func (m *Machine) Slept(now time.Time) {
	k := &m.link
	k.clock, k.joined, k.known, k.share, m.woke = clock{}, time.Time{}, time.Time{}, 0, now
	if m.mode == OnShare {
		m.absence.inherit(now)
	}
	for _, l := range m.leases {
		l.withdraw()
		l.discard()
		l.retry = time.Time{}
		m.wake(l, now)
	}
}
