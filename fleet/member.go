package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shaper/limit"
)

// A Member is a live member of a class: it drives a Machine by the clock, and sends its calls to a Store.
// It is safe for concurrent use.
type Member struct {
	store *Store
	tell  func(key string)
	kick  chan struct{} // the loop has to look again
	calls chan Call     // to the senders
	ended chan answer   // from them
	stop  context.CancelFunc
	// hangUp ends the calls that are on their way.
	hangUp context.CancelFunc
	// ledger keeps what is used of the shares of windows; nil: nothing does.
	ledger Ledger
	wg     sync.WaitGroup

	// mu guards the fields below, and all leases. It is taken after the lock of a tree of classes, and no
	// other lock is taken while it is held but that of the ledger.
	mu       sync.Mutex
	machine  *Machine
	nap      nap
	sleeps   time.Time                       // when the loop looks again by itself
	pending  int                             // calls that have not ended
	told     []string                        // keys of the leases that have changed
	watch    func(was, is Status, err error) // see Watch; nil: nobody is told
	seen     Status                          // that watch was told last
	causes   []string                        // why the store is away, as watch was told
	failed   error                           // why the store is away; nil: it is not
	total    int64                           // calls so far
	failures int64                           // of these
}

type answer struct {
	call  Call
	reply Reply
	err   error
}

// maxPending is how many calls may wait for the store at once.
const maxPending = 64

// spoken is not smaller than the number of any call of this process. A member that comes again under its name has larger
// numbers than before, even if somebody has set the clock back since then.
var spoken atomic.Int64

func init() { spoken.Store(time.Now().UnixMicro()) }

// lastWords is how many calls a member may make after another has come under its name.
const lastWords = 1000

// note notes the number of the last call.
func note(seq int64) {
	for was := spoken.Load(); seq > was && !spoken.CompareAndSwap(was, seq); was = spoken.Load() {
	}
}

// A Ledger keeps the debts of a member for the process that comes after this one under its name.
type Ledger interface {
	// Debts returns what the process before has kept.
	Debts() []Debt
	// Keep keeps a debt in the place of the last one of its key; 0 units: none. It returns at once. Later, when the debt
	// cannot be forgotten any more, it calls kept, without locks.
	Keep(d Debt, kept func())
}

// Join makes a member of a class, under a name that no other has. It connects later. tell is called
// without locks, in a goroutine of the Member, when more may leave from the budget of a key, or sooner. If the class
// has a window, and a member may be killed and come again under its name, ledger has to be what it had then. Otherwise
// ledger may be nil.
func Join(class Class, name string, fallback Fallback, store *Store, ledger Ledger, tell func(key string)) (*Member, error) {
	m := &Member{store: store, tell: tell, ledger: ledger, nap: newNap(suspended), kick: make(chan struct{}, 1), calls: make(chan Call, maxPending), ended: make(chan answer, maxPending)}
	changed := func(l *Lease, _ time.Time) { m.told = append(m.told, l.key) }
	var err error
	if m.machine, err = NewMachine(class, name, fallback, spoken.Load()+lastWords, changed); err != nil {
		return nil, err
	}
	if ledger != nil {
		m.machine.absence.keep(time.Now(), ledger.Debts())
	}
	store.use()
	ctx, stop := context.WithCancel(context.Background())
	calling, hangUp := context.WithCancel(context.Background())
	m.stop, m.hangUp = stop, hangUp
	for range maxConns {
		m.wg.Go(func() { m.send(ctx, calling) })
	}
	m.wg.Go(func() { m.loop(ctx) })
	return m, nil
}

// keep has the ledger keep a debt.
func (m *Member) keep(c Call) {
	m.ledger.Keep(Debt{c.Key, c.Wanted, c.at.Add(c.Lasts)}, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		now := time.Now()
		m.machine.Answer(now, &c, &Reply{})
		m.wake(now)
	})
}

// loop drives the machine.
func (m *Member) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.kick:
		case <-timer.C:
		case a := <-m.ended:
			m.take(a)
		}
		timer.Reset(m.poll())
		m.tellAll()
	}
}

// take hands an answer to the machine.
func (m *Member) take(a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending--
	now := time.Now()
	m.look(now)
	if a.err != nil {
		m.failed = a.err
		m.failures++
		m.machine.Fail(now, &a.call)
		return
	}
	away := m.machine.link.down
	m.machine.Answer(now, &a.call, &a.reply)
	switch {
	case !m.machine.link.down:
		m.failed = nil
	case !away:
		m.failed = fmt.Errorf("fleet: %s: the answer took %v, too long to know the clock of the store: see deadline in the policy", a.call.Op, now.Sub(a.call.at).Round(time.Millisecond))
	}
}

