package fleet

import (
	"time"

	"shaper/unit"
)

// Budget returns the budget of a key; "" is the class itself.
func (m *Member) Budget(key string) *Budget {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Budget{member: m, lease: m.machine.Lease(key)}
}

// A Budget is the limit.Limiter of a shared class, or of one key of it. What a Lease says of Next and
// Take holds here too. It is safe for concurrent use.
type Budget struct {
	forgetful
	member *Member
	lease  *Lease
}

// Want says how many units wait, all in all, and how many each of the next items needs, as Lease.Want does.
func (b *Budget) Want(now time.Time, units int64, next ...int64) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.lease.Want(now, units, next...)
	b.member.wake(now)
}

// Hold says that nothing of what waits leaves before until.
func (b *Budget) Hold(now, until time.Time) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.lease.Hold(now, until)
	b.member.wake(now)
}

// RefusedUntil returns until when a window has nothing for an item, as Lease.RefusedUntil does.
func (b *Budget) RefusedUntil(now time.Time, n int64) time.Time {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	return b.lease.RefusedUntil(now, n)
}

// Reduced returns to which rate the limit is reduced for an item, as Lease.Reduced does.
func (b *Budget) Reduced(now time.Time, n int64) (to unit.Rate, away bool) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	return b.lease.Reduced(now, n)
}

// Next implements limit.Limiter.
func (b *Budget) Next(now time.Time, ahead, n int64) time.Time {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.member.look(now)
	return b.lease.Next(now, ahead, n)
}

// Take implements limit.Limiter.
func (b *Budget) Take(since, now time.Time, n int64) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.lease.Take(since, now, n)
	b.member.wake(now)
}

// Left says that an item has left; see hand.Left.
func (b *Budget) Left(now time.Time) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	if b.lease.Left(now); b.member.machine.overdue > 0 {
		b.member.wake(now)
	}
}

// Over returns until when the item that Take has charged last may leave; see hand.Over.
func (b *Budget) Over() time.Time {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	return b.lease.Over()
}

// Lost says that an item of n units that Take has charged at the time then has not left; see Lease.Lost.
func (b *Budget) Lost(then time.Time, n int64) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.lease.Lost(then, n)
}

// Amend implements limit.Amender. What Lease.Amend says of it holds here too.
func (b *Budget) Amend(now, then time.Time, n int64) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.lease.Amend(now, then, n)
	b.member.wake(now)
}

// Estimate implements limit.Estimator.
func (b *Budget) Estimate(now time.Time, ahead, n int64) time.Time {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	return b.lease.Estimate(now, ahead, n)
}

// SetRate implements limit.Limiter. What Lease.SetRate says of it holds here too.
func (b *Budget) SetRate(now time.Time, rate unit.Rate, burst int64) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.lease.SetRate(now, rate, burst)
	b.member.wake(now)
}

// Owe says that the process has used units of a window without the fleet, as Lease.Owe does.
func (b *Budget) Owe(now time.Time, units int64, until time.Time) {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.lease.Owe(now, units, until)
	b.member.wake(now)
}

// Forget drops a budget that nobody uses any more.
func (b *Budget) Forget() {
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	b.member.machine.Forget(b.lease)
	b.member.wake(time.Now())
}
