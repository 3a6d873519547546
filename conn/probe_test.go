package conn

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"shaper/shaper"
	"shaper/tests/trial"
)

// Probe works before there is a policy, and any number of times. It leaves neither sessions
// nor descriptors behind.
func TestProbe(t *testing.T) {
	r := bare(t)
	if err := r.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "its session has ended", func() bool { return len(r.Sessions()) == 0 })
	before := openDescriptors(t)
	for range 20 {
		if err := r.Probe(within(patience)); err != nil {
			t.Fatal(err)
		}
	}
	trial.Await(t, "nothing remains", func() bool { return len(r.Sessions()) == 0 && openDescriptors(t) <= before })
	if n := len(r.Listeners()); n != 0 {
		t.Errorf("it shows as %d listeners", n)
	}
	r.Shutdown(expired)
	if err := r.Probe(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Shutdown: %v, want net.ErrClosed", err)
	}
}

// Without the pacer nothing that waits leaves. Probe notices that, every time.
func TestProbeNoticesThePacer(t *testing.T) {
	before := openDescriptors(t)
	sh := shaper.New()
	s, err := NewServer(sh, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh.Close()
	for range probeListener.MaxSessions + 2 {
		if err := s.Probe(within(50 * time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Probe: %v, want a deadline", err)
		}
	}
	s.Shutdown(expired)
	trial.Await(t, "all descriptors are closed", func() bool { return openDescriptors(t) <= before })
}

// Other processes cannot fill up the socket of Probe: it accepts only this process.
func TestProbeIsForUsOnly(t *testing.T) {
	const at = "SHAPER_TEST_PROBE"
	if addr := os.Getenv(at); addr != "" {
		c, err := net.Dial("unix", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read: %v, want EOF", err)
		}
		return
	}
	r := bare(t)
	if err := r.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestProbeIsForUsOnly$")
	cmd.Env = append(os.Environ(), at+"="+r.probe.listener.Addr().String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
