package web

import (
	"time"

	"shaper/stats"
)

// Source is what the dashboard asks the daemon. Its answers are those of the control socket; the
// dashboard sends them on as JSON. Several goroutines may ask at once.
type Source interface {
	// Hosts returns the names by which a browser may ask, besides addresses and localhost: in
	// lower case, without a final dot.
	Hosts() []string
	// Summary is what stands above each view.
	Summary() any
	// Classes returns all classes in the order of their names.
	Classes() []Class
	// Samples returns what the history keeps of all classes. It is asked also while no page is open.
	Samples() []Sample
	// Class returns all that is known of a class, and why it waits; ok is false if there is none.
	Class(name string) (reading any, why string, ok bool)
	// List returns "sessions", "upstreams", "fleet", "system" or "changes"; nil for any other name.
	List(name string) any
}

// Class is a class as the tree shows it. Its figures include those of all classes beneath it.
type Class struct {
	Name        string        `json:"name"`
	Parent      string        `json:"parent,omitempty"`
	Rate        string        `json:"rate"`
	Ceil        string        `json:"ceil,omitempty"`   // "" if the rate is the limit
	Set         bool          `json:"set,omitempty"`    // `shaper set` has changed it
	Shadow      bool          `json:"shadow,omitempty"` // it only computes what it would do
	Now         string        `json:"now"`              // what it sent in the last second
	Load        float64       `json:"load"`             // that as a part of the limit
	Items       int64         `json:"items"`            // they wait
	Bytes       int64         `json:"bytes"`            // of those
	Oldest      stats.Seconds `json:"oldest"`           // how long the item has waited that has waited longest
	WaitsFor    *stats.Hold   `json:"waits_for,omitempty"`
	P50         stats.Seconds `json:"p50"` // of the waits
	P99         stats.Seconds `json:"p99"`
	Drain       stats.Seconds `json:"drain"` // until all that waits has left; null: never
	Dropped     uint64        `json:"dropped"`
	Refused     uint64        `json:"refused"`
	Throttled   uint64        `json:"throttled"` // messages that the provider refused as too fast
	PausedUntil time.Time     `json:"paused_until,omitzero"`
}

// Sample is what the history keeps of a class and all classes beneath it.
type Sample struct {
	Name  string
	Unit  string // of Sent: "bytes", "messages"
	Sent  uint64 // since the class was created
	Lost  uint64 // items dropped and refused since then
	Items int64  // they wait
}
