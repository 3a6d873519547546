package state

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"shaper/limit"
	"shaper/stats"
)

// Options are the arguments of Open.
type Options struct {
	Log   *slog.Logger
	Clock Clock // the zero Clock: that of the system
	disk  disk  // nil: that of the system
}

// File keeps leases in a file. It is a ledger for package shaper: who asks for a lease gets it
// when the file has it.
//
// If a write fails, File grants all the same, since traffic does not stop for a disk. It says
// so in the log and in its Reading, and tries again. A crash forgets what was granted
// meanwhile.
type File struct {
	// Set by Open, read by all.
	path string
	Options
	lock  *os.File      // nil: there is none
	id    string        // that the last process had and this one may have, or has; see ID
	found []limit.Lease // what the last process has kept
	fault error         // why what was found cannot be trusted
	aside string        // the other name of a file that cannot be trusted; "": none

	claimed bool // the lock file has the ID; only who opens the file uses it

	wake chan struct{} // there are asks, or the file is to be closed; capacity 1
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex     // guards the fields below; taken after the lock of a tree of classes
	asks    []ask          // that the goroutine has not taken yet
	last    *[]limit.Lease // what Close writes; nil: the file is not to be closed
	reading stats.StateReading

	// Only the goroutine uses these.
	leases map[place]limit.Lease
	firm   map[place]limit.Lease // those of Keep
	unkept map[place]ask         // of Keep, which wait for a write that succeeds
	keys   int                   // how many of leases have a key
	dirty  bool                  // the file lacks something
	failed time.Time             // when the last write failed; zero: it has succeeded
	logged time.Time             // when a failure was logged last
}

// A place is where a lease replaces another.
type place struct{ name, key string }

// An ask is an argument of Ask, or of Keep.
type ask struct {
	lease  limit.Lease
	answer func(now time.Time, granted int64)
	kept   func() // of Keep
}

// closePatience is how long Close waits for the disk.
const closePatience = 10 * time.Second

// Open takes the file at path for this process, and reads what the last process has kept. The
// error is ErrInUse if another process uses the file, or says why its directory or the file
// cannot be used. If the file cannot be trusted, Open gives it another name: no write must destroy
// it. Nothing is written before Start.
func Open(path string, o Options) (*File, error) {
	o.Clock = o.Clock.orSystem()
	if o.disk == nil {
		o.disk = system{}
	}
	f := &File{path: path, Options: o, wake: make(chan struct{}, 1), done: make(chan struct{}), leases: map[place]limit.Lease{}, firm: map[place]limit.Lease{}, unkept: map[place]ask{}}
	f.reading.Path = path
	var err error
	if f.lock, err = lock(path); err != nil {
		return nil, err
	}
	var written int64
	f.found, written, f.fault = find(path, o.Clock)
	if f.lock != nil {
		if last := lastClaim(f.lock, f.Clock.Wall()); f.fault == nil && written >= last.started {
			f.id = last.id
		}
	}
	if err := f.keepFault(); err != nil {
		f.unlock()
		return nil, err
	}
	return f, nil
}

// keepFault sets a file aside that cannot be trusted. The error says why the file cannot be used. A second name that
// cannot be made because the disk is full or faulty is not worth a start.
func (f *File) keepFault() (err error) {
	if faulty := (*fs.PathError)(nil); f.fault == nil || errors.As(f.fault, &faulty) && faulty.Op == "open" {
		return f.fault
	}
	f.aside, err = setAside(f.path, f.Clock.Wall())
	switch {
	case isOfDisk(err):
		f.Log.Error("cannot keep the damaged state file", "file", f.path, "err", err)
	case err != nil:
		return fmt.Errorf("the state file is damaged (%w), and it cannot be kept: %w", f.fault, err)
	}
	return nil
}

// Found returns what the last process has kept, in times of this process; nothing if there is
// no file. trusted is false if there is a file that is not exactly what was written.
func (f *File) Found() (leases []limit.Lease, trusted bool) { return f.found, f.fault == nil }

// ID returns a random name that stays with the file over restarts, 16 characters in its lock file. Only one process at a
// time has it, and a copy of the file has another one. A process that comes under the name of the last one finds all that
// this one has kept: if the file is gone, damaged, or older than that process, the name is new. It is "" if the disk keeps
// none. The first call takes the name.
func (f *File) ID() string {
	if !f.claimed && f.lock != nil {
		f.id = claimID(f.lock, f.id, f.Clock.Wall())
	}
	f.claimed = true
	return f.id
}

// Path returns the path of the file.
func (f *File) Path() string { return f.path }

// Discard gives up a file that was opened and not started.
func (f *File) Discard() {
	if f.aside != "" {
		os.Remove(f.aside) // the file still has its own name
	}
	f.unlock()
}

func (f *File) unlock() {
	if f.lock != nil {
		f.lock.Close()
	}
}

// Start begins to write. The first write has all that was asked before.
func (f *File) Start() {
	if f.fault != nil {
		f.Log.Error("the state file is damaged: classes start as if their budgets had just been used", "file", f.path, "err", f.fault, "kept_as", f.aside)
	}
	f.found, f.dirty = nil, true
	f.rouse()
	go f.run()
}

// Ask keeps a lease in the place of the last one of its name and key, and returns at once.
// Later the goroutine of the file calls answer, unless that is nil. granted is limit.NoRoom if
// the file has no room for another key, and else the units of the lease.
func (f *File) Ask(lease limit.Lease, answer func(now time.Time, granted int64)) {
	f.add(ask{lease: lease, answer: answer})
}

// Keep is Ask for what must not be forgotten. It calls kept when the lease is on the disk, and never before: not while
// writes fail, nor if the file has no room for another key, nor if a later lease takes the place first.
func (f *File) Keep(lease limit.Lease, kept func()) { f.add(ask{lease: lease, kept: kept}) }

func (f *File) add(a ask) {
	f.mu.Lock()
	f.asks = append(f.asks, a)
	f.mu.Unlock()
	f.rouse()
}

// Close writes leases in the place of all others but those of Keep, and ends. If the disk does not answer, Close
// says so in the log and returns all the same.
func (f *File) Close(leases []limit.Lease) {
	f.mu.Lock()
	f.last = &leases
	f.mu.Unlock()
	f.rouse()
	select {
	case <-f.done:
		f.unlock()
	case <-time.After(closePatience):
		f.Log.Error("the state file is not written: the disk does not answer", "file", f.path)
	}
}

// Read returns where the state is, and how writing went.
func (f *File) Read() stats.StateReading {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reading
}

func (f *File) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}
