package stats

import (
	"maps"
	"sync"
)

// Signals are how providers say that they were asked too fast: the command_status of
// SMPP, its congestion_state, and the status code of HTTP.
var Signals = []string{"0x14", "0x58", "congestion", "429", "503"}

// Tally counts rare events by a name out of a few, such as the signals of a protocol.
// The zero Tally is empty and ready to use, also concurrently.
type Tally struct {
	mu     sync.Mutex
	counts map[string]uint64
}

// Add counts one event.
func (t *Tally) Add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]uint64{}
	}
	t.counts[name]++
}

// Read returns the counts of what has happened; those that have not are left out.
func (t *Tally) Read() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
