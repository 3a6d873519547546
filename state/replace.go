package state

import (
	"os"
	"path/filepath"
)

// A disk is where the state file is. Tests have one that fails.
type disk interface {
	// replace puts a file in the place of the one at path, whole and synced. After an error,
	// the old file is there or the new one, and either is whole.
	replace(path string, data []byte) error
}

// system is the disk of the system.
type system struct{}

// replace implements disk. The new file is beside the old one, because a rename does not
// cross file systems.
func (system) replace(path string, data []byte) (err error) {
	beside := path + ".new"
	f, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		os.Remove(beside)
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory makes a rename in a directory survive a crash.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
