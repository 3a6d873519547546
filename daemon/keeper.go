package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// engine puts policies in force: all that a keeper needs of the sockets.
type engine interface {
	// prepare builds aside what a policy needs and changes nothing that runs.
	// Commit, which cannot fail, puts it in force.
	prepare(*policy.Policy) (commit func(), err error)
	// set puts classes of a policy in force that differ from the one before in
	// nothing else.
	set(p *policy.Policy, classes []policy.Class)
}

// keeper owns what is in force. Every change goes through it, one at a time.
type keeper struct {
	path   string
	engine engine
	log    *slog.Logger
	notify func(state ...string) // the service manager

	loading sync.Mutex // held while a reload reads the file, which may take its time; before mu
	mu      sync.Mutex // held during a change
	now     regime
	undo    *undo // nil: nothing waits to be confirmed
	outcome stats.ReloadReading
	stopped bool

	view  atomic.Pointer[view] // for readers, who never wait for a change
	moved chan struct{}        // of capacity 1: the next deadline may be another
}

// undo is a reload that has not been confirmed.
type undo struct {
	at time.Time // when it is undone
	to regime    // what was confirmed last
}

// view is what is in force, for readers. It does not change.
type view struct {
	regime
	outcome  stats.ReloadReading
	rollback time.Time // zero: nothing waits to be confirmed
}

func newKeeper(path string, e engine, log *slog.Logger, notify func(...string)) *keeper {
	return &keeper{path: path, engine: e, log: log, notify: notify, moved: make(chan struct{}, 1)}
}

// Errors of changes that come at the wrong time.
var (
	ErrStopping         = errors.New("shaper is stopping")
	ErrNothingToConfirm = errors.New("nothing waits to be confirmed: no reload with --rollback-after is pending")
)

// start puts the first policy in force.
func (k *keeper) start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, warnings, err := policy.Load(k.path)
	if err != nil {
		return err
	}
	commit, err := k.engine.prepare(p)
	if err != nil {
		return err
	}
	k.now = newRegime(p, warnings)
	k.note(nil)
	k.publish() // first, since commit lets readers in
	commit()
	return nil
}

// stop refuses all changes from now on. It waits for one that is being made.
func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped = true; k.undo != nil {
		k.log.Warn("stopping before the last reload was confirmed: the next start takes the file as it is")
	}
}

// enter puts a regime in force, or changes nothing.
func (k *keeper) enter(next regime) error {
	commit, err := k.engine.prepare(next.policy)
	if err != nil {
		return err
	}
	commit()
	k.now = next
	return nil
}

// publish lets readers see what is in force, and the deadlines be looked at.
func (k *keeper) publish() {
	v := &view{regime: k.now, outcome: k.outcome}
	if k.undo != nil {
		v.rollback = k.undo.at
	}
	k.view.Store(v)
	select {
	case k.moved <- struct{}{}:
	default:
	}
}

// Reloaded is the answer to a reload.
type Reloaded struct {
	Hash     string          `json:"hash"`
	Changes  []policy.Change `json:"changes"`
	Warnings policy.Errors   `json:"warnings"`
	// Rollback is when the reload is undone unless it is confirmed; zero: never.
	Rollback time.Time `json:"rollback_at,omitzero"`
}

// reload reads the policy file again and puts it in force, without what was
// set. On any error nothing has changed. With a rollback time above 0, what was
// confirmed last comes back after it, unless confirm is called before; without,
// the reload confirms what came before it.
func (k *keeper) reload(by caller, rollback time.Duration) (Reloaded, error) {
	k.loading.Lock()
	defer k.loading.Unlock()
	k.notify(reloading()...)
	p, warnings, err := policy.Load(k.path)

	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return Reloaded{}, ErrStopping
	}
	defer func() { k.notify("READY=1", inForce(k.now.policy.Hash)) }()
	before := k.now
	if err == nil {
		err = k.enter(newRegime(p, warnings))
	}
	k.note(err)
	if err != nil {
		k.publish()
		k.rejected(by, err)
		return Reloaded{}, err
	}
	k.expectConfirmation(before, rollback)
	k.publish()
	done := Reloaded{Hash: p.Hash, Changes: append([]policy.Change{}, policy.Diff(before.policy, p)...),
		Warnings: append(policy.Errors{}, warnings...)}
	if k.undo != nil {
		done.Rollback = k.undo.at
	}
	k.changed(by, "reload", done.Changes, "before", before.policy.Hash, "after", p.Hash)
	return done, nil
}

// note keeps the outcome of an attempt to put a policy in force.
func (k *keeper) note(err error) {
	k.outcome.Time, k.outcome.OK, k.outcome.Error = time.Now(), err == nil, ""
	if err != nil {
		k.outcome.Error = firstLines(err.Error(), mostKept)
		return
	}
	k.outcome.Succeeded = k.outcome.Time
}

// mostKept bounds the errors that the status repeats. All of them went to who
// asked for the reload.
const mostKept = 10

// firstLines returns the first lines of a text, and how many there are more.
func firstLines(text string, most int) string {
	lines := strings.SplitN(text, "\n", most+1)
	if len(lines) <= most {
		return text
	}
	more := 1 + strings.Count(lines[most], "\n")
	return fmt.Sprintf("%s\nand %d more; shaper check shows them", strings.Join(lines[:most], "\n"), more)
}

// expectConfirmation arms the rollback to what was confirmed last: where that
// still waits, not what lies between.
func (k *keeper) expectConfirmation(before regime, after time.Duration) {
	if after <= 0 {
		k.undo = nil
		return
	}
	if k.undo != nil {
		before = k.undo.to
	}
	k.undo = &undo{at: time.Now().Add(after), to: before}
}

// Confirmed is the answer to a confirm.
type Confirmed struct {
	Hash string `json:"hash"` // of the policy that stays
}

// confirm keeps what the last reload has put in force.
func (k *keeper) confirm(by caller) (Confirmed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stopped:
		return Confirmed{}, ErrStopping
	case k.undo == nil:
		return Confirmed{}, ErrNothingToConfirm
	}
	k.undo = nil
	k.publish()
	k.changed(by, "confirm", nil, "after", k.now.policy.Hash)
	return Confirmed{k.now.policy.Hash}, nil
}

// Changed is the answer to a set.
type Changed struct {
	Changes []policy.Change `json:"changes"`
	Until   time.Time       `json:"until,omitzero"` // zero: until the next reload
}

// set puts other values of a class in force, until the next reload or for a
// time.
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
	next, err := k.now.with(s)
	if err != nil {
		k.log.Warn("set rejected", "by", by.String(), "class", class, "values", values, "err", err)
		return Changed{}, err
	}
	changes := k.adopt(next)
	k.changed(by, "set", changes, "class", class, "until", until)
	return Changed{append([]policy.Change{}, changes...), s.Until}, nil
}

// adopt puts a regime in force that differs from the current one only in what
// is set.
func (k *keeper) adopt(next regime) []policy.Change {
	changes := policy.Diff(k.now.policy, next.policy)
	var classes []policy.Class
	for i, c := range next.policy.Classes {
		if k.now.policy.Classes[i] != c { // of one file, and so in one order
			classes = append(classes, c)
		}
	}
	k.engine.set(next.policy, classes)
	k.now = next
	k.publish()
	return changes
}
