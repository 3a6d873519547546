package state

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"shaper/limit"
	"shaper/tests/trial"
)

// A memory is a disk in memory.
type memory struct {
	mu     sync.Mutex
	takes  time.Duration
	err    error
	files  map[string][]byte
	writes int
}

func (m *memory) replace(path string, data []byte) error {
	m.mu.Lock()
	takes, err := m.takes, m.err
	m.mu.Unlock()
	time.Sleep(takes) // in virtual time
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if err == nil {
		m.files[path] = data
	}
	return err
}

func (m *memory) set(takes time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.takes, m.err = takes, err
}

// inMemory returns a file on a disk in memory, started.
func inMemory(t *testing.T, m *memory) (*File, *trial.Log) {
	b, log := trial.NewLog()
	m.files = map[string][]byte{}
	f, err := Open(filepath.Join(t.TempDir(), "state"), Options{Log: log, disk: m})
	if err != nil {
		t.Fatal(err)
	}
	f.Start()
	return f, b
}

// lasting returns a lease that does not expire.
func lasting(name, key string, units int64) limit.Lease {
	now := time.Now()
	return limit.Lease{Name: name, Key: key, At: now, Units: units, Until: now, Expires: limit.Never}
}

// pass lets virtual time pass, until nothing happens any more.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A lease is granted when the file has it, and not before. All that comes during a write is
// in the next one.
func TestGrantsWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{takes: 10 * time.Millisecond}
		f, _ := inMemory(t, m)
		synctest.Wait()
		began, answers := time.Now(), 0
		for i := range 50 {
			f.Ask(lasting(fmt.Sprint(i), "", 3), func(now time.Time, granted int64) {
				answers++
				leases, err := decode(now, f.Clock.moment(), m.files[f.Path()])
				if err != nil || len(leases) != 50 || granted != 3 {
					t.Errorf("granted %d when the file has %d leases: %v", granted, len(leases), err)
				}
				if waited := now.Sub(began); waited != 20*time.Millisecond {
					t.Errorf("granted after %v, want 20ms: after the first write", waited)
				}
			})
		}
		pass(time.Second)
		if answers != 50 || m.writes != 2 {
			t.Errorf("%d answers, %d writes; want 50 and 2", answers, m.writes)
		}
		f.Close(nil)
	})
}

// What has left never seems to have left earlier than it did, however long it takes to read the clocks.
func TestTimesAreNeverEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boot, slow := time.Now(), false
		pause := func() {
			if slow {
				time.Sleep(10 * time.Millisecond)
			}
		}
		clock := Clock{Wall: time.Now, Boot: func() ([16]byte, time.Duration) {
			defer pause()
			pause()
			return [16]byte{1}, time.Since(boot)
		}}
		path := filepath.Join(t.TempDir(), "state")
		open := func() *File {
			f, err := Open(path, Options{Log: slog.New(slog.DiscardHandler), Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		f := open()
		f.Start()
		left := lasting("a", "", 1)
		f.Close([]limit.Lease{left})
		time.Sleep(time.Second)
		slow = true
		f = open()
		defer f.Discard()
		if found, trusted := f.Found(); !trusted || len(found) != 1 || found[0].At.Before(left.At) {
			t.Errorf("found %v, want what left at %v, or later", found, left.At)
		}
	})
}

// A disk that fails stops nobody. That is logged once a minute, counted, and shown; when the
// disk is back, everything is written.
func TestGoesOnWhileTheDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{takes: time.Millisecond}
		f, log := inMemory(t, m)
		pass(time.Second)
		m.set(time.Millisecond, &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
		for range 150 {
			asked := time.Now()
			f.Ask(lasting("a", "", 1), func(now time.Time, granted int64) {
				if granted != 1 || now.Sub(asked) > 2*time.Millisecond {
					t.Errorf("granted %d after %v", granted, now.Sub(asked))
				}
			})
			pass(time.Second)
		}
		if n := strings.Count(log.String(), "cannot write the state file"); n != 3 {
			t.Errorf("logged %d times in 150 s, want 3:\n%s", n, log)
		}
		if r := f.Read(); r.Failures < 70 || !strings.Contains(r.Error, "no space left") || time.Since(r.Written) < 149*time.Second {
			t.Errorf("the reading is %+v", r)
		}
		m.set(time.Millisecond, nil)
		pass(2 * time.Second)
		leases, err := decode(time.Now(), f.Clock.moment(), m.files[f.Path()])
		if r := f.Read(); err != nil || len(leases) != 1 || r.Error != "" || time.Since(r.Written) > 2*time.Second {
			t.Errorf("once the disk is back: %d leases, %v, %+v", len(leases), err, r)
		}
		if !strings.Contains(log.String(), "is written again") {
			t.Errorf("the log does not say that it works again:\n%s", log)
		}
		f.Close(nil)
	})
}

