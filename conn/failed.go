package conn

import (
	"errors"
	"fmt"

	"shaper/stats"
	"shaper/upstream"
)

// failed notes why an upstream, or its address what, cannot be reached. It does not count a
// lack of descriptors, which is not the upstream's fault.
func (d *dialling) failed(name, what string, err error) {
	t := d.session
	d.errs = append(d.errs, fmt.Errorf("dial %s: %w", what, err))
	if !lacksDescriptors(err) {
		t.service.stats.Failed.Add(name, upstream.FailureOf(err))
	}
}

// logFailover logs that the session has reached its upstream only after attempts that failed
// with errs.
func (t *tcpSession) logFailover(errs []error) {
	if len(errs) > 0 {
		t.warn(failedOver, "upstream", t.upstreamName(), "address", t.course.address(), "class", nameOf(t.class()), "err", errors.Join(errs...))
	}
}

// unreached returns how a session ends that has reached no upstream, because of errs.
func unreached(errs []error) stats.Result {
	for _, err := range errs {
		if errors.Is(err, errDenied) {
			return stats.Denied
		}
		if errors.As(err, new(*upstream.HandshakeError)) {
			return stats.TLSFailed
		}
	}
	return stats.DialFailed
}
