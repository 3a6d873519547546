package simulate

import (
	"errors"
	"fmt"
	"io"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// DefaultFor is how long generated loads last if [Words] do not say it.
const DefaultFor = time.Minute

// DefaultStoreDelay is the round trip to the store of a fleet if [Words] do not say it.
const DefaultStoreDelay = time.Millisecond

// Bounds of a fleet.
const (
	maxMembers    = 1000
	maxStoreDelay = 10 * time.Second
)

// Words are a workload as a person gives it: the flags of `shaper simulate`, or the fields of the
// playground. Errors name the flags.
type Words struct {
	Loads      []string `json:"load"`        // as ParseLoad reads them
	Trace      string   `json:"trace"`       // the name of a file that ReadTrace reads; "": there are loads
	For        *string  `json:"for"`         // nil: DefaultFor for loads; a trace goes on until everything has left
	Seed       uint64   `json:"seed"`        // of the random generator
	Members    *int     `json:"members"`     // of a fleet; nil: there is none
	StoreDelay *string  `json:"store_delay"` // of a fleet; nil: DefaultStoreDelay
}

// A Workload is what a simulation sends through a policy: loads, or a trace.
type Workload struct {
	loads      []Load
	seed       uint64
	trace      string
	length     time.Duration // 0: until everything has left
	members    int           // of a fleet; 0: there is none
	storeDelay time.Duration
}

// Workload reads the words.
func (w Words) Workload() (*Workload, error) {
	l := &Workload{seed: w.Seed, trace: w.Trace}
	if (w.Trace == "") == (len(w.Loads) == 0) {
		return nil, errors.New(`a workload is either --trace, or one --load or more, such as --load "rate=100 packets/s"`)
	}
	if w.Trace == "" {
		l.length = DefaultFor
	}
	if w.For != nil {
		length, err := unit.ParseDuration(*w.For)
		if l.length = time.Duration(length); err != nil {
			return nil, fmt.Errorf("--for: %w", err)
		}
		if length == 0 {
			return nil, errors.New("--for: 0s leaves no time; a time above 0s")
		}
	}
	for _, text := range w.Loads {
		load, err := ParseLoad(text)
		if err != nil {
			return nil, fmt.Errorf("--load: %w", err)
		}
		l.loads = append(l.loads, load)
	}
	return l, l.fleet(w)
}

// fleet reads what the words say of a fleet.
func (l *Workload) fleet(w Words) error {
	l.storeDelay = DefaultStoreDelay
	if w.StoreDelay != nil {
		delay, err := unit.ParseDuration(*w.StoreDelay)
		if l.storeDelay = time.Duration(delay); err != nil {
			return fmt.Errorf("--store-delay: %w", err)
		}
	}
	if w.Members != nil {
		l.members = *w.Members
	}
	switch {
	case w.Members != nil && (l.members < 1 || l.members > maxMembers):
		return fmt.Errorf("--members: %d is not allowed; from 1 to %d", l.members, maxMembers)
	case l.members == 0 && w.StoreDelay != nil:
		return errors.New("--store-delay is for a fleet: --members 4 --store-delay 2ms")
	case l.storeDelay > maxStoreDelay:
		return fmt.Errorf("--store-delay: %v is too long; at most %v", l.storeDelay, maxStoreDelay)
	}
	return nil
}

// IsFleet reports whether the workload is that of a fleet.
func (l *Workload) IsFleet() bool { return l.members > 0 }

// A BadLoad is the error of a load that does not fit the policy.
type BadLoad struct{ error }

// Run sends the workload through a policy. The workload says what Options.For is. Open opens the
// file of a trace. Errors are those of [Run], [RunFleet] and open, and BadLoad.
func (l *Workload) Run(p *policy.Policy, o Options, open func(name string) (io.ReadCloser, error)) (*Report, error) {
	o.For = l.length
	var all [][]Source // of each member, or of the only shaper
	for i := range max(l.members, 1) {
		sources, closer, err := l.sources(p, open)
		if err != nil {
			return nil, err
		}
		defer closer.Close()
		for s := range sources {
			sources[s] = Deal(sources[s], i, max(l.members, 1))
		}
		all = append(all, sources)
	}
	if l.members == 0 {
		return Run(p, all[0], o)
	}
	return RunFleet(p, all, l.storeDelay, o)
}

// sources returns the arrivals of the workload, and what closes them.
func (l *Workload) sources(p *policy.Policy, open func(name string) (io.ReadCloser, error)) ([]Source, io.Closer, error) {
	if l.trace == "" {
		sources, err := Sources(p, l.loads, l.seed)
		if err != nil {
			return nil, nil, BadLoad{fmt.Errorf("--load: %w", err)}
		}
		return sources, io.NopCloser(nil), nil
	}
	file, err := open(l.trace)
	if err != nil {
		return nil, nil, err
	}
	source, err := ReadTrace(p, l.trace, file)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return []Source{source}, file, nil
}
