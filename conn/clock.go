package conn

import "time"

// dialClock bounds how long a session tries to reach an upstream. The lookup of its name and the
// connect together may take connect_timeout; the wait for a permit and for the class between them
// does not count. The lock of the session guards it.
type dialClock struct {
	timeout    time.Duration // what remained of connect_timeout when the upstream was resolved
	giveUpAt   time.Time     // when the present upstream is given up
	retryUntil time.Time     // when the session gives up waiting for a descriptor; zero: it has not dialled yet
	overdue    time.Time     // when the present attempt takes too long; see longConnect
	alarm                    // takes the next step if the poller reports nothing before
}

// An attempt that takes longer than this has failed even if the session ends for another reason. Otherwise
// an address that never answers would not be ejected while all clients have less patience than
// connect_timeout. Many clients wait a second; an address that lives answers a SYN in less.
const (
	longConnect   = 750 * time.Millisecond
	longHandshake = 2 * time.Second // a peer that is slow is not dead
)

// expect starts an attempt, or its handshake, that should take no longer than a time.
func (c *dialClock) expect(longest time.Duration) { c.overdue = time.Now().Add(longest) }

// begin starts the clock for an upstream.
func (c *dialClock) begin(timeout time.Duration) { c.giveUpAt = time.Now().Add(timeout) }

// resolved stops the clock: the upstream has its addresses.
func (c *dialClock) resolved() { c.timeout = time.Until(c.giveUpAt) }

// resume starts the clock again, before a dial. It reports whether this dial is the first.
func (c *dialClock) resume() (first bool) {
	first = c.retryUntil.IsZero()
	c.renew()
	c.retryUntil = c.giveUpAt
	return first
}

// renew gives the present upstream as much time as it had at first.
func (c *dialClock) renew() { c.begin(c.timeout) }

// mayRetry reports whether the session may wait for a descriptor.
func (c *dialClock) mayRetry() bool { return time.Now().Before(c.retryUntil) }

// remaining returns how long the present upstream still has.
func (c *dialClock) remaining() time.Duration { return time.Until(c.giveUpAt) }

// share returns when the handshake with the present address is given up, if so many others are to be tried after it.
// It has an even share of the time that remains, as a connect has, but a quarter at least: an address that answers a connect
// does so at once, while a handshake takes as long as the peer is slow, and with many addresses an even share would be
// too short at each of them. More than a quarter would leave too little for those behind some that hang.
func (c *dialClock) share(others int) time.Time {
	return time.Now().Add(c.remaining() / time.Duration(min(1+others, 4)))
}
