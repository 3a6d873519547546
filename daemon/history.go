package daemon

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"shaper/policy"
)

// Record is one change that somebody has made, or one that was rejected.
type Record struct {
	Number int       `json:"number"` // from 1, since the daemon started
	Time   time.Time `json:"time"`
	By     string    `json:"by"` // "uid=0 pid=123", "signal", "timer", "start", "watch" or "failure"
	// What is "start", "reload", "set", "set ended", "schedule", "confirm", "rollback", "reload rejected", "set rejected",
	// "session closed", "shadow started", "shadow stopped", "kernel corrected", "stopping", or one of Notable.
	What   string    `json:"what"`
	Before string    `json:"before,omitempty"` // hash of the policy file in force before
	After  string    `json:"after"`            // hash of the policy file in force since then
	Until  time.Time `json:"until,omitzero"`   // when a set ends; zero: at the next reload
	// Changes are the first parts of the change, and More is the number of the others.
	Changes []policy.Change `json:"changes"`
	More    int             `json:"more,omitempty"`
	Error   string          `json:"error,omitempty"` // why it was rejected
}

// Notable are the commands that change the kernel by themselves.
var Notable = []string{"tc apply", "tc clear", "nft apply", "nft clear"}

// Values of Record.What.
const (
	kernelCorrected = "kernel corrected" // the daemon has put something right in the kernel
	sessionClosed   = "session closed"   // somebody has reset a session
	scheduleApplied = "schedule"         // a schedule of the policy has changed something
)

// isMinor reports whether a record is of a kind that may come in any number while nobody changes the policy. Whoever
// may use the control socket can be rejected, note something, close sessions and try a policy in the shadow. Another
// program can change the kernel again and again. Schedules begin and end each day.
func (r Record) isMinor() bool {
	switch r.What {
	case scheduleApplied, kernelCorrected, sessionClosed:
		return true
	}
	return r.Error != "" || strings.HasPrefix(r.What, "shadow ") || slices.Contains(Notable, r.What)
}

// History is the answer to GET /v1/history: the latest changes, the oldest of them first.
type History []Record

// Bounds of what a history holds: some 10 MB at most.
const (
	mostRecords  = 200
	mostMinor    = 50  // of these are minor, so that minor ones do not push out the others
	longestValue = 200 // bytes of each text of a change
	longestError = mostReported * longestValue
)

// history holds the latest changes. Its own lock guards it, not that of the keeper, so readers never wait for a change.
type history struct {
	mu      sync.Mutex
	records []Record
	number  int
	hash    string // of the policy in force
}

// add adds a record, gives it its number and time, and returns it.
func (h *history) add(r Record) Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	r.Number, r.Time, r.Before, h.hash = h.number, time.Now(), h.hash, r.After
	r.More = max(0, len(r.Changes)-mostLogged)
	r.Changes = append([]policy.Change{}, r.Changes[:len(r.Changes)-r.More]...)
	for i := range r.Changes {
		c := &r.Changes[i]
		for _, text := range []*string{&c.Op, &c.What, &c.Name, &c.Key, &c.Old, &c.New} {
			*text = cut(*text, longestValue)
		}
	}
	r.Error = cut(r.Error, longestError)
	h.records = append(h.records, r)
	h.forget(Record.isMinor, mostMinor)
	h.forget(func(Record) bool { return true }, mostRecords)
	return r
}

// forget drops the oldest record of a kind if there are more than most of that kind. The caller holds mu.
func (h *history) forget(kind func(Record) bool, most int) {
	n := 0
	for _, r := range h.records {
		if kind(r) {
			n++
		}
	}
	if i := slices.IndexFunc(h.records, kind); n > most {
		h.records = slices.Delete(h.records, i, i+1)
	}
}

// cut returns a text, or its first most bytes and "…" if it is longer.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// read returns a copy of the records, the oldest first.
func (h *history) read() History {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(History{}, h.records...)
}

func (d *daemon) serveHistory(caller, *http.Request) (any, error) {
	return d.keeper.history.read(), nil
}
