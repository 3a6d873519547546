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
	"shaper/web"
)

// Options are the arguments of Run. Path and Log are required.
type Options struct {
	Path    string // the policy file; each reload reads it again
	Version string
	Log     *slog.Logger
	// Signals control the daemon: SIGHUP reloads, any other signal stops, and a second
	// one stops at once.
	Signals <-chan os.Signal
	// Run calls Ready once, when the policy is in force. nil: it calls nothing.
	Ready func(Status, *policy.Policy)
}

// daemon is the process: the keeper of the policy, and the actors around it.
type daemon struct {
	// Set by newDaemon, read by all.
	Options
	started time.Time
	notify  func(state ...string) // tells the service manager

	shaper    *shaper.Shaper
	server    *conn.Server
	engine    *liveEngine
	keeper    *keeper
	meter     *meter
	dashboard *web.Dashboard // serves daemon.http and the streams of the control socket

	candidate candidate // has a lock of its own

	draining    atomic.Bool   // set once, by drain
	interrupted chan struct{} // closed when an actor has ended
}

// Run puts the policy in force and runs until a signal or a failure stops it. If the policy
// cannot come into force, Run starts nothing and returns its mistakes as [policy.Errors],
// or why it cannot be read, bound or put into the kernel; [CodeOf] tells these apart.
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
	d.announceReady()
	return d.run()
}

// newDaemon returns a daemon without a policy. The caller closes its shaper, and calls run or
// abandon.
func newDaemon(o Options) (d *daemon, err error) {
	d = &daemon{Options: o, started: time.Now(), notify: notifier(o.Log), shaper: shaper.New(), interrupted: make(chan struct{})}
	if d.server, err = conn.NewServer(d.shaper, inherited(), o.Log); err != nil {
		d.shaper.Close()
		return nil, err
	}
	d.dashboard = web.New(page{d})
	d.engine = &liveEngine{shaper: d.shaper, server: d.server, kernel: newKernel(o.Log), fleets: newFleets(d.shaper.Told, d.shaper.Unshare, o.Log), log: o.Log, api: d.controlHandler(), web: d.webHandler(), beside: d.dashboard.Run}
	d.keeper = newKeeper(o.Path, d.engine, o.Log, d.notify)
	d.engine.kernel.told = d.keeper.noteCorrected
	d.meter = &meter{classes: d.shaper.Classes}
	d.candidate.force = d.shaper
	return d, nil
}

// abandon stops what newDaemon has started.
func (d *daemon) abandon() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	d.server.Shutdown(now)
}

// announceReady says that the policy is in force: to the log, the service manager and Ready.
func (d *daemon) announceReady() {
	s := d.status()
	d.Log.Info("policy in force", "file", s.Policy, "hash", s.PolicyHash, "classes", len(s.Classes),
		"listeners", len(s.Listeners), "warnings", len(s.Warnings))
	for _, w := range s.Warnings {
		d.Log.Warn(w.Error())
	}
	d.notify("READY=1", inForceState(s.PolicyHash))
	if d.Ready != nil {
		d.Ready(s, d.keeper.view.Load().policy)
	}
}

// run runs the actors until one of them ends. Unless something fails, that is obey.
func (d *daemon) run() error {
	actors := []actor{
		{execute: d.obey, interrupt: func() { close(d.interrupted) }},
		until(d.keeper.run),
		until(d.meter.run),
		until(d.engine.kernel.run),
		until(new(scavenger).run),
	}
	if period := watchdogPeriod(d.Log); period > 0 {
		actors = append(actors, until(watchdog{period, d.probe, d.notify, d.Log}.run))
	}
	err := runAll(actors...)
	d.engine.close()
	return err
}

// probe sends bytes the way that traffic takes and returns an error if they do not pass.
// While the daemon drains, nothing accepts and probe always succeeds: the drain time bounds
// how long that lasts.
func (d *daemon) probe(ctx context.Context) error {
	if d.draining.Load() {
		return nil
	}
	return d.server.Probe(ctx)
}

// obey acts on signals until one of them stops the daemon, or an actor ends. It returns when
// the daemon has drained. It never waits for a reload, since a file that is slow to read must
// not delay a stop. All SIGHUPs that come during a reload make one more reload.
func (d *daemon) obey() error {
	reloads := make(chan struct{}, 1)
	defer close(reloads)
	go func() { // if a read never ends, this ends with the process
		for range reloads {
			d.keeper.reload(bySignal, 0) // it logs its outcome
		}
	}()
	for {
		select {
		case sig := <-d.Signals:
			if sig != syscall.SIGHUP {
				d.drain(bySignal, sig.String())
				return nil
			}
			select {
			case reloads <- struct{}{}:
			default: // a reload waits already
			}
		case <-d.interrupted:
			d.drain(byFailure, "an actor has ended")
			return nil
		}
	}
}

// drain notes who stops the daemon and why. It stops accepting, lets open sessions go on for the
// drain time of the policy, and then resets those that remain. A second signal resets them at once.
func (d *daemon) drain(by caller, why string) {
	d.draining.Store(true)
	patience := d.keeper.stop(by, "why", why, "sessions", len(d.server.Sessions()))
	d.notify("STOPPING=1", "STATUS=draining for "+patience.String()+" at most")

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
