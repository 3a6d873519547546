package upstream

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"shaper/stats"
)

// A LookupError says why a name has no address.
type LookupError struct{ Err error }

func (e *LookupError) Error() string { return e.Err.Error() }

func (e *LookupError) Unwrap() error { return e.Err }

// A HandshakeError says why the TLS handshake with an upstream has failed.
type HandshakeError struct{ Err error }

func (e *HandshakeError) Error() string { return "TLS handshake: " + e.Err.Error() }

func (e *HandshakeError) Unwrap() error { return e.Err }

// A PortError says that an address of ours has no free port for connections to an upstream.
type PortError struct{ From netip.Addr } // invalid: any address of ours

func (e *PortError) Error() string {
	of, remedy := "all local ports", "bind with several addresses has"
	if e.From.IsValid() {
		of, remedy = fmt.Sprintf("all ports of %v", e.From), "further addresses in bind have"
	}
	return of + " are in use towards it, or were until a minute ago (TIME_WAIT); " + remedy + " more, as has a wider net.ipv4.ip_local_port_range"
}

// Why an attempt failed, if neither the kernel nor TLS says so.
var (
	ErrLoop    = errors.New("the address is one of shaper's own listeners, or its own socket")
	ErrTimeout = errors.New("i/o timeout")
	ErrSilent  = fmt.Errorf("a request has no answer: %w", ErrTimeout)
	ErrFamily  = errors.New("it has no address of the same family as one of the listener's bind")
)

// lacksMeans reports whether an attempt or a check has failed because this process, or this machine,
// has no descriptor or port free. That says nothing of the upstream.
func lacksMeans(err error) bool {
	for _, code := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.EADDRNOTAVAIL, unix.EADDRINUSE} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// FailureOf returns the reason under which the error of an attempt is counted.
func FailureOf(err error) stats.Failure {
	var name *LookupError
	var handshake *HandshakeError
	var port *PortError
	switch {
	case errors.As(err, &port):
		return stats.NoPort
	case errors.As(err, &name):
		return stats.Unresolved
	case errors.As(err, &handshake):
		return stats.NoTLS
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT): // a unix socket has a file
		return stats.NotServed
	case errors.Is(err, ErrTimeout), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EAGAIN):
		return stats.NoAnswer
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return stats.DialReset
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EHOSTDOWN), errors.Is(err, unix.ENETDOWN):
		return stats.Unreachable
	}
	return stats.Unfit
}
