package conn

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"shaper/stats"
)

// lookupError is why a name has no address.
type lookupError struct{ err error }

func (e *lookupError) Error() string { return e.err.Error() }

func (e *lookupError) Unwrap() error { return e.err }

// failed notes why an upstream, or one of its addresses, cannot be reached. A want of
// descriptors is no fault of the upstream.
func (d *dialling) failed(upstream, what string, err error) {
	t := d.session
	d.errs = append(d.errs, fmt.Errorf("dial %s: %w", what, err))
	if !lacksDescriptors(err) {
		t.service.stats.Failed.Add(upstream, failureOf(err))
	}
}

// failureOf tells from an error of an attempt why it has failed.
func failureOf(err error) stats.Failure {
	var name *lookupError
	var handshake *handshakeError
	switch {
	case errors.As(err, &name):
		return stats.Unresolved
	case errors.As(err, &handshake):
		return stats.NoTLS
	case errors.Is(err, unix.ECONNREFUSED):
		return stats.NotServed
	case errors.Is(err, errTimeout), errors.Is(err, unix.ETIMEDOUT):
		return stats.NoAnswer
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return stats.DialReset
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EHOSTDOWN), errors.Is(err, unix.ENETDOWN):
		return stats.Unreachable
	}
	return stats.Unfit
}

// tellFailOver logs that the address which was reached is not the first that was tried.
func (t *tcpSession) tellFailOver(errs []error) {
	if len(errs) > 0 {
		t.warn(failedOver, "upstream", t.name, "address", t.reached(), "class", nameOf(t.class()), "err", errors.Join(errs...))
	}
}

// handshakeError is why the TLS handshake with an upstream has failed.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }

func (e *handshakeError) Unwrap() error { return e.err }

// unreached tells from why no upstream was reached how the session ends.
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
	errFamily  = errors.New("it has no address of the family of the listener's bind")
)
