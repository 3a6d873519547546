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

// inherited returns the sockets that systemd has passed to the process, by name
// (sd_listen_fds_with_names(3)).
func inherited() conn.Inherited {
	passed := conn.Inherited{}
	for _, f := range activation.Files(true) {
		passed[f.Name()] = append(passed[f.Name()], f)
	}
	return passed
}

// notifier returns a function that tells the service manager the state of the daemon
// (sd_notify(3)). Without a service manager the function does nothing.
func notifier(log *slog.Logger) func(state ...string) {
	return func(state ...string) {
		if _, err := sd.SdNotify(false, strings.Join(state, "\n")); err != nil {
			log.Warn("cannot notify the service manager", "state", state, "err", err)
		}
	}
}

// reloadingState returns the state that announces a reload. From version 253 on, systemd wants
// to know when the reload began. Earlier versions ignore that.
func reloadingState() []string {
	state := []string{sd.SdNotifyReloading}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		state = append(state, fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
	}
	return state
}

// inForceState returns the line that systemctl status shows.
func inForceState(hash string) string { return "STATUS=policy " + hash + " in force" }

// watchdog feeds the service manager's watchdog as long as the probe succeeds. So a daemon that
// accepts but lets nothing through is restarted like one that hangs.
type watchdog struct {
	period time.Duration // the service manager restarts a daemon that does not feed for so long
	probe  func(context.Context) error
	notify func(state ...string)
	log    *slog.Logger
}

// run probes three times in each period until the context ends.
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

// feed probes once, and feeds the watchdog if the probe succeeds.
func (w watchdog) feed(ctx context.Context) {
	probing, cancel := context.WithTimeout(ctx, w.period/3)
	defer cancel()
	err := w.probe(probing)
	if err == nil {
		w.notify(sd.SdNotifyWatchdog)
	} else if ctx.Err() == nil {
		w.log.Error("the probe failed; the watchdog is not fed", "err", err)
	}
}

// watchdogPeriod returns how often the service manager wants to hear from us; 0 if it has no
// watchdog for us.
func watchdogPeriod(log *slog.Logger) time.Duration {
	period, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog is off", "err", err)
	}
	return period
}
