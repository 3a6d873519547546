package state

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shaper/limit"
)

// ErrInUse is the error of a file that another process keeps its state in.
var ErrInUse = errors.New("another process keeps its state there")

// ErrNoFile is the error of a path that leads to a directory, a pipe or a device.
var ErrNoFile = errors.New("it is not a regular file")

// ErrForeign is the error of a text that shaper has not written: a wrong path may lead to the policy, or to a key.
var ErrForeign = errors.New("it is a text and no state file, and shaper leaves it alone")

// lock makes sure that no other process uses the file at path. The lock ends with the process.
// A lock that cannot be made because the disk is full or faulty is not worth a start: the
// result is nil then.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case isOfDisk(err):
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

// isOfDisk reports whether an error says that the disk is full, faulty or read-only.
func isOfDisk(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

// Check returns why Open would fail at path, or nil. It changes nothing, so it does not know of everything.
func Check(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // Open makes it
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "open", Path: path, Err: ErrNoFile}
	default:
		f, err := openOwn(path)
		if err != nil {
			return err
		}
		f.Close()
	}
	dir := filepath.Dir(path)
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil && err != unix.EROFS {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

// A claim is what a lock file says of the process that has it.
type claim struct {
	id      string // its name
	inode   uint64 // of the file
	started int64  // when it took the name, in microseconds since 1970
}

// lastClaim returns what the last process has written to a lock file; none if there is no name, if the file is a copy of
// another one, and if the clock was set back to before that process took the name: what it has said under that name would
// be later than what this process says.
func lastClaim(lock *os.File, now time.Time) (last claim) {
	text := make([]byte, 100)
	n, _ := lock.ReadAt(text, 0)
	_, err := fmt.Sscanf(string(text[:n]), claimFormat, &last.id, &last.inode, &last.started)
	if err != nil || len(last.id) != idLength || last.inode != inodeOf(lock) || last.started > now.UnixMicro() {
		return claim{}
	}
	return last
}

// claimID writes a name to a lock file; a new one if it is "". It returns "" if the disk does not keep it.
func claimID(lock *os.File, id string, now time.Time) string {
	id = cmp.Or(id, rand.Text()[:idLength])
	if _, err := lock.WriteAt(fmt.Appendf(nil, claimFormat, id, inodeOf(lock), now.UnixMicro()), 0); err != nil || lock.Sync() != nil {
		return ""
	}
	return id
}

// inodeOf returns the inode of a file; 0 if it has none.
func inodeOf(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	of, _ := info.Sys().(*syscall.Stat_t)
	return of.Ino
}

const (
	idLength    = 16 // characters of an ID
	claimFormat = "%16s %020d %020d\n"
)

// find returns the leases in the file at path, and when it was written, in microseconds since 1970; nothing if there is no
// file.
func find(path string, clock Clock) (leases []limit.Lease, written int64, err error) {
	f, err := openOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostBytes))
	if err != nil {
		return nil, 0, err
	}
	present := clock.moment()
	now := time.Now() // not before present: what has left would seem to have left earlier than it did
	if leases, err = decode(now, present, data); err != nil {
		return nil, 0, err
	}
	return leases, int64(binary.LittleEndian.Uint64(data[len(magic)+8:])) / 1000, nil
}

// openOwn opens the file at path for reading, unless it is that of another program. It does not wait for a pipe.
func openOwn(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = ErrNoFile
	case isForeign(f):
		err = ErrForeign
	default:
		return f, nil
	}
	f.Close()
	return nil, &fs.PathError{Op: "open", Path: path, Err: err}
}

// isForeign reports whether a file is a text of several lines, as a policy or a key is. A state file that has been damaged is none.
func isForeign(f io.ReaderAt) bool {
	first := make([]byte, 512)
	n, _ := f.ReadAt(first, 0)
	first = first[:n]
	isControl := func(c rune) bool { return c < ' ' && !strings.ContainsRune("\t\r\n", c) }
	return !bytes.HasPrefix(first, []byte(kind)) && bytes.Count(first, []byte("\n")) > 1 && !bytes.ContainsFunc(first, isControl)
}

// setAside gives a file that cannot be trusted a second name, and returns that. The file also
// keeps its own name until the next write: if the process ends before, the next one must not
// think that there was none.
func setAside(path string, at time.Time) (aside string, err error) {
	base := path + ".damaged-" + at.UTC().Format("20060102T150405Z")
	aside = base
	for n := 2; ; n++ {
		err = os.Link(path, aside)
		switch {
		case err == nil:
			return aside, nil
		case !errors.Is(err, fs.ErrExist) || n > 100:
			return "", err
		}
		aside = fmt.Sprintf("%s-%d", base, n)
	}
}
