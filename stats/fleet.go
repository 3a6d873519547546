package stats

// FleetReading is a fleet at one moment, as this process sees it: a store, and the budgets there.
type FleetReading struct {
	Name       string   `json:"name"`
	Addresses  []string `json:"addresses"`
	Up         bool     `json:"up"`      // the last call of each class was answered
	Members    int64    `json:"members"` // of the class that has most
	Calls      uint64   `json:"calls"`   // to the store, also of classes that have left it
	Failures   uint64   `json:"failures"`
	CallTime   Seconds  `json:"call_seconds"`        // of recent calls, rather more than less
	ClockError Seconds  `json:"clock_error_seconds"` // how far slots may be wrong; 0: nothing is known
	// Headroom is how late a slot may be used, of the class in which that is the least; 0 if no
	// class counts gaps.
	Headroom Seconds         `json:"headroom_seconds"`
	Classes  []SharedReading `json:"classes"` // in the order of their names
	// Shapers are the processes that share the budgets, also this one, in the order of their names. There are none while
	// the store is away, and in metrics.
	Shapers []ShaperReading `json:"shapers,omitempty"`
}

// Deadlines returns the shortest and the longest deadline in the class whose members differ most in them.
func (f *FleetReading) Deadlines() (shortest, longest Seconds) {
	for _, c := range f.Classes {
		if c.Longest-c.Shortest >= longest-shortest {
			shortest, longest = c.Shortest, c.Longest
		}
	}
	return shortest, longest
}

// ShaperReading is a process in a fleet. It is a peer once for each budget: for each limit of each class.
type ShaperReading struct {
	Name     string  `json:"name"`         // "" stands for those that the store has forgotten; it is the last one
	Age      Seconds `json:"age_seconds"`  // of the budget that it has had for longest
	Seen     Seconds `json:"seen_seconds"` // since the store has heard of it, for any budget
	Budgets  int     `json:"budgets"`
	Share    float64 `json:"share"`            // of the budget of which it has least
	Deadline Seconds `json:"deadline_seconds"` // of its policy; 0: it is that of all, or not known
	// State is Here, ThisOne, Silent or HeldBack.
	State string `json:"state"`
}

// The states of a process in a fleet.
const (
	Here     = "here"
	ThisOne  = "this shaper"
	Silent   = "silent" // in one of its budgets
	HeldBack = "gone: their shares are held back"
)

// SharedReading is what this process has of one limit of a shared class.
type SharedReading struct {
	Class    string  `json:"class"`
	Limit    string  `json:"limit"`   // less headroom
	Member   string  `json:"member"`  // the name of this process in the fleet
	Mode     string  `json:"mode"`    // "store", "share" or "stopped"
	Members  int64   `json:"members"` // who share it
	Share    float64 `json:"share"`   // of the limit, that this process has while the store is away
	Leased   int64   `json:"leased"`  // units in hand
	Calls    uint64  `json:"calls"`
	Age      Seconds `json:"age_seconds"`      // since this process has joined
	Used     uint64  `json:"used"`             // units that items have taken
	Expired  uint64  `json:"expired"`          // units that were not used in time, or whose items were not sent in time
	Returned uint64  `json:"returned"`         // units that were given back
	Fallback Seconds `json:"fallback_seconds"` // how long the store has been away, all in all
	Error    string  `json:"error,omitempty"`  // of the last call; "": it was answered
	// Shortest and Longest are the deadlines of the members, between 50 ms and 250 ms: the shortest holds for all. 0: not
	// known.
	Shortest Seconds `json:"shortest_deadline_seconds"`
	Longest  Seconds `json:"longest_deadline_seconds"`
	// Peers are all members, also this one, in the order of their names. There are none while the store
	// is away, and in metrics.
	Peers []PeerReading `json:"peers,omitempty"`
}

// PeerReading is a member of a shared class, as the store knows it.
type PeerReading struct {
	Name  string  `json:"name"`         // "" stands for members that the store has forgotten, and whose shares it holds back
	Share float64 `json:"share"`        // of the limit, while the store is away
	Age   Seconds `json:"age_seconds"`  // since it has joined
	Seen  Seconds `json:"seen_seconds"` // since the store has heard of it
	// Silent says that it has not told the store in time that it is there. The store holds its
	// share back for ten minutes.
	Silent bool `json:"silent"`
	// Deadline is that of its policy, between 50 ms and 250 ms; 0: not known.
	Deadline Seconds `json:"deadline_seconds"`
}
