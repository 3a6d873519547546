package stats

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Seconds is a duration that JSON holds as a number of seconds. In JSON, Never is null.
type Seconds time.Duration

// Never is a duration without end, such as the time to drain a class whose rate is 0.
const Never Seconds = math.MaxInt64

// MarshalJSON writes 1500 ms as 1.5.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if s == Never {
		return []byte("null"), nil
	}
	return json.Marshal(time.Duration(s).Seconds())
}

// UnmarshalJSON reads what MarshalJSON writes. Up to 100 days it is exact to a nanosecond.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*s = Never
		return nil
	}
	seconds, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil:
		return err
	case seconds >= time.Duration(Never).Seconds():
		*s = Never
	default:
		*s = Seconds(math.Round(seconds * 1e9))
	}
	return nil
}

// RateReading is a rate as text for people and as a number for programs.
type RateReading struct {
	Text      string  `json:"text"`       // "20mbit", "30 messages/s"
	PerSecond float64 `json:"per_second"` // in Unit
	Unit      string  `json:"unit"`       // "bytes", "packets", "messages", "connections" or "tokens"
}

// VolumeReading is a Volume at one moment.
type VolumeReading struct {
	Bytes       uint64 `json:"bytes"` // payload
	Packets     uint64 `json:"packets"`
	Requests    uint64 `json:"requests,omitempty"` // messages, each counted once
	Messages    uint64 `json:"messages"`           // what they cost
	Connections uint64 `json:"connections"`
	Tokens      uint64 `json:"tokens,omitempty"`
}

// LossReading is a Loss at one moment.
type LossReading struct {
	Items uint64 `json:"items"`
	Bytes uint64 `json:"bytes"` // payload
}

// ClassReading is the state of a class and all classes below it at one moment. Read fills
// in the counters; the caller, who knows the policy in force, fills in the other groups.
type ClassReading struct {
	// What the policy says of the class.
	Name      string       `json:"name"`
	Parent    string       `json:"parent,omitempty"`
	Algorithm string       `json:"algorithm"`
	Rate      RateReading  `json:"rate"`
	Ceil      *RateReading `json:"ceil,omitempty"`   // nil if the rate is the limit
	Priority  int          `json:"priority"`         // among its siblings
	Weight    int          `json:"weight"`           // among its siblings
	Burst     string       `json:"burst,omitempty"`  // as in the policy; "" if the algorithm has none
	Window    string       `json:"window,omitempty"` // in force; "" if the algorithm has none
	Also      []string     `json:"also,omitempty"`   // further limits, as in the policy
	Shared    string       `json:"shared,omitempty"` // the fleet that has the budget; "": this process
	Mode      string       `json:"mode,omitempty"`   // of a shared class: "store", "share" or "stopped"
	Sessions  int          `json:"sessions"`         // open now, in the class and below it

	// For a class that counts messages.
	InFlight    int       `json:"in_flight,omitempty"`          // requests without an answer
	PausedUntil time.Time `json:"paused_until,omitzero"`        // zero if the class is not paused
	Share       float64   `json:"share,omitempty"`              // of the rate at which the class is paced; below 1 while it adapts, or if it has learned that
	Retry       int       `json:"retry,omitempty"`              // how often a message is sent again that the provider has refused; 0: never
	Learned     float64   `json:"learned_per_second,omitempty"` // the limit that it has found below its rate; 0 if it has found none

	// Its buckets and its backlog.
	Per     string  `json:"per,omitempty"`         // what has a bucket of its own, as in the policy; "" if all share one
	Keys    int     `json:"keys,omitempty"`        // keys that have a bucket, or are remembered
	MaxKeys int     `json:"max_keys,omitempty"`    // how many keys there may be
	Drain   Seconds `json:"time_to_drain_seconds"` // until the last of what waits in it and beneath it has left, as an estimate

	// Quotas are what remains of its windows that last a minute or longer.
	Quotas []QuotaReading `json:"quotas,omitempty"`

	// The counters, which Read fills in.
	Sent       map[Direction]VolumeReading `json:"sent"`
	Dropped    map[Reason]LossReading      `json:"dropped"`
	Refused    map[Reason]LossReading      `json:"refused"`
	Overlimits uint64                      `json:"overlimits"`
	Throttled  map[string]uint64           `json:"throttled,omitempty"`   // messages that the provider refused, by one of Signals
	Retried    map[string]uint64           `json:"retried,omitempty"`     // what became of those in a class with retry, by one of Retries
	Retries    map[Retry]uint64            `json:"-"`                     // the same, by the signal too
	Hinted     map[string]uint64           `json:"hinted,omitempty"`      // what became of the hints of a provider in a class with hints, by one of HintFates
	KeysShared uint64                      `json:"keys_shared,omitempty"` // sessions that share a bucket because max_keys leaves no bucket for their key

	// What waits now.
	WaitsFor     *Hold   `json:"waits_for,omitempty"` // nil if nothing waits, or only for its turn
	BacklogBytes int64   `json:"backlog_bytes"`       // payload
	BacklogItems int64   `json:"backlog_items"`
	Oldest       Seconds `json:"oldest"` // how long the item has waited that has waited longest; 0 if none waits

	// How long items have waited since the class was created, which Read fills in.
	Wait    HistogramReading `json:"-"`
	WaitP50 Seconds          `json:"wait_p50_seconds"`
	WaitP99 Seconds          `json:"wait_p99_seconds"`

	// Shadow is what the class would do if it were enforced; nil if it is.
	Shadow *ShadowReading `json:"shadow,omitempty"`
}

