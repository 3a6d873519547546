// Package stats holds the counters of classes and listeners, under the names
// that tc uses: sent bytes and packets, dropped, overlimits, backlog. Counters
// are written by the data path without a lock and read at any time.
package stats

import "sync/atomic"

// Direction is the way that traffic goes through a session.
type Direction uint8

const (
	Upstream   Direction = iota // from the client to the upstream
	Downstream                  // from the upstream back to the client
	directions
)

var directionNames = [directions]string{"upstream", "downstream"}

// String returns the label of a metric: "upstream" or "downstream".
func (d Direction) String() string { return directionNames[d] }

// Reason says why an item was dropped or refused.
type Reason uint8

const (
	QueueFull Reason = iota // the class's queue had no room
	MaxWait                 // it would have waited longer than max_wait
	Reset                   // its session was reset by a peer, or failed, while it waited
	Timeout                 // its session timed out while it waited
	Closed                  // an operator closed its session
	Stopped                 // the daemon stopped before its turn
	NoSession               // no session could be made for it
	reasons
)

var reasonNames = [reasons]string{"queue_full", "max_wait", "reset", "timeout", "closed", "stopped", "no_session"}

// String returns the label of a metric.
func (r Reason) String() string { return reasonNames[r] }

// Volume counts what left a class in one direction.
type Volume struct {
	Bytes       atomic.Uint64 // payload
	Packets     atomic.Uint64 // datagrams
	Messages    atomic.Uint64
	Connections atomic.Uint64
}

// Add counts what has left. A counter that stays as it is costs nothing.
func (v *Volume) Add(more VolumeReading) {
	addTo(&v.Bytes, more.Bytes)
	addTo(&v.Packets, more.Packets)
	addTo(&v.Messages, more.Messages)
	addTo(&v.Connections, more.Connections)
}

func addTo(counter *atomic.Uint64, n uint64) {
	if n > 0 {
		counter.Add(n)
	}
}

// Loss counts what was lost for one reason.
type Loss struct {
	Items atomic.Uint64
	Bytes atomic.Uint64 // payload of those items
}

// Add counts one lost item of n bytes of payload.
func (l *Loss) Add(n int64) { l.AddItems(1, n) }

// AddItems counts lost items of n bytes of payload together.
func (l *Loss) AddItems(items, n int64) {
	l.Items.Add(uint64(items))
	l.Bytes.Add(uint64(n))
}

// Class is the counters of one class and of all beneath it. The zero Class is ready to
// use. All of it may be read and written concurrently.
type Class struct {
	Sent       [directions]Volume
	Dropped    [reasons]Loss // nobody was told
	Refused    [reasons]Loss // the client was told, or its connection closed
	Overlimits atomic.Uint64 // items that had to wait
	Throttled  Tally         // what the provider refused, by its signal
	KeysShared atomic.Uint64 // sessions whose key found no room, and that share a bucket
	// Wait is how long items waited in the queue; those that left at once count as 0.
	Wait Histogram
}

// Result is how a session ended.
type Result uint8

const (
	OK          Result = iota // both directions ended cleanly
	ResetByPeer               // a peer reset the connection, or it broke
	TimedOut                  // nothing moved for idle_timeout
	DialFailed                // no upstream could be reached
	Aborted                   // the client left before the upstream was reached
	Overflow                  // refused: the class's queue was full, or the wait too long
	ByOperator                // closed through the control socket
	Drained                   // reset at the end of the drain
	Unframed                  // what a peer sent was no message of the protocol, or might be read in two ways
	Panicked                  // a mistake of shaper; only this session was closed
	TLSFailed                 // a handshake failed, or a peer broke TLS off with an error
	results
)

var resultNames = [results]string{"ok", "reset", "timeout", "dial_failed", "aborted", "refused", "closed", "drained", "unframed", "panic", "tls_failed"}

// String returns the label of a metric.
func (r Result) String() string { return resultNames[r] }

// Listener is the counters of one listener. The zero Listener is ready to use.
type Listener struct {
	Open         atomic.Int64       // sessions open now
	Sent         [directions]Volume // of all sessions, whether a class counts it or not
	Ended        [results]atomic.Uint64
	AcceptErrors atomic.Uint64 // accept failed, as for want of descriptors; it was tried again
	// SpliceRefused is directions of sessions whose bytes the kernel would not
	// splice, and that were copied instead.
	SpliceRefused atomic.Uint64
	Unframed      Tally // sessions that ended since their bytes were no messages, by reason
	Failed        Upstreams
}
