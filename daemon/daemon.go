// Package daemon is the running process: it puts a policy file in force, reads
// it again when asked, answers on the control socket, shows metrics and health,
// and drains when it is told to stop.
//
// [Run] is the process. [Client] asks a running one, over its control socket.
package daemon

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"shaper/conn"
	"shaper/policy"
	"shaper/shaper"
)

// Options is what Run has to know.
type Options struct {
	Path    string // the policy file; it is read again at each reload
	Version string
	Log     *slog.Logger
	// Signals are obeyed: SIGHUP reloads, any other stops, a second one stops
	// at once.
	Signals <-chan os.Signal
	// Ready is called once, when the policy is in force. It may be nil.
	Ready func(Status, *policy.Policy)
}

// daemon is the process: one keeper of the policy, and the actors around it.
type daemon struct {
	Options
	started time.Time
	notify  func(state ...string)

	shaper  *shaper.Shaper
	server  *conn.Server
	sockets *sockets
	keeper  *keeper
	meter   *meter

	candidate candidate

	draining    atomic.Bool
	interrupted chan struct{}
}

// Run puts the policy in force and runs until a signal stops it, or until it
// cannot go on. Where the policy cannot be put in force, nothing has been
// started and the error is [policy.Errors], or what could not be bound.
func Run(o Options) error {
	d, err := newDaemon(o)
	if err != nil {
		return err
	}
	defer d.shaper.Close()
	if err := d.keeper.start(); err != nil {
		d.abandon()
		return err
	}
	d.sayReady()
	return d.run()
}

func newDaemon(o Options) (d *daemon, err error) {
	d = &daemon{Options: o, started: time.Now(), notify: notifier(o.Log), shaper: shaper.New(), interrupted: make(chan struct{})}
	if d.server, err = conn.NewServer(d.shaper, inherited(), o.Log); err != nil {
		d.shaper.Close()
		return nil, err
	}
	d.sockets = &sockets{shaper: d.shaper, server: d.server, kernel: newKernel(o.Log), log: o.Log, api: d.controlHandler(), web: d.webHandler()}
	d.keeper = newKeeper(o.Path, d.sockets, o.Log, d.notify)
	d.meter = &meter{classes: d.shaper.Classes}
	return d, nil
}

// abandon ends what newDaemon has started.
func (d *daemon) abandon() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	d.server.Shutdown(now)
}

func (d *daemon) sayReady() {
	s := d.status()
	d.Log.Info("policy in force", "file", s.Policy, "hash", s.PolicyHash, "classes", len(s.Classes),
		"listeners", len(s.Listeners), "warnings", len(s.Warnings))
	for _, w := range s.Warnings {
		d.Log.Warn(w.Error())
	}
	d.notify("READY=1", inForce(s.PolicyHash))
	if d.Ready != nil {
		d.Ready(s, d.keeper.view.Load().policy)
	}
}

// run runs the actors until one of them ends: that which obeys the signals,
// unless something has failed.
func (d *daemon) run() error {
	actors := []actor{
		{execute: d.obey, interrupt: func() { close(d.interrupted) }},
		until(d.keeper.run),
		until(d.meter.run),
		until(d.sockets.kernel.run),
		until(new(tidy).run),
	}
	if period := watchdogPeriod(d.Log); period > 0 {
		actors = append(actors, until(watchdog{period, d.probe, d.notify, d.Log}.run))
	}
	err := runAll(actors...)
	d.sockets.close()
	return err
}

// probe passes bytes through all that traffic passes. While the daemon drains
// there is nothing left that accepts; the deadline of the drain is bound enough.
func (d *daemon) probe(ctx context.Context) error {
	if d.draining.Load() {
		return nil
	}
	return d.server.Probe(ctx)
}

// obey follows the signals, and returns when everything is drained. It never
// waits for a reload: a file that is slow to read must not hold up a stop, and
// what comes while one is under way is one more.
func (d *daemon) obey() error {
	reloads := make(chan struct{}, 1)
	defer close(reloads)
	go func() { // it ends with the process where the file never ends
		for range reloads {
			d.keeper.reload(bySignal, 0) // which logs how it went
		}
	}()
	for {
		select {
		case sig := <-d.Signals:
			if sig != syscall.SIGHUP {
				d.drain(sig.String())
				return nil
			}
			select {
			case reloads <- struct{}{}:
			default: // one waits already
			}
		case <-d.interrupted:
			d.drain("an actor has ended")
			return nil
		}
	}
}

// drain stops accepting, lets open sessions go on for the drain time of the
// policy, and resets the rest. A second signal resets them at once.
func (d *daemon) drain(why string) {
	d.draining.Store(true)
	d.keeper.stop()
	patience := time.Duration(d.keeper.view.Load().policy.Daemon.Drain)
	d.notify("STOPPING=1", "STATUS=draining for "+patience.String()+" at most")
	d.Log.Info("stopping", "why", why, "sessions", len(d.server.Sessions()), "drain", patience)

	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	drained := make(chan int, 1)
	go func() { drained <- d.server.Shutdown(ctx) }()
	for {
		select {
		case reset := <-drained:
			d.Log.Info("stopped", "reset", reset, "took", time.Since(began).Round(time.Millisecond))
			return
		case sig := <-d.Signals:
			if sig != syscall.SIGHUP {
				d.Log.Warn("stopping at once", "why", "a second signal: "+sig.String())
				cancel()
			}
		}
	}
}