// QuotaReading is what remains of a window of a class.
type QuotaReading struct {
	Window    string    `json:"window"`          // "1h", or "day from 00:00 in Europe/Paris"
	Size      int64     `json:"size"`            // what the window holds, in the unit of the class
	Remaining int64     `json:"remaining"`       // what may still leave at once
	Resets    time.Time `json:"resets,omitzero"` // when the window ends, and all of it may leave again; zero if it slides, which has no end
}

// Hold is what something waits for: a limit of the class, of one above it, or of one beneath it in which the first item waits.
type Hold struct {
	Class string    `json:"class"`
	Limit string    `json:"limit"`          // as in the policy: "600 messages/h"; or "in_flight", "on_throttle", "schedule", "quiet", "hints", "shared" or "max_connections"
	Text  string    `json:"text"`           // the same in words: "a pause of the provider"
	Until time.Time `json:"until,omitzero"` // zero: that is not known, or never
}

// Words returns what it is in words. A daemon of an earlier version tells no words.
func (h Hold) Words() string { return cmp.Or(h.Text, h.Limit) }

// String prints "600 messages/h of class acme".
func (h Hold) String() string { return h.Limit + " of class " + h.Class }

// ShadowReading is what a class with shadow would have done if it were enforced.
type ShadowReading struct {
	WouldDelay uint64           `json:"would_delay"` // items that would have had to wait
	WouldDrop  uint64           `json:"would_drop"`  // items that would have been dropped or refused
	Wait       HistogramReading `json:"-"`           // how long items would have waited
	WaitP50    Seconds          `json:"would_wait_p50_seconds"`
	WaitP99    Seconds          `json:"would_wait_p99_seconds"`
}

// ReadShadow returns the counters as a ShadowReading. Such a class counts in Dropped what
// would have been dropped or refused.
func (c *Class) ReadShadow() ShadowReading {
	r := ShadowReading{WouldDelay: c.Overlimits.Load(), Wait: c.Wait.Read()}
	r.WouldDrop, _ = c.Lost()
	r.WaitP50, r.WaitP99 = Seconds(r.Wait.Quantile(0.50)), Seconds(r.Wait.Quantile(0.99))
	return r
}

// Lost returns how many items were dropped and refused, for all reasons together.
func (c *Class) Lost() (dropped, refused uint64) {
	for r := range Reasons() {
		dropped += c.Dropped[r].Items.Load()
		refused += c.Refused[r].Items.Load()
	}
	return dropped, refused
}

