package conn

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"shaper/stats"
)

// lookupError says why a name has no address.
type lookupError struct{ err error }

func (e *lookupError) Error() string { return e.err.Error() }

func (e *lookupError) Unwrap() error { return e.err }

// failed notes why an upstream, or its address what, cannot be reached. It does not count a
// lack of descriptors, which is not the upstream's fault.
func (d *dialling) failed(upstream, what string, err error) {
	t := d.session
	d.errs = append(d.errs, fmt.Errorf("dial %s: %w", what, err))
	if !lacksDescriptors(err) {
		t.service.stats.Failed.Add(upstream, failureOf(err))
	}
}

// failureOf returns the reason for counting the error of an attempt.
func failureOf(err error) stats.Failure {
	var name *lookupError
	var handshake *handshakeError
	switch {
	case errors.As(err, &name):
		return stats.Unresolved
	case errors.As(err, &handshake):
		return stats.NoTLS
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT): // a unix socket has a file
		return stats.NotServed
	case errors.Is(err, errTimeout), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EAGAIN):
		return stats.NoAnswer
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return stats.DialReset
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EHOSTDOWN), errors.Is(err, unix.ENETDOWN):
		return stats.Unreachable
	}
	return stats.Unfit
}

// logFailover logs that the session has reached its upstream only after attempts that failed
// with errs.
func (t *tcpSession) logFailover(errs []error) {
	if len(errs) > 0 {
		t.warn(failedOver, "upstream", t.name, "address", t.reached(), "class", nameOf(t.class()), "err", errors.Join(errs...))
	}
}

// handshakeError says why the TLS handshake with an upstream has failed.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }

func (e *handshakeError) Unwrap() error { return e.err }

// unreached returns how a session ends that has reached no upstream, because of errs.
func unreached(errs []error) stats.Result {
	for _, err := range errs {
		if errors.As(err, new(*handshakeError)) {
			return stats.TLSFailed
		}
	}
	return stats.DialFailed
}

var (
	errLoop    = errors.New("the address is one of shaper's own listeners, or its own socket")
	errTimeout = errors.New("i/o timeout")
	errFamily  = errors.New("it has no address of the same family as the listener's bind")
)
