package tests

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/fleet"
	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// A faultyFleet is a fleet of four processes that want 100 items/s together, each with a link of its own to a store.
type faultyFleet struct {
	t       *testing.T
	store   *fleettest.Redis
	replica *fleettest.Redis // has lost the last writes; nil: there is none
	links   []*storeLink
	run     *fleetRun
	setTime func(time.Duration) // the store's clock
}

// A fleetFault happens to a fleet, lasts for a time, and ends.
type fleetFault struct {
	name  string
	lasts time.Duration
	begin func(*faultyFleet)
	end   func(*faultyFleet)
}

func (f *faultyFleet) each(do func(*storeLink)) {
	for _, l := range f.links {
		do(l)
	}
}

var fleetFaults = []fleetFault{
	{"kill -9 of the store", time.Second, func(f *faultyFleet) { f.store.Kill() }, func(f *faultyFleet) { f.store.Start() }},
	{"fail-over without the last writes", time.Second, (*faultyFleet).failOver, nil},
	{"FLUSHALL", 0, func(f *faultyFleet) { f.store.Do("FLUSHALL") }, nil},
	{"SCRIPT FLUSH", 0, func(f *faultyFleet) { f.store.Do("SCRIPT", "FLUSH") }, nil},
	{"clock set forward", 0, func(f *faultyFleet) { f.setTime(time.Hour) }, nil},
	{"clock set back", 0, func(f *faultyFleet) { f.setTime(-time.Hour) }, nil},
	{"clock set forward in steps, and partition of half", 2 * time.Second, (*faultyFleet).stepAndCut, (*faultyFleet).heal},
	{"SIGSTOP of a member", trial.Size(2*time.Second, 5*time.Second),
		func(f *faultyFleet) { f.run.cmds[0].Process.Signal(syscall.SIGSTOP) },
		func(f *faultyFleet) { f.run.cmds[0].Process.Signal(syscall.SIGCONT) }},
	{"partition of half", 2 * time.Second,
		(*faultyFleet).cut, (*faultyFleet).heal},
	{"answers lost", 2 * time.Second,
		func(f *faultyFleet) { f.each(func(l *storeLink) { l.lose.Store(50) }) },
		func(f *faultyFleet) { f.each(func(l *storeLink) { l.lose.Store(0) }) }},
	{"answers doubled", 2 * time.Second,
		func(f *faultyFleet) { f.each(func(l *storeLink) { l.double.Store(100) }) },
		func(f *faultyFleet) { f.each(func(l *storeLink) { l.double.Store(0) }) }},
	{"answers late by 500 ms", 2 * time.Second,
		func(f *faultyFleet) { f.each(func(l *storeLink) { l.delay.Store(100) }) },
		func(f *faultyFleet) { f.each(func(l *storeLink) { l.delay.Store(0) }) }},
	{"a store that is stopped", time.Second,
		func(f *faultyFleet) { f.store.Signal(syscall.SIGSTOP) }, func(f *faultyFleet) { f.store.Signal(syscall.SIGCONT) }},
}

// cut separates half of the members from the store.
func (f *faultyFleet) cut() { f.links[0].cut.Store(true); f.links[1].cut.Store(true) }

func (f *faultyFleet) heal() { f.links[0].heal(); f.links[1].heal() }

// stepAndCut sets the clock forward twice, together by more than the time for which shares are held back. Between the steps, the members
// that reach the store have time to call.
func (f *faultyFleet) stepAndCut() {
	f.cut()
	for range 2 {
		f.setTime(6 * time.Minute)
		time.Sleep(300 * time.Millisecond)
	}
}

// failOver separates the replica, lets the master go on for a time, kills it, and makes the links lead to the replica.
func (f *faultyFleet) failOver() {
	f.replica.Do("REPLICAOF", "NO", "ONE")
	time.Sleep(100 * time.Millisecond) // these writes are lost
	f.store.Kill()
	f.store, f.replica = f.replica, f.store
	f.each(func(l *storeLink) { l.to(f.store.Addr) })
	f.replica.Start()
	f.replica.Follow(f.store)
}

// withShiftedClock makes the clock of a server settable, before it starts.
func withShiftedClock(t *testing.T, r *fleettest.Redis) (set func(time.Duration)) {
	t.Helper()
	lib, shift := filepath.Join(r.Dir, "shift.so"), filepath.Join(r.Dir, "shift")
	if out, err := exec.Command(tool(t, "gcc", "gcc"), "-shared", "-fPIC", "-o", lib, "testdata/shift.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	set = func(d time.Duration) {
		f, err := os.OpenFile(shift, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := binary.Write(f, binary.LittleEndian, int64(d/time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	r.Env = []string{"LD_PRELOAD=" + lib, "SHIFT=" + shift}
	return set
}

func newFaultyFleet(t *testing.T, fault fleetFault) *faultyFleet {
	f := &faultyFleet{t: t, store: fleettest.NewRedis(t)}
	if strings.HasPrefix(fault.name, "clock") {
		set, shifted := withShiftedClock(t, f.store), time.Duration(0)
		f.setTime = func(by time.Duration) { shifted += by; set(shifted) }
	}
	f.store.Start()
	if strings.HasPrefix(fault.name, "fail-over") {
		f.replica = fleettest.StartRedis(t)
		f.replica.Follow(f.store)
	}
	var members []fleetMember
	for range 4 {
		l := newStoreLink(t, f.store.Addr)
		f.links = append(f.links, l)
		members = append(members, fleetMember{Rate: "100 messages/s", Late: 2 * time.Millisecond, Store: fleet.Config{Addresses: []string{l.addr}}})
	}
	f.run = startFleet(t, members)
	f.run.ready()
	return f
}

// TestFleetFaults lets each fault happen to a fleet under load, over real connections. No two departures are too
// close, the sum is never above the limit, something leaves soon, and a second after the fault the limit is used again.
func TestFleetFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range fleetFaults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			f := newFaultyFleet(t, fault)
			for range trial.Size(1, 20) {
				f.suffer(fault)
			}
			f.run.judge()
		})
	}
}

// suffer is one round of a fault.
func (f *faultyFleet) suffer(fault fleetFault) {
	w := trial.Begin()
	begin := f.run.now()
	fault.begin(f)
	time.Sleep(fault.lasts)
	if fault.end != nil {
		fault.end(f)
	}
	end := f.run.now()
	time.Sleep(2200 * time.Millisecond) // one second to recover, one to count
	used := f.run.used(end+time.Second, end+2*time.Second)
	longest, last := time.Duration(0), begin
	for _, d := range f.run.between(begin, end+2*time.Second) {
		longest, last = max(longest, d.At-last), d.At
	}
	longest = max(longest, end+2*time.Second-last).Round(time.Millisecond)
	trial.Figure(f.t, "nothing leaves after "+fault.name, "%v", longest)
	w.Judge(f.t, 5*time.Millisecond, trial.Join(
		trial.Least(used, 0.85, 0, "%s: a second after it %.0f %% of the limit is used", fault.name, 100*used),
		trial.Most(longest, 250*time.Millisecond, 1500*time.Millisecond, "%s: nothing leaves for %v, want 0.15 s", fault.name, longest)))
	if used < 0.85 {
		f.run.recovers(fault.name)
	}
}
