package conn

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"shaper/policy"
	"shaper/sock"
	"shaper/unit"
)

// Probe has a class of its own, so slow that the second item waits for the pacer, and a
// listener that only Probe knows.
var (
	probeClass    = policy.Class{Name: "(probe)", Algorithm: policy.Leaky, Rate: unit.BytesPerSecond(1 << 10)}
	probeListener = policy.Listener{
		Name: "(probe)", Protocol: policy.TCP, Mode: policy.Forward, Upstream: []string{policy.Echo},
		IdleTimeout: unit.Duration(time.Minute), HalfCloseTimeout: unit.Duration(time.Minute), MaxSessions: 4,
	}
)

// probeSocket returns the socket of Probe. The first call makes it, in the abstract unix
// namespace, under a name that the kernel chooses.
func (s *Server) probeSocket() (*tcpSocket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping.Load():
		return nil, net.ErrClosed
	case s.probe != nil:
		return s.probe, nil
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix"})
	if err != nil {
		return nil, err
	}
	sv := s.newService(s.shaper.NewClass(probeClass))
	sv.gate.setMax(probeListener.MaxSessions)
	sv.put(terms{Listener: probeListener})
	listening, err := sock.NewListener(l)
	if err != nil {
		return nil, err
	}
	// Anybody may connect to a name in the abstract namespace, and so keep the watchdog
	// from getting through.
	listening.OnlyOurs()
	t, err := s.newTCPSocket(listening)
	if err != nil {
		return nil, err
	}
	t.serve(sv)
	s.probe = t
	return t, nil
}

// Probe sends bytes along the whole path of traffic: accept, the queue of a class, the pacer,
// the relay to an upstream and back. It returns nil when they have come back, which is what a
// watchdog wants to know.
func (s *Server) Probe(ctx context.Context) error {
	t, err := s.probeSocket()
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", t.listener.Addr().String())
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	for _, sent := range [][]byte{[]byte("leaves at once"), []byte("waits")} {
		if _, err := c.Write(sent); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		if !bytes.Equal(got, sent) {
			return fmt.Errorf("probe: sent %q, got %q", sent, got)
		}
	}
	return nil
}
