package stats

import (
	"encoding/json"
	"math"
	"time"
)

// Seconds is a duration that JSON shows as a number of seconds. Never, as the
// time to drain of a class whose rate is 0, is null.
type Seconds time.Duration

// Never is the Seconds of what does not end.
const Never Seconds = math.MaxInt64

// MarshalJSON writes 1500 ms as 1.5.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if s == Never {
		return []byte("null"), nil
	}
	return json.Marshal(time.Duration(s).Seconds())
}

// UnmarshalJSON reads what MarshalJSON writes, to a nanosecond up to 100 days.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	var seconds *float64
	if err := json.Unmarshal(text, &seconds); err != nil {
		return err
	}
	switch {
	case seconds == nil || *seconds >= time.Duration(Never).Seconds():
		*s = Never
	default:
		*s = Seconds(math.Round(*seconds * 1e9))
	}
	return nil
}

// RateReading is a rate as text, to read, and as a number, to compute with.
type RateReading struct {
	Text      string  `json:"text"`       // "20mbit", "30 messages/s"
	PerSecond float64 `json:"per_second"` // in Unit
	Unit      string  `json:"unit"`       // "bytes", "packets", "messages" or "connections"
}

// VolumeReading is a Volume at one moment.
type VolumeReading struct {
	Bytes       uint64 `json:"bytes"` // payload
	Packets     uint64 `json:"packets"`
	Messages    uint64 `json:"messages"`
	Connections uint64 `json:"connections"`
}

// LossReading is a Loss at one moment.
type LossReading struct {
	Items uint64 `json:"items"`
	Bytes uint64 `json:"bytes"` // payload
}

// ClassReading is what a class and all beneath it were doing at one moment. Read fills
// what is counted; the first group is the caller's, who knows the policy in force.
type ClassReading struct {
	Name      string       `json:"name"`
	Parent    string       `json:"parent,omitempty"`
	Algorithm string       `json:"algorithm"`
	Rate      RateReading  `json:"rate"`
	Ceil      *RateReading `json:"ceil,omitempty"` // nil where the rate is the limit
	Priority  int          `json:"priority"`       // among its siblings, as is the weight
	Weight    int          `json:"weight"`
	Burst     string       `json:"burst,omitempty"`  // as in the policy; "" if the algorithm has none
	Window    string       `json:"window,omitempty"` // in force; "" if the algorithm has none
	Sessions  int          `json:"sessions"`         // that are open in the class and its children
	// Of a class of messages.
	InFlight    int       `json:"in_flight,omitempty"`
	PausedUntil time.Time `json:"paused_until,omitzero"` // zero: it does not pause
	Share       float64   `json:"share,omitempty"`       // of the rate; below 1 where it adapts

	Per   string  `json:"per,omitempty"`  // what has a bucket, as in the policy; "": there is one for all
	Keys  int     `json:"keys,omitempty"` // that have a bucket, or are remembered
	Drain Seconds `json:"time_to_drain_seconds"`

	Sent       map[Direction]VolumeReading `json:"sent"`
	Dropped    map[Reason]LossReading      `json:"dropped"`
	Refused    map[Reason]LossReading      `json:"refused"`
	Overlimits uint64                      `json:"overlimits"`
	Throttled  map[string]uint64           `json:"throttled,omitempty"`   // by the provider, by its signal
	KeysShared uint64                      `json:"keys_shared,omitempty"` // sessions without a bucket of their own, for want of room
	// What waits now, which the caller fills in, too.
	BacklogBytes int64 `json:"backlog_bytes"` // payload
	BacklogItems int64 `json:"backlog_items"`
	// How long items waited, since the class was made.
	Wait    HistogramReading `json:"-"`
	WaitP50 Seconds          `json:"wait_p50_seconds"`
	WaitP99 Seconds          `json:"wait_p99_seconds"`
	// Shadow is what the class would do; nil where it does that.
	Shadow *ShadowReading `json:"shadow,omitempty"`
}

// ShadowReading is what a class that enforces nothing would have done.
type ShadowReading struct {
	WouldDelay uint64           `json:"would_delay"` // items that would have waited
	WouldDrop  uint64           `json:"would_drop"`  // items dropped or refused
	Wait       HistogramReading `json:"-"`           // how long items would have waited
	WaitP50    Seconds          `json:"would_wait_p50_seconds"`
	WaitP99    Seconds          `json:"would_wait_p99_seconds"`
}

