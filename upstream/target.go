package upstream

import (
	"sync/atomic"
	"time"

	"shaper/policy"
)

// A Target is one address of an upstream: what is known of it, and how many sessions lead there.
// Where clients choose the addresses, each session has a target of its own, and total counts
// them all.
type Target struct {
	// Set when it is made.
	group   *Group
	entry   *entry
	address Address
	total   *Target // counts the sessions, requests and failures instead; nil: the target does

	sessions atomic.Int64 // that have it, or have chosen it
	inFlight atomic.Int64 // requests without an answer
	answers  atomic.Bool  // it has answered since it was ejected last; of an upstream of datagrams

	// The lock of the group guards the fields below.
	state    State
	since    time.Time // of the state; zero: since the beginning
	risen    time.Time // when it came back; zero: it never was away
	good     int       // checks in a row that have succeeded
	bad      int       // checks in a row that have failed
	failures uint64    // attempts and checks that have failed
	err      error     // of the last one
	turn     int64     // what it has gained; see inWeightedTurn
	doubted  bool      // no check has succeeded since Doubted
	refusals int       // tries in a row that were refused; of an upstream of datagrams
}

// State is what is known of an address.
type State uint8

// The values of State.
const (
	Up      State = iota // as far as is known
	Ejected              // a session could not reach it; checks bring it back
	Down                 // checks have failed; checks bring it back
)

// String returns the state as people see it: "up", "ejected" or "down".
func (s State) String() string { return [...]string{"up", "ejected", "down"}[s] }

// Address returns where it is.
func (t *Target) Address() Address { return t.address }

// name returns the address as text; the unix socket or the built-in upstream if there is none.
func (t *Target) name() string {
	if t.address.IsValid() {
		return t.address.AddrPort.String()
	}
	return t.entry.upstream
}

// counter returns the target that counts: total, or t itself.
func (t *Target) counter() *Target {
	if t.total != nil {
		return t.total
	}
	return t
}

// Quit gives back the session that a Walk has counted, and that Walk.Keep returned. t may be
// nil. Any goroutine may call it, once.
func (t *Target) Quit() {
	if t != nil {
		t.counter().sessions.Add(-1)
	}
}

// AddInFlight counts n more requests without an answer; n is negative for those that have their
// answer. t may be nil. Any goroutine may call it.
func (t *Target) AddInFlight(n int) {
	if t != nil && n != 0 {
		t.counter().inFlight.Add(int64(n))
	}
}

// Answered notes that an upstream of datagrams has answered. t may be nil. Any goroutine may call it.
func (t *Target) Answered() {
	if t == nil {
		return
	}
	if t = t.counter(); !t.answers.Load() {
		t.answers.Store(true)
	}
}

// provenAfter is how long an upstream of datagrams has to be up without a refusal to count as well, if it never answers.
const provenAfter = time.Hour

// noteTry notes that the target is being ejected, although it was up: the last try was in vain, unless it has been well since.
// The lock of the group is held.
func (t *Target) noteTry(now time.Time) {
	if t.answers.Swap(false) || t.risen.IsZero() || now.Sub(t.risen) > provenAfter {
		t.refusals = 0
	} else {
		t.refusals++
	}
}

// longestPause bounds how long an upstream of datagrams is not tried.
const longestPause = 5 * time.Minute

// checksBeforeTry returns how many checks, which say nothing of an upstream of datagrams, are to pass before it is tried again:
// twice as many each time that a try is in vain, until it answers a session that it still has. The lock of the group is held.
func (t *Target) checksBeforeTry(terms policy.Health) int {
	if t.answers.Load() {
		return terms.Rise
	}
	most := int(longestPause / time.Duration(terms.Every))
	n := terms.Rise
	for i := 0; i < t.refusals && n < most; i++ {
		n *= 2
	}
	return max(min(n, most), terms.Rise)
}

// set changes the state. The lock of the group is held.
func (t *Target) set(now time.Time, s State) {
	if t.state == s {
		return
	}
	t.state, t.since, t.good, t.bad = s, now, 0, 0
	if s == Up {
		t.risen = now
	}
}

// checked notes the result of a check: after rise good checks in a row the target is up, after
// fall bad ones it is down. It reports whether the state has changed. The lock of the group is
// held.
func (t *Target) checked(now time.Time, err error, rise, fall int) bool {
	before := t.state
	if err != nil {
		t.failures++
		t.err = err
		t.good = 0
		if t.bad++; t.bad >= fall && t.state != Down {
			t.set(now, Down)
		}
	} else {
		t.bad, t.doubted = 0, false
		if t.good++; t.good >= rise && t.state != Up {
			t.set(now, Up)
		}
	}
	return t.state != before
}

// slowStart is how long an address that comes back gets less than its weight: from a tenth of
// it, and more as time passes.
const slowStart = 30 * time.Second

// weight returns the weight of the upstream in the policy times that of the SRV record, where 0
// and no record count as 1, in thousandths: a slow start needs the fractions. It is at least 1.
// The lock of the group is held.
func (t *Target) weight(now time.Time) int64 {
	w := 1000 * int64(t.entry.weight) * int64(max(t.address.Weight, 1))
	if back := now.Sub(t.risen); !t.risen.IsZero() && back < slowStart {
		w = max(w/10, w*int64(back/time.Millisecond)/slowStart.Milliseconds())
	}
	return max(w, 1)
}