// A disk that hangs is logged while it does, and does not hold up Close.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{takes: 30 * time.Second}
		f, log := inMemory(t, m)
		pass(2 * time.Second)
		if !strings.Contains(log.String(), "the disk is slow") {
			t.Errorf("the log does not say so:\n%s", log)
		}
		began := time.Now()
		f.Close(nil)
		if took := time.Since(began); took > closePatience {
			t.Errorf("Close took %v", took)
		}
		if !strings.Contains(log.String(), "the disk does not answer") {
			t.Errorf("the log does not say so:\n%s", log)
		}
		pass(time.Minute) // the goroutine ends
	})
}

// The file has room for so many keys. Classes always have room, and keys that expire make
// room.
func TestRoomForKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f, _ := inMemory(t, m)
		refused := 0
		ask := func(name, key string, expires time.Time) {
			lease := lasting(name, key, 1)
			lease.Expires = expires
			f.Ask(lease, func(_ time.Time, granted int64) {
				if granted == limit.NoRoom {
					refused++
				}
			})
		}
		soon := time.Now().Add(time.Minute)
		for i := range mostKeys + 5 {
			ask("a", fmt.Sprint(i), soon)
		}
		pass(time.Second)
		ask("b", "", soon)
		ask("a", "7", soon)
		pass(time.Second)
		if refused != 5 {
			t.Errorf("%d refused, want the last 5 keys", refused)
		}
		pass(time.Minute)
		ask("b", "", time.Now().Add(time.Hour)) // its write forgets what has expired
		pass(time.Second)
		ask("a", "new", time.Now().Add(time.Hour))
		pass(time.Second)
		if refused != 5 || f.Read().Bytes > 1000 {
			t.Errorf("%d refused, the file has %d bytes", refused, f.Read().Bytes)
		}
		f.Close(nil)
	})
}

// open opens a file on the real disk.
func open(t *testing.T, path string) (*File, *trial.Log) {
	t.Helper()
	b, log := trial.NewLog()
	f, err := Open(path, Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return f, b
}

// What Close has written is what the next process finds, and only that.
func TestOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	if leases, trusted := f.Found(); len(leases) != 0 || !trusted {
		t.Errorf("without a file: %v, trusted %v", leases, trusted)
	}
	f.Start()
	answered := make(chan int64, 1)
	f.Ask(lasting("gone", "", 7), func(_ time.Time, granted int64) { answered <- granted })
	if granted := <-answered; granted != 7 {
		t.Errorf("granted %d, want 7", granted)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("a second process gets %v, want ErrInUse", err)
	}
	f.Close([]limit.Lease{lasting("acme", "", 0)})
	f, _ = open(t, path)
	if leases, trusted := f.Found(); !trusted || len(leases) != 1 || leases[0].Name != "acme" {
		t.Errorf("found %+v, trusted %v", leases, trusted)
	}
	f.Discard()
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

// A file that is damaged is kept under another name, and says so.
func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	f.Start()
	f.Close([]limit.Lease{lasting("acme", "", 0)})
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	for range 2 { // within one second too
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, log := open(t, path)
		if leases, trusted := f.Found(); trusted || len(leases) > 0 {
			t.Errorf("found %v, trusted %v", leases, trusted)
		}
		f.Start()
		f.Close(nil)
		if !strings.Contains(log.String(), "the state file is damaged") || !strings.Contains(log.String(), ".damaged-") {
			t.Errorf("the log is\n%s", log)
		}
	}
	aside, _ := filepath.Glob(path + ".damaged-*")
	if len(aside) != 2 {
		t.Fatalf("set aside: %v", aside)
	}
	if kept, _ := os.ReadFile(aside[0]); !bytes.Equal(kept, data) {
		t.Error("what is set aside is not the damaged file")
	}
	f, _ = open(t, path)
	if _, trusted := f.Found(); !trusted {
		t.Error("the next process does not trust the new file")
	}
	f.Discard()
}

// A text of several lines is no state file: nobody may replace it. One of shaper's that was cut anywhere, or of which something else
// is left, is damaged.
func TestForeignFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	whole := encode(start, written, slices.Values(someLeases()))
	for n := range whole {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		f, _ := open(t, path)
		if _, trusted := f.Found(); trusted {
			t.Errorf("a file cut at byte %d is trusted", n)
		}
		f.Discard()
	}
	for text, want := range map[string]error{
		"[daemon]\nstate = \"shaper.toml\"\n": ErrForeign, "me:$2y$10$x\nyou:$2y$10$y\n": ErrForeign, "shaper stat": nil, "garbage\n": nil,
		"shaper state 2\n\x02": nil, "\x00\x00\x00": nil, strings.Repeat("\x00", 100): nil, "\x01\n\n\n": nil, "shaper state 2\n\n\n": nil,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, Options{})
		if checked := Check(path); !errors.Is(err, want) || !errors.Is(checked, want) {
			t.Errorf("%q: Open says %v, and Check %v, want %v", text, err, checked, want)
		}
		if err == nil {
			f.Discard()
		}
		if kept, _ := os.ReadFile(path); string(kept) != text {
			t.Errorf("%q has become %q", text, kept)
		}
	}
	if aside, _ := filepath.Glob(path + ".damaged-*"); len(aside) > 0 {
		t.Errorf("nothing was started, and there are %v", aside)
	}
}

