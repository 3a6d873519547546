package state

import (
	"crypto/rand"
	"encoding/hex"
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

// idOf returns what the lock file says that its owner is called, and gives it a name if it has none. It is "" if there is no
// lock file, or it cannot be written.
func idOf(lock *os.File) string {
	if lock == nil {
		return ""
	}
	text := make([]byte, idLength)
	if n, _ := lock.ReadAt(text, 0); n == idLength {
		if _, err := hex.DecodeString(string(text)); err == nil {
			return string(text)
		}
	}
	fresh := make([]byte, idLength/2)
	rand.Read(fresh) // never fails
	text = hex.AppendEncode(nil, fresh)
	if _, err := lock.WriteAt(text, 0); err != nil || lock.Sync() != nil {
		return ""
	}
	return string(text)
}

// idLength is how many characters an ID has.
const idLength = 16

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
