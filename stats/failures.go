package stats

import (
	"iter"
	"sync"
)

// Failure says why an attempt to reach an upstream failed.
type Failure uint8

const (
	Unresolved  Failure = iota // its name has no address
	NotServed                  // nobody listens there
	Unreachable                // there is no route, or the host is down
	NoAnswer                   // nothing came within connect_timeout
	DialReset                  // the connection was reset before it was made
	NoTLS                      // the TLS handshake failed, for whatever reason
	Unfit                      // shaper cannot dial it: it is its own address, or not of the family of bind
	failures
)

var failureNames = [failures]string{"name", "refused", "unreachable", "timeout", "reset", "tls", "local"}

// Failures goes over all reasons.
func Failures() iter.Seq[Failure] { return all(failures) }

// String returns the label of a metric.
func (f Failure) String() string { return failureNames[f] }

// MarshalText is String: failures are the keys of JSON objects.
func (f Failure) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (f *Failure) UnmarshalText(text []byte) error {
	return unmarshal(f, failureNames[:], "failure", text)
}

// Upstreams counts failed attempts by upstream and reason. The zero Upstreams is
// ready to use, also concurrently.
type Upstreams struct {
	mu     sync.Mutex
	counts map[string]*[failures]uint64
}

// Add counts one failed attempt.
func (u *Upstreams) Add(upstream string, why Failure) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts == nil {
		u.counts = map[string]*[failures]uint64{}
	}
	if u.counts[upstream] == nil {
		u.counts[upstream] = new([failures]uint64)
	}
	u.counts[upstream][why]++
}

// Read returns the counts of the upstreams that are named. Every reason has its entry,
// if only a zero.
func (u *Upstreams) Read(names []string) map[string]map[Failure]uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	read := make(map[string]map[Failure]uint64, len(names))
	for _, name := range names {
		counts := u.counts[name]
		read[name] = make(map[Failure]uint64, failures)
		for why := range Failures() {
			read[name][why] = 0
			if counts != nil {
				read[name][why] = counts[why]
			}
		}
	}
	return read
}
