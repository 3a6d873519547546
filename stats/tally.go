package stats

import (
	"maps"
	"sync"
)

// SignalInAnswer is the signal of an answer that says "too fast" as the policy describes.
const SignalInAnswer = "throttled_by"

// Signals are how providers say "too fast": the command_status of SMPP, its
// congestion_state, the status code of HTTP, and what the policy describes.
var Signals = []string{"0x14", "0x58", "congestion", "429", "503", SignalInAnswer}

// Refusals are the Signals by which a provider refuses one message, so that it may be sent again.
var Refusals = []string{"0x14", "0x58", "429", SignalInAnswer}

// Retry is what becomes of a message that a provider has refused as too fast, in a class with retry.
type Retry struct {
	Outcome string // one of Retries
	Signal  string // one of Refusals
}

// Retries are the outcomes of a Retry.
var Retries = []string{RetryAgain, RetryLast, RetryTooLong, RetryNotKept}

// The members of Retries.
const (
	RetryAgain   = "again"    // sent again
	RetryLast    = "last"     // refused as often as retry allows: the client has the refusal
	RetryTooLong = "too_long" // would have had to wait too long, or its class is gone
	RetryNotKept = "not_kept" // too large to be kept, or not to be sent again
)

// HintFates are what becomes of what answers say of the limits of a provider, in a class with hints.
var HintFates = []string{HintTaken, HintUnclear, HintOtherUnit}

// The members of HintFates.
const (
	HintTaken     = "taken"      // the class keeps to it
	HintUnclear   = "unclear"    // makes no sense
	HintOtherUnit = "other_unit" // of something that the class does not count
)

// Strays are why a datagram of an entry belongs to no session.
var Strays = []string{StrayHeader, StrayFragment, StraySource, StrayDenied, StrayName, StrayMany}

// The members of Strays.
const (
	StrayHeader   = "header"   // it has no valid SOCKS header
	StrayFragment = "fragment" // it is a fragment, and SOCKS need not reassemble
	StraySource   = "source"   // another than the client of the relay has sent it
	StrayDenied   = "denied"   // the policy does not allow its destination
	StrayName     = "name"     // its destination has no address, or too many datagrams wait for one
	StrayMany     = "many"     // the client has too many destinations
)

// Tally counts rare events of a few kinds, such as Signals. The zero Tally is empty, ready to
// use and safe for concurrent use.
type Tally[K comparable] struct {
	mu     sync.Mutex // guards counts
	counts map[K]uint64
}

// Add counts one event.
func (t *Tally[K]) Add(kind K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[K]uint64{}
	}
	t.counts[kind]++
}

// Sum returns how many events there were.
func (t *Tally[K]) Sum() (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, count := range t.counts {
		n += count
	}
	return n
}

// Read returns the counts, without those that are 0.
func (t *Tally[K]) Read() map[K]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
