package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"shaper/conn"
)

// inherited returns the sockets that systemd has passed, by their names.
func inherited() conn.Inherited {
	passed := conn.Inherited{}
	for _, f := range activation.Files(true) {
		passed[f.Name()] = append(passed[f.Name()], f)
	}
	return passed
}

// notifier tells the service manager how the daemon is (sd_notify(3)); without
// one it does nothing.
func notifier(log *slog.Logger) func(state ...string) {
	return func(state ...string) {
		if _, err := sd.SdNotify(false, strings.Join(state, "\n")); err != nil {
			log.Warn("the service manager was not told", "state", state, "err", err)
		}
	}
}

// reloading returns what announces a reload. From version 253 on, systemd wants
// to know when it began; earlier ones ignore that.
func reloading() []string {
	state := []string{sd.SdNotifyReloading}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		state = append(state, fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
	}
	return state
}

// inForce is what systemctl status shows.
func inForce(hash string) string { return "STATUS=policy " + hash + " in force" }

// watchdog feeds the service manager's watchdog while the probe passes: a
// daemon that accepts, but lets nothing through, is as dead as one that hangs.
type watchdog struct {
	period time.Duration // in which it has to be fed once
	probe  func(context.Context) error
	notify func(state ...string)
	log    *slog.Logger
}

// run probes three times in a period, until the context ends.
func (w watchdog) run(ctx context.Context) {
	ticker := time.NewTicker(w.period / 3)
	defer ticker.Stop()
	for {
		w.feed(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w watchdog) feed(ctx context.Context) {
	probing, cancel := context.WithTimeout(ctx, w.period/3)
	defer cancel()
	err := w.probe(probing)
	if err == nil {
		w.notify(sd.SdNotifyWatchdog)
	} else if ctx.Err() == nil {
		w.log.Error("the watchdog is not fed", "err", err)
	}
}

// watchdogPeriod returns how often the service manager wants to hear from us;
// 0 where it has no watchdog.
func watchdogPeriod(log *slog.Logger) time.Duration {
	period, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog is off", "err", err)
	}
	return period
}