// ReadShadow returns the counters of a class as those of what would have been.
func (c *Class) ReadShadow() ShadowReading {
	r := ShadowReading{WouldDelay: c.Overlimits.Load(), Wait: c.Wait.Read()}
	for reason := range Reasons() {
		r.WouldDrop += c.Dropped[reason].Items.Load()
	}
	r.WaitP50, r.WaitP99 = Seconds(r.Wait.Quantile(0.50)), Seconds(r.Wait.Quantile(0.99))
	return r
}

// Read returns the counters of the class. Every direction and reason has its
// entry, if only of zeros.
func (c *Class) Read() ClassReading {
	r := ClassReading{
		Sent:       readSent(&c.Sent),
		Dropped:    readLosses(&c.Dropped),
		Refused:    readLosses(&c.Refused),
		Overlimits: c.Overlimits.Load(),
		KeysShared: c.KeysShared.Load(),
		Throttled:  c.Throttled.Read(),
		Wait:       c.Wait.Read(),
	}
	r.WaitP50 = Seconds(r.Wait.Quantile(0.50))
	r.WaitP99 = Seconds(r.Wait.Quantile(0.99))
	return r
}

// Read returns the counters of the volume.
func (v *Volume) Read() VolumeReading {
	return VolumeReading{v.Bytes.Load(), v.Packets.Load(), v.Messages.Load(), v.Connections.Load()}
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
		m[r] = LossReading{losses[r].Items.Load(), losses[r].Bytes.Load()}
	}
	return m
}

// ListenerReading is what a listener was doing at one moment. Read fills what
// is counted; the first group is the caller's.
type ListenerReading struct {
	Name      string   `json:"name"`
	Protocol  string   `json:"protocol"`
	Addresses []string `json:"addresses"` // as bound: the port is never 0

	Open          int64                       `json:"open"`  // sessions
	Sent          map[Direction]VolumeReading `json:"sent"`  // bytes and packets of all sessions, whether a class counts them or not
	Ended         map[Result]uint64           `json:"ended"` // sessions; every result has its entry
	AcceptErrors  uint64                      `json:"accept_errors"`
	SpliceRefused uint64                      `json:"splice_refused"`
	Unframed      map[string]uint64           `json:"unframed,omitempty"` // of a protocol with messages: by reason, each with its entry
	// UpstreamFailures are attempts to reach an upstream that failed, by upstream and
	// reason; of a listener that dials one. The caller fills it in, too.
	UpstreamFailures map[string]map[Failure]uint64 `json:"upstream_failures,omitempty"`
}

// Read returns the counters of the listener.
func (l *Listener) Read() ListenerReading {
	r := ListenerReading{
		Open:          l.Open.Load(),
		Sent:          readSent(&l.Sent),
		Ended:         make(map[Result]uint64, results),
		AcceptErrors:  l.AcceptErrors.Load(),
		SpliceRefused: l.SpliceRefused.Load(),
		Unframed:      l.Unframed.Read(),
	}
	for result := range Results() {
		r.Ended[result] = l.Ended[result].Load()
	}
	return r
}

// ReloadReading is the outcome of the last reload.
type ReloadReading struct {
	Time time.Time `json:"time"` // of the last attempt, failed or not
	OK   bool      `json:"ok"`
	// Succeeded is when the policy in force was read: the start, if no reload
	// has succeeded since.
	Succeeded time.Time `json:"succeeded"`
	Error     string    `json:"error,omitempty"` // the errors of the last attempt, one a line; of many the first
}

// Status is the whole daemon at one moment: what `shaper status` shows and
// what the metrics are made of.
type Status struct {
	Version    string            `json:"version"`
	Started    time.Time         `json:"started"`
	Policy     string            `json:"policy"`      // the file's path
	PolicyHash string            `json:"policy_hash"` // of the policy in force
	Reload     ReloadReading     `json:"last_reload"`
	Totals     Totals            `json:"totals"`
	Classes    []ClassReading    `json:"classes,omitempty"`
	Listeners  []ListenerReading `json:"listeners"`
	// Kernel holds what the kernel has counted for classes that shape devices: in
	// bytes of frames, not of payload, and without waits.
	Kernel []ClassReading `json:"kernel,omitempty"`
}

// Totals is what all listeners and classes come to.
type Totals struct {
	Sessions     int64                       `json:"sessions"` // open
	Ended        uint64                      `json:"sessions_ended"`
	Sent         map[Direction]VolumeReading `json:"sent"` // bytes and packets of all sessions; messages and connections that a class counts
	Dropped      LossReading                 `json:"dropped"`
	Refused      LossReading                 `json:"refused"`
	BacklogBytes int64                       `json:"backlog_bytes"`
	BacklogItems int64                       `json:"backlog_items"`
}
