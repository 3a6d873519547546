package conn

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxNamed bounds a file that the policy names. All authorities of a system take 256 KiB.
const maxNamed = 4 << 20

// readFile reads a regular file that the policy names. It does not wait for a pipe.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")})
	}
	data, err := io.ReadAll(io.LimitReader(file, maxNamed+1))
	if err == nil && len(data) > maxNamed {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("it is larger than 4MiB")}
	}
	return data, err
}

// ReadSecret reads a regular file that holds a secret: a password, a private key, or the users of an
// entry. An operator may have written the secret in place of its path, and errors go to logs. So an
// error has only as much of the path as exists.
func ReadSecret(path string) ([]byte, error) {
	data, err := readFile(path)
	return data, withoutUnknown(path, err)
}

// withoutUnknown takes out of an error what does not exist of a path.
func withoutUnknown(path string, err error) error {
	var failed *fs.PathError
	if !errors.As(err, &failed) {
		return err
	}
	known := path
	for known != filepath.Dir(known) && !exists(known) {
		known = filepath.Dir(known)
	}
	if known == path {
		return err
	}
	if whole, err := filepath.Abs(known); err == nil {
		known = whole
	}
	return fmt.Errorf("in %s: %w", known, failed.Err)
}

// exists reports whether a path leads to something.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
