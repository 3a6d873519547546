package state

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/limit"
)

// ErrInUse is the error of a file that another process keeps its state in.
var ErrInUse = errors.New("another process keeps its state there")

// lock makes sure that no other process uses the file at path. The lock ends with the process.
// A lock that cannot be made because the disk is full or faulty is not worth a start: the
// result is nil then.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EROFS):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return f, nil
}

// idOf returns the name of who has a lock file, which the file itself says. It gives a new name if the file has none, if it
// is a copy of another one, and if the clock was set back to before the last start: what the last process has said under
// the old name would be later than what this one says. The name is "" if there is no lock file, or it cannot be written.
func idOf(lock *os.File, now time.Time) string {
	if lock == nil {
		return ""
	}
	info, err := lock.Stat()
	if err != nil {
		return ""
	}
	of, _ := info.Sys().(*syscall.Stat_t)
	var id string
	var inode uint64
	var started int64
	text := make([]byte, 100)
	n, _ := lock.ReadAt(text, 0)
	if _, err := fmt.Sscanf(string(text[:n]), idFormat, &id, &inode, &started); err != nil || len(id) != idLength || inode != of.Ino || started > now.UnixMicro() {
		id = rand.Text()[:idLength]
	}
	if _, err := lock.WriteAt(fmt.Appendf(nil, idFormat, id, of.Ino, now.UnixMicro()), 0); err != nil || lock.Sync() != nil {
		return ""
	}
	return id
}

const (
	idLength = 16                   // characters of an ID
	idFormat = "%16s %020d %020d\n" // the ID, the inode of the file, and when a process had it last, in microseconds since 1970
)

// find returns the leases in the file at path; none if there is no file.
func find(path string, now time.Time, clock Clock) ([]limit.Lease, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes))
	if err != nil {
		return nil, err
	}
	return decode(now, clock.moment(), data)
}

// setAside gives a file that cannot be trusted a second name, and returns that. The file also
// keeps its own name until the next write: if the process ends before, the next one must not
// think that there was none.
func setAside(path string, at time.Time) (aside string, err error) {
	base := path + ".damaged-" + at.UTC().Format("20060102T150405Z")
	aside = base
	for n := 2; ; n++ {
		err = os.Link(path, aside)
		if !errors.Is(err, fs.ErrExist) || n > 100 {
			return aside, err
		}
		aside = fmt.Sprintf("%s-%d", base, n)
	}
}
