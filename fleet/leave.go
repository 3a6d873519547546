package fleet

import (
	"context"
	"time"
)

// A member that leaves tells its store so, until that has heard it.

// Close ends the member, which nobody may use any more. It has the store hear first what the store does not know of the member's share,
// and then that the member is gone: again and again until the store has heard that, until ctx ends, or until the hold is over. Otherwise
// the store holds back the share of the member, which the next one then lacks, also if that is of this process. The last
// member of a Store closes its connections.
func (m *Member) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, standardTerms.hold)
	defer cancel()
	defer context.AfterFunc(ctx, m.hangUp)()
	paid := m.payDebts(ctx)
	m.stop()
	m.wg.Wait()
	defer m.store.leave()
	if paid {
		m.mu.Lock()
		c := m.machine.Leave(time.Now())
		m.mu.Unlock()
		m.sendUntilHeard(ctx, &c)
	}
}

// payDebts forgets all leases, and returns when the store knows what has left at the share of the member, or when ctx ends. It
// reports whether the store knows.
func (m *Member) payDebts(ctx context.Context) bool {
	m.mu.Lock()
	now := time.Now()
	for _, l := range m.machine.leases {
		m.machine.Forget(l)
	}
	m.wake(now)
	m.mu.Unlock()
	for m.owes() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pingEvery):
		}
	}
	return true
}

// owes reports whether the store has yet to hear of something that has left at the share of the member, or a ledger that the store
// knows of it: otherwise the next process under this name would tell it again.
func (m *Member) owes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, l := range m.machine.leases {
		if l.noted || l.spent.owes(now) {
			return true
		}
	}
	return false
}

// sendUntilHeard sends a call until the store has answered it, or until ctx ends.
func (m *Member) sendUntilHeard(ctx context.Context, c *Call) {
	for wait := pingEvery; ; wait = min(2*wait, maxSilence) {
		if _, err := m.store.Do(ctx, c); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
