package tests

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/fleet"
	"shaper/fleet/fleettest"
	"shaper/tests/trial"
	"shaper/unit"
)

// memberEnv makes a process of these tests a member of a fleet: it holds a fleetMember.
const memberEnv = "SHAPER_TEST_FLEET_MEMBER"

// A fleetMember is a process that wants a class as fast as it may, or one item in each Every.
type fleetMember struct {
	Name  string
	Rate  string // of the class
	Late  time.Duration
	Store fleet.Config
	CA    string // a file; "": no TLS
	Every time.Duration
}

func (f *fleetMember) class() (fleet.Class, error) {
	rate, err := unit.ParseRate(f.Rate)
	return fleet.Class{Name: "acme", Rate: rate, Late: f.Late}, err
}

// runMember is the process. It writes a line for each departure, until its input ends.
func runMember(config string) error {
	var f fleetMember
	if err := json.Unmarshal([]byte(config), &f); err != nil {
		return err
	}
	class, err := f.class()
	if err != nil {
		return err
	}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return err
		}
		f.Store.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		f.Store.TLS.RootCAs.AppendCertsFromPEM(pem)
	}
	store, err := fleet.NewStore(f.Store)
	if err != nil {
		return err
	}
	told := make(chan struct{}, 1)
	m, err := fleet.Join(class, f.Name, fleet.Fallback{}, store, nil, func(string) {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	f.depart(m, told, ended)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m.Close(ctx)
	return nil
}

// depart lets items leave until ended. Costs are the times that the calls of the Budget take.
func (f *fleetMember) depart(m *fleet.Member, told, ended chan struct{}) {
	zero, mono := sameMoment()
	b := m.Budget("")
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	next := zero
	for {
		now := time.Now()
		wait := next.Sub(now)
		if wait <= 0 {
			units := int64(1)
			if f.Every == 0 {
				units = 1000
			}
			b.Want(now, units, 1)
			at := b.Next(now, 0, 1)
			if !at.After(now) {
				b.Take(now, now, 1)
				cost := time.Since(now)
				s, _ := m.Status()
				calls, _ := m.Calls()
				fmt.Fprintln(out, int64(mono+now.Sub(zero)), int64(s.ClockError), s.Mode, calls, int64(cost), int64(now.Sub(next)), s.Share, int64(s.RoundTrip))
				out.Flush()
				if f.Every > 0 {
					next = now.Add(f.Every)
				}
				continue
			}
			wait = min(at.Sub(now), time.Second)
		}
		if wait < 3*time.Millisecond { // timers of Go may be late by a millisecond
			ts := unix.NsecToTimespec(int64(wait))
			unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil)
			wait = 0
		}
		select {
		case <-time.After(max(wait-2*time.Millisecond, 0)):
		case <-told:
		case <-ended:
			return
		}
	}
}

// sameMoment returns one moment, by the clock of this process and by that of all. If the process is interrupted between
// the readings, it tries again.
func sameMoment() (time.Time, time.Duration) {
	for {
		before, now := monotonic(), time.Now()
		if monotonic()-before < 10*time.Microsecond {
			return now, before
		}
	}
}

// A fleetRun is a fleet of processes, and all that has left.
type fleetRun struct {
	t     *testing.T
	class fleet.Class
	zero  time.Duration

	cmds []*exec.Cmd
	wg   sync.WaitGroup

	mu     sync.Mutex
	all    []fleettest.Departure
	calls  map[string]int64
	shares map[string]float64
	trips  map[string]time.Duration // how long calls of each member take
	costs  []time.Duration
	waits  map[string][]time.Duration // of the items of each member
}

// ready returns when all members have shares.
func (r *fleetRun) ready() {
	trial.Await(r.t, "all members have shares", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, share := range r.shares {
			if share < 0.9/float64(len(r.cmds)) {
				return false
			}
		}
		return len(r.shares) == len(r.cmds)
	})
}

func monotonic() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// startFleet starts the members of a class.
func startFleet(t *testing.T, members []fleetMember) *fleetRun {
	t.Helper()
	class, err := members[0].class()
	if err != nil {
		t.Fatal(err)
	}
	r := &fleetRun{t: t, class: class, zero: monotonic(), calls: map[string]int64{}, shares: map[string]float64{}, trips: map[string]time.Duration{}, waits: map[string][]time.Duration{}}
	for i, f := range members {
		f.Name = fmt.Sprint("m", i)
		config, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), memberEnv+"="+string(config))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.cmds = append(r.cmds, cmd)
		r.wg.Go(func() { r.read(f.Name, out) })
		t.Cleanup(func() {
			in.Close()
			cmd.Process.Signal(unix.SIGCONT)
			cmd.Wait()
		})
	}
	return r
}

func (r *fleetRun) read(name string, out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var at, clock, calls, cost, waited, trip int64
		var mode string
		var share float64
		if _, err := fmt.Sscan(lines.Text(), &at, &clock, &mode, &calls, &cost, &waited, &share, &trip); err != nil {
			r.t.Errorf("%s writes %q", name, lines.Text())
			return
		}
		r.mu.Lock()
		r.all = append(r.all, fleettest.Departure{Member: name, At: time.Duration(at) - r.zero, Units: 1, Error: time.Duration(clock), Own: mode == "share"})
		r.calls[name], r.shares[name], r.trips[name] = calls, share, time.Duration(trip)
		r.costs = append(r.costs, time.Duration(cost))
		r.waits[name] = append(r.waits[name], time.Duration(waited))
		r.mu.Unlock()
	}
}

// now returns the time of the departures.
func (r *fleetRun) now() time.Duration { return monotonic() - r.zero }

// between returns what has left from one time to another, in order.
func (r *fleetRun) between(from, to time.Duration) (some []fleettest.Departure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fleettest.Sort(r.all)
	for _, d := range r.all {
		if d.At >= from && d.At < to {
			some = append(some, d)
		}
	}
	return some
}

// roundTrip returns how long the calls of the members take, as they say: the longest.
func (r *fleetRun) roundTrip() (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, trip := range r.trips {
		longest = max(longest, trip)
	}
	return longest
}

// localTimes returns how long the members took for each item.
func (r *fleetRun) localTimes() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.costs)
}

// used returns how much of the rate has left from one time to another.
func (r *fleetRun) used(from, to time.Duration) float64 {
	return float64(len(r.between(from, to))) / r.class.Rate.PerSecond() / (to - from).Seconds()
}

// judge judges all that has left: no two are too close, and the members together have not used more than the rate,
// also while some of them were on their shares. Each of these may have an item of its own at once.
func (r *fleetRun) judge() {
	r.t.Helper()
	all := r.between(0, 1<<62)
	if err := fleettest.Gaps(all, r.class.Rate.Time(1), r.class.Late); err != nil {
		r.t.Error(err)
	}
	rate := r.class.Rate.PerSecond()
	if err := fleettest.Sum(all, rate, float64(1+len(r.cmds))+rate*r.class.Late.Seconds()); err != nil {
		r.t.Error(err)
	}
}

// percentile returns the p-th of 100 parts.
func percentile(all []time.Duration, p int) time.Duration {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[(len(all)-1)*p/100]
}
