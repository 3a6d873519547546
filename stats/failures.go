package stats

import (
	"iter"
	"sync"
)

// Failure is why an attempt to reach an upstream failed.
type Failure uint8

const (
	Unresolved  Failure = iota // the upstream's name has no address
	NotServed                  // the connection was refused: nobody listens there
	Unreachable                // there is no route, or the host is down
	NoAnswer                   // no answer came within connect_timeout
	DialReset                  // the connection was reset before it was established
	NoTLS                      // the TLS handshake failed, for any reason
	Unfit                      // shaper cannot dial it: it is its own address, or no address of bind can be used
	NoPort                     // no local port is free for the connection
	failures
)

var failureNames = [failures]string{"name", "refused", "unreachable", "timeout", "reset", "tls", "local", "ports"}

// Failures iterates over all values of Failure.
func Failures() iter.Seq[Failure] { return all(failures) }

// String returns the failure as a metric's label, such as "refused".
func (f Failure) String() string { return failureNames[f] }

// MarshalText returns String, so that failures can be keys of JSON objects.
func (f Failure) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (f *Failure) UnmarshalText(text []byte) error {
	return unmarshal(f, failureNames[:], "failure", text)
}

// Upstreams counts failed attempts to reach each upstream. The zero Upstreams is ready
// to use and safe for concurrent use.
type Upstreams struct {
	mu     sync.Mutex // guards counts
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

// Read returns the counts of the upstreams in names. It has an entry for every name and
// every Failure, also for those that are 0.
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