// Read returns the counters of the class. The maps have an entry for every direction and
// reason.
func (c *Class) Read() ClassReading {
	r := ClassReading{
		Sent:       readSent(&c.Sent),
		Dropped:    readLosses(&c.Dropped),
		Refused:    readLosses(&c.Refused),
		Overlimits: c.Overlimits.Load(),
		KeysShared: c.KeysShared.Load(),
		Throttled:  c.Throttled.Read(),
		Retries:    c.Retried.Read(),
		Hinted:     c.Hinted.Read(),
		Wait:       c.Wait.Read(),
	}
	r.Retried = byOutcome(r.Retries)
	r.WaitP50 = Seconds(r.Wait.Quantile(0.50))
	r.WaitP99 = Seconds(r.Wait.Quantile(0.99))
	return r
}

// byOutcome adds up the counts of all signals; nil if there are none.
func byOutcome(retries map[Retry]uint64) map[string]uint64 {
	if len(retries) == 0 {
		return nil
	}
	sums := map[string]uint64{}
	for retry, n := range retries {
		sums[retry.Outcome] += n
	}
	return sums
}

// Read returns the counters of the volume.
func (v *Volume) Read() VolumeReading {
	return VolumeReading{v.Bytes.Load(), v.Packets.Load(), v.Requests.Load(), v.Messages.Load(), v.Connections.Load(), v.Tokens.Load()}
}

func readSent(volumes *[directions]Volume) map[Direction]VolumeReading {
	m := make(map[Direction]VolumeReading, directions)
	for d := range Directions() {
		m[d] = volumes[d].Read()
	}
	return m
}

func readLosses(losses *[reasons]Loss) map[Reason]LossReading {
	m := make(map[Reason]LossReading, reasons)
	for r := range Reasons() {
		m[r] = losses[r].read()
	}
	return m
}

func (l *Loss) read() LossReading { return LossReading{l.Items.Load(), l.Bytes.Load()} }

// ListenerReading is the state of a listener at one moment. Read fills in the counters;
// the caller fills in the first group and UpstreamFailures.
type ListenerReading struct {
	Name      string   `json:"name"`
	Protocol  string   `json:"protocol"`
	Addresses []string `json:"addresses"` // as bound, so the port is never 0

	Open          int64                       `json:"open"`  // sessions open now
	Sent          map[Direction]VolumeReading `json:"sent"`  // bytes and packets of all sessions, with and without a class
	Ended         map[Result]uint64           `json:"ended"` // sessions, with an entry for every result
	AcceptErrors  uint64                      `json:"accept_errors"`
	SpliceRefused uint64                      `json:"splice_refused"`
	Unframed      map[string]uint64           `json:"unframed,omitempty"` // sessions by reason; every reason has an entry if the protocol has messages
	// Stray counts datagrams that belong to no session, by one of Strays.
	Stray map[string]uint64 `json:"stray,omitempty"`
	// UpstreamFailures counts failed attempts to reach each upstream.
	UpstreamFailures map[string]map[Failure]uint64 `json:"upstream_failures,omitempty"`
	// Upstreams are the addresses of the upstreams.
	Upstreams []UpstreamReading `json:"-"`
}

// UpstreamReading is an address of an upstream at one moment.
type UpstreamReading struct {
	Listener string    `json:"listener"`
	Upstream string    `json:"upstream"`        // as the policy has it
	Number   int       `json:"number"`          // its place in the listener's list, from 1
	Weight   int       `json:"weight"`          // as the policy and the DNS have it
	Address  string    `json:"address"`         // "" if it is built in, or not known
	TTL      *Seconds  `json:"ttl_seconds"`     // how long the address still holds; nil if it is no name's
	State    string    `json:"state"`           // "up", "ejected", "down", "unresolved", "unchecked" (by nobody), or "unusable": not from bind
	Since    time.Time `json:"since,omitzero"`  // of the state; zero: since the beginning
	Sessions int64     `json:"sessions"`        // open, or on their way there
	InFlight int64     `json:"in_flight"`       // requests without an answer
	Failures uint64    `json:"failures"`        // of attempts and of checks
	Error    string    `json:"error,omitempty"` // the last failure
}

// IsUp reports whether sessions get the address, as far as is known.
func (u *UpstreamReading) IsUp() bool { return u.State == "up" || u.State == "unchecked" }

