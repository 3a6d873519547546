package daemon

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// engine puts policies in force for a keeper, which calls it under its mu, except for read.
type engine interface {
	// read reads the files that a policy names. It may take long, and changes nothing.
	read(*policy.Policy) files
	// prepare builds what a policy needs beside what runs, with its files. On an error nothing has
	// changed. Else commit puts the policy in force, and cannot fail.
	prepare(*policy.Policy, files) (commit func(), err error)
	// set puts a policy in force that differs from the one before only in these classes.
	set(p *policy.Policy, classes []policy.Class)
}

// keeper owns what is in force. Every change goes through it, one at a time. The locks are
// taken in the order: loading, mu, those of the engine.
type keeper struct {
	// Set by newKeeper, read by all.
	path   string
	engine engine
	log    *slog.Logger
	notify func(state ...string) // tells the service manager

	loading sync.Mutex // held by a reload from before it reads the policy and its files, which may take long

	mu      sync.Mutex // held during a change; guards the fields below
	current regime
	looked  time.Time        // when somebody last put in force what schedules say
	pending *pendingRollback // nil: no reload waits for a confirm
	outcome stats.ReloadReading
	stopped bool

	history history // has a lock of its own

	view  atomic.Pointer[view] // stored under mu; readers load it and never wait for a change
	rearm chan struct{}        // wakes run: the next deadline may have changed; capacity 1
}

// pendingRollback says how a reload is undone that nobody has confirmed yet.
type pendingRollback struct {
	at   time.Time // when the reload is undone
	back regime    // what was confirmed last
}

// view is what is in force, as readers see it. It does not change; publish makes a new one.
type view struct {
	regime
	outcome  stats.ReloadReading
	rollback time.Time // when the last reload is undone; zero: never
}

func newKeeper(path string, e engine, log *slog.Logger, notify func(...string)) *keeper {
	return &keeper{path: path, engine: e, log: log, notify: notify, rearm: make(chan struct{}, 1)}
}

// ErrStopping and ErrNothingToConfirm are errors of changes that come at the wrong time.
var (
	ErrStopping         = errors.New("shaper is stopping")
	ErrNothingToConfirm = errors.New("nothing to confirm: no reload with --rollback-after is pending")
)

// start puts the first policy in force. Run calls it before anything else uses the keeper.
func (k *keeper) start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, warnings, err := policy.Load(k.path)
	if err != nil {
		return err
	}
	first := newRegime(p, warnings, k.engine.read(p))
	commit, err := k.engine.prepare(p, first.files)
	if err != nil {
		return err
	}
	k.current, k.looked = first, time.Now()
	k.keep(byStart, Record{What: "start"})
	k.noteOutcome(nil)
	k.publish() // before commit, which lets readers in
	commit()
	return nil
}

// stop refuses all changes from now on, and returns how long the policy lets sessions go on. Sets still end, and
// schedules hold. stop waits until a change under way has ended. about says more for the log.
func (k *keeper) stop(by caller, about ...any) (drain time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	drain = time.Duration(k.current.policy.Daemon.Drain)
	k.logChange(by, Record{What: "stopping", Changes: []policy.Change{{Op: "~", What: "daemon", Key: "state", Old: Running, New: Draining}}},
		append(about, "drain", drain)...)
	if k.stopped = true; k.pending != nil {
		k.log.Warn("shaper stops before the last reload was confirmed; the next start uses the policy file as it is then")
	}
	return drain
}

// enforce puts a regime in force. On an error it changes nothing. The caller holds mu and
// calls publish.
func (k *keeper) enforce(next regime) error {
	commit, err := k.engine.prepare(next.policy, next.files)
	if err != nil {
		return err
	}
	k.looked = time.Now()
	commit()
	k.current = next
	return nil
}

// publish shows readers what is in force, and wakes run to look at the deadlines. The caller
// holds mu.
func (k *keeper) publish() {
	v := &view{regime: k.current, outcome: k.outcome}
	if k.pending != nil {
		v.rollback = k.pending.at
	}
	k.view.Store(v)
	select {
	case k.rearm <- struct{}{}:
	default:
	}
}

// Reloaded is the answer to a reload.
type Reloaded struct {
	Hash     string          `json:"hash"`
	Files    []string        `json:"files"` // of the policy
	Changes  []policy.Change `json:"changes"`
	Warnings policy.Errors   `json:"warnings"`
	// Rollback is when the reload is undone if nobody confirms it; zero: never.
	Rollback time.Time `json:"rollback_at,omitzero"`
}

