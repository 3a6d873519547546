package conn

import (
	"errors"
	"fmt"

	"shaper/entry"
	"shaper/stats"
	"shaper/upstream"
)

// failures are why the attempts of a session have failed, in their order.
type failures []error

// add notes why an upstream, or its address what, cannot be reached, and counts it.
func (f *failures) add(sv *service, name, what string, err error) {
	*f = append(*f, fmt.Errorf("dial %s: %w", what, err))
	sv.countFailure(name, err)
}

// join returns all of them as one error.
func (f failures) join() error { return errors.Join(f...) }

// logFailover logs that a session has reached its upstream only after these failures.
func (f failures) logFailover(t *tcpSession) {
	if len(f) > 0 {
		t.warn(failedOver, "upstream", t.upstreamName(), "address", t.course.address(), "class", nameOf(t.up.flow.Class()), "err", f.join())
	}
}

// result returns how a session ends that has reached no upstream.
func (f failures) result() stats.Result {
	for _, err := range f {
		if errors.Is(err, errDenied) {
			return stats.Denied
		}
		if errors.As(err, new(*upstream.HandshakeError)) {
			return stats.TLSFailed
		}
	}
	return stats.DialFailed
}

// refusal returns what an entry tells a client whose destination was not reached.
func (f failures) refusal() entry.Refusal {
	if len(f) == 0 {
		return entry.Failed
	}
	err := f[len(f)-1]
	if errors.Is(err, errDenied) {
		return entry.Denied
	}
	switch upstream.FailureOf(err) {
	case stats.Unresolved:
		return entry.Unknown
	case stats.NotServed:
		return entry.NotServed
	case stats.NoAnswer, stats.Unreachable:
		return entry.Unreachable
	}
	return entry.Failed
}