// poll sends what is due, and returns for how long there is nothing to do.
func (m *Member) poll() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.look(now)
	for m.pending < maxPending {
		c, ok := m.machine.Poll(now)
		if !ok {
			break
		}
		if c.Op == Keep {
			m.keep(c)
			continue
		}
		m.pending++
		m.total++
		m.calls <- c
	}
	note(m.machine.seq)
	m.sleeps = m.machine.Wake(now)
	if m.pending == maxPending {
		m.sleeps = limit.Never // the next answer comes first
	}
	return max(m.sleeps.Sub(now), 0)
}

// Watch makes the Member call a function, without locks, when the budget comes from somewhere else than
// before, when the deadlines of the members change, and when the store is away for another reason than any that the
// function has heard: with what held, what holds, and why the store is away if the mode or that is new. Call it right after Join.
func (m *Member) Watch(watch func(was, is Status, err error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watch = watch
}

// tellAll calls watch and tell for all that has changed. No lock is held.
func (m *Member) tellAll() {
	m.mu.Lock()
	keys, watch := m.told, m.watch
	m.told = nil
	var was, is Status
	var err error
	if watch != nil { // it hears also of what came before it
		was, is = m.seen, m.machine.Status(time.Now())
		m.seen, err = is, m.news(was.Mode, is.Mode)
	}
	m.mu.Unlock()
	if same := is.Mode == was.Mode && is.Shortest == was.Shortest && is.Longest == was.Longest && err == nil; !same {
		watch(was, is, err)
	}
	for _, key := range keys {
		m.tell(key)
	}
}

// maxCauses is how many causes watch hears of while the store is away: some errors have a time in their text, and so are new each time.
const maxCauses = 8

// news returns why the store is away, if the mode or the cause is new. The caller holds mu.
func (m *Member) news(was, is Mode) error {
	if is == FromStore {
		m.causes = nil
	}
	if is == FromStore || m.failed == nil {
		return nil
	}
	cause := causeOf(m.failed)
	isNew := len(m.causes) < maxCauses && !slices.Contains(m.causes, cause)
	if isNew {
		m.causes = append(m.causes, cause)
	}
	if isNew || is != was {
		return m.failed
	}
	return nil
}

// causeOf returns the innermost error of a call: those around it say which call and which connection it was, and differ each time.
func causeOf(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// send sends calls, one after the other. Several goroutines run it, so that no call waits for the answer of
// another one. A call that is on its way when ctx ends may go on until calling ends: the last word of the member needs its connection.
func (m *Member) send(ctx, calling context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-m.calls:
			r, err := m.store.Do(calling, &c)
			m.ended <- answer{c, r, err}
		}
	}
}

// look notes whether the machine was suspended. The caller holds mu.
func (m *Member) look(now time.Time) {
	if m.nap.over(now) {
		m.machine.Slept(now)
		m.wake(now)
	}
}

// wake makes the loop look again if something is due before it would. The caller holds mu.
func (m *Member) wake(now time.Time) {
	if !m.machine.Wake(now).Before(m.sleeps) {
		return
	}
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Slow says that the provider has refused something of a key as too fast: no member gets anything of it for
// a time. The key "" is the class as a whole.
func (m *Member) Slow(key string, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.machine.Slow(now, key, wait)
	m.wake(now)
}

// PausedUntil returns until when the provider wants nothing of a key, as any member has heard it.
func (m *Member) PausedUntil(key string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.Pausing(key)
}

// Set puts another rate in force; see Machine.Set.
func (m *Member) Set(class Class, fallback Fallback) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	err := m.machine.Set(now, class, fallback)
	m.wake(now)
	return err
}

// Status returns the state of the member, and why the store is away.
func (m *Member) Status() (s Status, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.Status(time.Now()), m.failed
}

// Counts returns the totals of all budgets, and how many units are in hand.
func (m *Member) Counts() (all Counts, leased int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.Counts(), m.machine.Leased(time.Now())
}

// Calls returns how many calls the member has made, and how many of these have failed.
func (m *Member) Calls() (all, failed int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, m.failures
}

// Peers asks the store for all members of the class. It takes at most the deadline of a call.
func (m *Member) Peers(ctx context.Context) ([]Peer, error) {
	m.mu.Lock()
	class := m.machine.class.Name
	m.mu.Unlock()
	return m.store.Peers(ctx, class)
}

// Reach makes the calls that connect from now on use another user, password and TLS; see Store.Reach.
func (m *Member) Reach(as Config) { m.store.Reach(as) }

// Name returns the name of the member.
func (m *Member) Name() string { return m.machine.member }
