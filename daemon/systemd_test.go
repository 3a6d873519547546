package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"shaper/tests/trial"
)

// manager starts a service manager, and returns a function that returns what it is told next.
func manager(t *testing.T) (next func() string) {
	t.Helper()
	path := filepath.Join(trial.ShortDir(t), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(patience))
		text := make([]byte, 4096)
		n, err := c.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(text[:n])
	}
}

// skipping returns the next message that does not feed the watchdog.
func skipping(next func() string) string {
	for {
		if text := next(); text != "WATCHDOG=1" {
			return text
		}
	}
}

func TestNotify(t *testing.T) {
	next := manager(t)
	p := begin(t, base)
	if got := next(); got != "READY=1\nSTATUS=policy "+p.first.PolicyHash+" in force" {
		t.Errorf("at the start: %q", got)
	}
	p.edit("64KiB/s", "1mbit")
	mustReload(p)
	if got := next(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("at a reload: %q", got)
	}
	if got, hash := next(), p.mustStatus().PolicyHash; got != "READY=1\nSTATUS=policy "+hash+" in force" || hash == p.first.PolicyHash {
		t.Errorf("after a reload: %q", got)
	}
	p.signals <- syscall.SIGTERM
	if got := next(); !strings.HasPrefix(got, "STOPPING=1\nSTATUS=draining") {
		t.Errorf("at the stop: %q", got)
	}
	p.await()
}

// A daemon that works feeds the watchdog. The probe goes through a session, its class and the
// pacer.
func TestWatchdogIsFed(t *testing.T) {
	next := manager(t)
	t.Setenv("WATCHDOG_USEC", "60000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	begin(t, base)
	next() // READY=1
	for range 3 {
		if got := next(); got != "WATCHDOG=1" {
			t.Fatalf("the manager was told %q", got)
		}
	}
}

// A probe that fails or hangs does not feed the watchdog. Once it succeeds again, it does.
func TestWatchdogStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fed []time.Duration
		began := time.Now()
		probes := 0
		logged, log := trial.NewLog()
		w := watchdog{period: 30 * time.Second, log: log,
			notify: func(...string) { fed = append(fed, time.Since(began)) },
			probe: func(ctx context.Context) error {
				switch probes++; probes {
				case 2:
					return errors.New("nothing came back")
				case 3:
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}}
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
		defer cancel()
		w.run(ctx)
		if got := fmt.Sprint(fed); got != "[0s 30s 40s]" {
			t.Errorf("the watchdog was fed at %s", got)
		}
		wantLines(t, logged.String(), "the watchdog is not fed", "nothing came back", "deadline exceeded")
	})
}

func TestWatchdogPeriod(t *testing.T) {
	logged, log := trial.NewLog()
	if got := watchdogPeriod(log); got != 0 {
		t.Errorf("without a service manager: %v", got)
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	if got := watchdogPeriod(log); got != 0 {
		t.Errorf("with nonsense: %v", got)
	}
	wantLines(t, logged.String(), "the watchdog is off")
}

// A probe under way does not delay a stop.
func TestProbeWhileDraining(t *testing.T) {
	next := manager(t)
	t.Setenv("WATCHDOG_USEC", "60000")
	p := begin(t, base)
	p.dial("echo")
	skipping(next) // READY=1
	p.signals <- syscall.SIGTERM
	if got := skipping(next); !strings.HasPrefix(got, "STOPPING=1") {
		t.Errorf("at the stop: %q", got)
	}
	for range 3 {
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("while draining the manager is told %q", got)
		}
	}
	p.signals <- syscall.SIGTERM
	p.await()
}
