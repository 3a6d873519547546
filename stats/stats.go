// Package stats holds the counters of classes and listeners, under the names that tc
// uses: sent bytes and packets, dropped, overlimits, backlog. The data path counts what
// is frequent with atomics and what is rare under a lock. Anybody may read at any time.
//
// Each file calls only those below it:
//
//	totals     the sum over all listeners and classes
//	reading    Status and what it consists of: the counters at one moment, as JSON
//	fleet      a fleet, and what this process has of its classes
//	failures   why an upstream was not reached
//	label      the names of directions, reasons and results as text
//	stats      the counters of a class and of a listener
//	histogram  how long items waited
//	tally      rare events, counted by name
package stats

import "sync/atomic"

// Direction is one of the two ways through a session.
type Direction uint8

const (
	Upstream   Direction = iota // from the client to the upstream
	Downstream                  // from the upstream back to the client
	directions
)

var directionNames = [directions]string{"upstream", "downstream"}

// String returns the direction as a metric's label: "upstream" or "downstream".
func (d Direction) String() string { return directionNames[d] }

// Reason says why an item was dropped or refused.
type Reason uint8

const (
	QueueFull Reason = iota // the class's queue had no room
	MaxWait                 // it would have waited longer than max_wait
	Reset                   // its session was reset by a peer, or failed, while it waited
	Timeout                 // its session timed out while it waited
	Closed                  // an operator closed its session
	Stopped                 // the daemon stopped while it waited
	NoSession               // no session could be made for it
	reasons
)

var reasonNames = [reasons]string{"queue_full", "max_wait", "reset", "timeout", "closed", "stopped", "no_session"}

// String returns the reason as a metric's label, such as "queue_full".
func (r Reason) String() string { return reasonNames[r] }

// Volume counts what left a class in one direction.
type Volume struct {
	Bytes       atomic.Uint64 // payload
	Packets     atomic.Uint64 // datagrams
	Requests    atomic.Uint64 // messages, each counted once
	Messages    atomic.Uint64 // what they cost: an SMS of three parts may count as three
	Connections atomic.Uint64
	Tokens      atomic.Uint64
}

// Add counts more that left. A counter to which it adds 0 costs nothing.
func (v *Volume) Add(more VolumeReading) {
	addTo(&v.Bytes, more.Bytes)
	addTo(&v.Packets, more.Packets)
	addTo(&v.Requests, more.Requests)
	addTo(&v.Messages, more.Messages)
	addTo(&v.Connections, more.Connections)
	addTo(&v.Tokens, more.Tokens)
}

func addTo(counter *atomic.Uint64, n uint64) {
	if n > 0 {
		counter.Add(n)
	}
}

// Loss counts the items that were lost for one reason.
type Loss struct {
	Items atomic.Uint64
	Bytes atomic.Uint64 // payload of those items
}

// Add counts one lost item of n bytes of payload.
func (l *Loss) Add(n int64) { l.AddItems(1, n) }

// AddItems counts lost items that have n bytes of payload in total.
func (l *Loss) AddItems(items, n int64) {
	l.Items.Add(uint64(items))
	l.Bytes.Add(uint64(n))
}

// Lost counts what all classes of a process have lost, each item once. The zero Lost is ready to use.
type Lost struct {
	Dropped Loss
	Refused Loss
}

// Class holds the counters of one class and of all classes below it. The zero Class is
// ready to use. Every field is safe for concurrent use.
type Class struct {
	Sent       [directions]Volume
	Dropped    [reasons]Loss // the client was not told
	Refused    [reasons]Loss // the client was told, or its connection closed
	Overlimits atomic.Uint64 // items that had to wait
	Throttled  Tally[string] // messages that the provider refused, by one of Signals
	Retried    Tally[Retry]  // what became of those in a class with retry
	Hinted     Tally[string] // what became of the hints of a provider in a class with hints, by one of HintFates
	KeysShared atomic.Uint64 // sessions that share a bucket because max_keys leaves no bucket for their key
	// Wait is how long items waited in the queue. An item that left at once counts as 0.
	Wait Histogram
}

// Result is how a session ended.
type Result uint8

const (
	OK          Result = iota // both directions ended cleanly
	ResetByPeer               // a peer reset the connection, or it broke
	TimedOut                  // nothing moved for idle_timeout
	DialFailed                // no upstream could be reached
	Aborted                   // the client departed before the upstream was reached
	Overflow                  // refused: the queue of the class was full, or the wait too long
	ByOperator                // closed through the control socket
	Drained                   // reset at the end of the drain
	Unframed                  // a peer sent something that is not a message of the protocol, or is ambiguous
	Panicked                  // a bug in shaper closed this session, and no other
	TLSFailed                 // a handshake failed, or a peer ended TLS with an error
	NoHeader                  // a connection of accept_proxy has not begun with a PROXY header
	Aged                      // it was as old as max_session_age, or shaper stopped, and it ended between two messages
	Denied                    // an entry has refused the client: its login, its request or its destination
	results
)

var resultNames = [results]string{"ok", "reset", "timeout", "dial_failed", "aborted", "refused", "closed", "drained", "unframed", "panic", "tls_failed", "bad_proxy", "max_age", "denied"}

// String returns the result as a metric's label, such as "ok".
func (r Result) String() string { return resultNames[r] }

// Listener holds the counters of one listener. The zero Listener is ready to use. Every
// field is safe for concurrent use.
type Listener struct {
	Open         atomic.Int64       // sessions open now
	Sent         [directions]Volume // by all sessions, with and without a class
	Ended        [results]atomic.Uint64
	AcceptErrors atomic.Uint64 // failed calls of accept, for example for lack of descriptors; each is retried
	// SpliceRefused counts the directions of sessions that were copied because the
	// kernel refused to splice them.
	SpliceRefused atomic.Uint64
	Unframed      Tally[string] // sessions with the Result Unframed, by the reason
	Failed        Upstreams     // failed attempts to reach an upstream
	Stray         Tally[string] // datagrams of an entry that belong to no session, by one of Strays
}