// A damaged file that cannot get another name, here because that is too long, is not replaced.
func TestDamagedFileThatCannotBeKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("s", 240))
	data := encode(start, written, slices.Values(someLeases()))
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first one has given up its lock
		f, err := Open(path, Options{Log: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, syscall.ENAMETOOLONG) || !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open says %v", err)
		}
		if err == nil {
			f.Start()
			f.Close(nil)
		}
	}
	if kept, _ := os.ReadFile(path); !bytes.Equal(kept, data) {
		t.Error("the damaged file has been replaced")
	}
}

func TestOpenWhatCannotBe(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none", "state"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	pipe := filepath.Join(dir, "pipe") // nobody writes to it, and nothing waits for that
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, dir} { // nothing can be renamed over a directory
		if _, err := Open(path, Options{}); !errors.Is(err, ErrNoFile) || err.Error() != "open "+path+": it is not a regular file" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestKeepsWhatIsWritten keeps a lease while the disk fails: nobody is told that it is kept before it is. Close does not
// forget it, and the lease that takes its place goes first.
func TestKeepsWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f, _ := inMemory(t, m)
		synctest.Wait()
		m.set(0, syscall.EIO)
		var kept []int64
		for _, units := range []int64{1, 2} {
			f.Keep(lasting("a", "", units), func() { kept = append(kept, units) })
			pass(10 * time.Second)
		}
		if len(kept) > 0 {
			t.Errorf("%v are kept while the disk fails", kept)
		}
		m.set(0, nil)
		pass(10 * time.Second)
		gone := lasting("b", "", 3)
		gone.Expires = time.Now()
		f.Keep(lasting("b", "", 4), func() {})
		f.Keep(gone, func() {})
		f.Close([]limit.Lease{lasting("c", "", 5)})
		leases, err := decode(time.Now(), f.Clock.moment(), m.files[f.Path()])
		if len(kept) != 1 || kept[0] != 2 || err != nil || len(leases) != 2 || leases[0].Units != 5 || leases[1].Units != 2 {
			t.Errorf("%v are kept, and the file has %v, %v", kept, leases, err)
		}
	})
}

// TestID holds that a file has one name over restarts, and that no other file has it, nor a copy of it. It has another if the
// clock was set back to before the last start, and if what was kept under its name is not there.
func TestID(t *testing.T) {
	dir := t.TempDir()
	wall := time.Now()
	id := func(name string) string {
		t.Helper()
		wall = wall.Add(time.Second)
		f, err := Open(filepath.Join(dir, name), Options{Log: slog.New(slog.DiscardHandler), Clock: Clock{Wall: func() time.Time { return wall }}})
		if err != nil {
			t.Fatal(err)
		}
		f.Discard() // a start that fails
		if f, err = Open(filepath.Join(dir, name), f.Options); err != nil {
			t.Fatal(err)
		}
		defer f.Close(nil)
		defer f.Start()
		return f.ID()
	}
	first := id("a")
	text, err := os.ReadFile(filepath.Join(dir, "a.lock"))
	if err != nil {
		t.Fatal(err)
	}
	wall = wall.Add(time.Second)
	if len(first) != idLength || id("a") != first || id("b") == first {
		t.Errorf("a is %q, then %q; b is %q", first, id("a"), id("b"))
	}
	for _, c := range []struct {
		name, text string
		at         time.Duration
	}{{"c", string(text), 0}, {"a", "", 0}, {"a", string(text[1:]), 0}, {"a", string(text), -time.Hour}} {
		before := wall
		wall = wall.Add(c.at)
		if err := os.WriteFile(filepath.Join(dir, c.name+".lock"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if again := id(c.name); len(again) != idLength || again == first || id(c.name) != again {
			t.Errorf("with the lock file %q and the clock %v later, %s is %q, then %q", c.text, c.at, c.name, again, id(c.name))
		}
		wall = before
	}
	before, err := os.ReadFile(filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	for i, data := range [][]byte{before, nil, {}, before[:len(before)/2], before[:len(before)-1]} {
		last := id("b")
		if id("b") != last {
			t.Fatal("b has another name without cause")
		}
		if data == nil {
			err = os.Remove(filepath.Join(dir, "b"))
		} else {
			err = os.WriteFile(filepath.Join(dir, "b"), data, 0o600)
		}
		if again := id("b"); err != nil || again == last || len(again) != idLength {
			t.Errorf("%d: b is %q, and was %q; %v", i, again, last, err)
		}
	}
}