// reload reads the policy file again and puts it in force. This ends all sets. On an error
// nothing changes. If rollback is above 0 and nobody calls confirm within that time, what was
// confirmed last comes back. If it is 0, the reload itself counts as confirmed.
func (k *keeper) reload(by caller, rollback time.Duration) (Reloaded, error) {
	k.loading.Lock()
	defer k.loading.Unlock()
	k.notify(reloadingState()...)
	p, warnings, err := policy.Load(k.path)
	var next regime
	if err == nil {
		next = newRegime(p, warnings, k.engine.read(p))
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return Reloaded{}, ErrStopping
	}
	defer func() { k.notify("READY=1", inForceState(k.current.policy.Hash)) }()
	before := k.current
	if err == nil {
		err = k.enforce(next)
	}
	k.noteOutcome(err)
	if err != nil {
		k.publish()
		k.logRejection(by, err)
		return Reloaded{}, err
	}
	k.armRollback(before, rollback)
	k.publish()
	done := Reloaded{Hash: p.Hash, Files: p.Files(), Changes: append([]policy.Change{}, policy.Diff(before.policy, p)...),
		Warnings: append(policy.Errors{}, warnings...)}
	if k.pending != nil {
		done.Rollback = k.pending.at
	}
	k.logChange(by, Record{What: "reload", Changes: done.Changes}, "files", p.Files())
	return done, nil
}

// noteOutcome records the outcome of an attempt to load the policy file. The caller holds mu.
func (k *keeper) noteOutcome(err error) {
	k.outcome.Time, k.outcome.OK, k.outcome.Error = time.Now(), err == nil, ""
	if err != nil {
		k.outcome.Error = firstLines(err.Error(), mostReported)
		return
	}
	k.outcome.Succeeded = k.outcome.Time
}

// armRollback makes a reload end after a time unless it is confirmed; 0 confirms it at once.
// If an earlier reload is still unconfirmed, the rollback goes to what was in force before
// that one. The caller holds mu.
func (k *keeper) armRollback(before regime, after time.Duration) {
	if after <= 0 {
		k.pending = nil
		return
	}
	if k.pending != nil {
		before = k.pending.back
	}
	k.pending = &pendingRollback{at: time.Now().Add(after), back: before}
}

// Confirmed is the answer to a confirm.
type Confirmed struct {
	Hash string `json:"hash"` // of the policy that stays
}

// confirm keeps what the last reload has put in force, for good.
func (k *keeper) confirm(by caller) (Confirmed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stopped:
		return Confirmed{}, ErrStopping
	case k.pending == nil:
		return Confirmed{}, ErrNothingToConfirm
	}
	k.pending = nil
	k.publish()
	k.logChange(by, Record{What: "confirm"})
	return Confirmed{k.current.policy.Hash}, nil
}

// Changed is the answer to a set.
type Changed struct {
	Changes  []policy.Change `json:"changes"`
	Warnings policy.Errors   `json:"warnings"`
	Until    time.Time       `json:"until,omitzero"` // zero: until the next reload
}

// set changes values of a class until the next reload, or for a time if that is above 0.
func (k *keeper) set(by caller, class string, values map[string]string, lasts time.Duration) (Changed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return Changed{}, ErrStopping
	}
	s := Set{Class: class, Values: values}
	var until any = "the next reload"
	if lasts > 0 {
		s.Until = time.Now().Add(lasts)
		until = s.Until
	}
	next, warnings, err := k.current.with(s)
	if err != nil {
		kept := k.keep(by, Record{What: "set rejected", Error: err.Error()})
		k.log.Warn("set rejected", append([]any{"by", by.String(), "class", class, "err", err}, kept.where()...)...)
		return Changed{}, err
	}
	changes := k.enforceSets(next)
	k.logChange(by, Record{What: "set", Changes: changes, Until: s.Until}, "class", class, "until", until)
	return Changed{append([]policy.Change{}, changes...), append(policy.Errors{}, warnings...), s.Until}, nil
}

// enforceSets puts a regime in force that differs from the current one only in its sets, and
// returns the changes. The caller holds mu.
func (k *keeper) enforceSets(next regime) []policy.Change {
	changes := policy.Diff(k.current.policy, next.policy)
	var classes []policy.Class
	for i, c := range next.policy.Classes {
		if !k.current.policy.Classes[i].Equal(c) { // both have the classes of one file in its order
			classes = append(classes, c)
		}
	}
	k.engine.set(next.policy, classes)
	k.current = next
	k.publish()
	return changes
}