// Read returns the counters of the listener.
func (l *Listener) Read() ListenerReading {
	r := ListenerReading{
		Open:          l.Open.Load(),
		Sent:          readSent(&l.Sent),
		Ended:         make(map[Result]uint64, results),
		AcceptErrors:  l.AcceptErrors.Load(),
		SpliceRefused: l.SpliceRefused.Load(),
		Unframed:      l.Unframed.Read(),
		Stray:         l.Stray.Read(),
	}
	for result := range Results() {
		r.Ended[result] = l.Ended[result].Load()
	}
	return r
}

// ReloadReading is the outcome of the last reload.
type ReloadReading struct {
	Time time.Time `json:"time"` // when it was attempted
	OK   bool      `json:"ok"`   // whether it succeeded
	// Succeeded is when the policy in force was read. That is the start if no reload
	// has succeeded since.
	Succeeded time.Time `json:"succeeded"`
	Error     string    `json:"error,omitempty"` // one error a line; if there are many, only the first ones
}

// PacersReading is how late items that had to wait have left since the start. The caller
// fills in Punctual.
type PacersReading struct {
	Punctual   bool             `json:"punctual"` // as the policy says
	Lateness   HistogramReading `json:"-"`
	Departures uint64           `json:"departures"`
	LateP50    Seconds          `json:"late_p50_seconds"`
	LateP99    Seconds          `json:"late_p99_seconds"`
}

// ReadPacers returns a lateness as a PacersReading.
func ReadPacers(late HistogramReading) PacersReading {
	return PacersReading{Lateness: late, Departures: late.Count,
		LateP50: Seconds(late.Quantile(0.50)), LateP99: Seconds(late.Quantile(0.99))}
}

// StateReading is where the budgets of classes are kept over restarts.
type StateReading struct {
	Path     string    `json:"path"`             // "": nowhere
	Written  time.Time `json:"written,omitzero"` // when the file was written last; zero: never yet
	Bytes    int       `json:"bytes"`            // of the file
	Failures uint64    `json:"failures"`         // how many writes have failed
	Error    string    `json:"error,omitempty"`  // why the last write failed; "": it succeeded
}

// KeptReading is how the kernel was kept equal to the policy.
type KeptReading struct {
	Corrected uint64 `json:"corrected"`       // objects that were put right since the start
	Error     string `json:"error,omitempty"` // why the kernel differs from the policy; "": it does not
}

// Status is the state of the daemon at one moment. `shaper status` shows it, and the
// metrics are made of it.
type Status struct {
	Version    string            `json:"version"`
	Started    time.Time         `json:"started"`
	Policy     string            `json:"policy"`      // the file's path
	PolicyHash string            `json:"policy_hash"` // of the policy in force
	Reload     ReloadReading     `json:"last_reload"`
	Budgets    StateReading      `json:"state_file"`
	Fleets     []FleetReading    `json:"fleets,omitempty"` // in the order of their names
	Totals     Totals            `json:"totals"`
	Pacers     PacersReading     `json:"pacers"`
	Classes    []ClassReading    `json:"classes,omitempty"`
	Listeners  []ListenerReading `json:"listeners"`
	// Kernel holds what the kernel counts for classes that shape a device. Its bytes are
	// those of frames, not of payload, and it has no waits.
	Kernel []ClassReading `json:"kernel,omitempty"`
	Kept   *KeptReading   `json:"kernel_kept,omitempty"` // nil if the policy keeps nothing in the kernel
}

// Totals is the sum over all listeners and classes since the start, also those that are gone.
type Totals struct {
	Sessions     int64                       `json:"sessions"` // open now
	Ended        uint64                      `json:"sessions_ended"`
	Sent         map[Direction]VolumeReading `json:"sent"` // bytes and packets of all sessions; only those messages and connections that a class counts
	Dropped      LossReading                 `json:"dropped"`
	Refused      LossReading                 `json:"refused"`
	BacklogBytes int64                       `json:"backlog_bytes"`
	BacklogItems int64                       `json:"backlog_items"`
}
