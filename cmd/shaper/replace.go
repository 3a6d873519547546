package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// replaceFile writes a file, which need not be there. Whoever reads it meanwhile gets all of the old text or all of the
// new one, and after an error the file is as it was. The file behind a symbolic link is replaced, and the link stays. What
// is no regular file, such as a pipe, gets the text as it is written.
func replaceFile(path string, write func(io.Writer) error) error {
	old, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !old.Mode().IsRegular():
		return writeInto(path, write)
	default:
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	}
	beside, err := createBeside(path, old)
	if err != nil { // not wrapped: the exit code would say that the file itself cannot be opened
		return fmt.Errorf("shaper: cannot write a file beside %s: %v", path, err)
	}
	defer beside.Close()
	defer removeIfInterrupted(beside.Name())()
	if err = writeWhole(beside, old, write); err == nil {
		err = os.Rename(beside.Name(), path)
	}
	if err != nil {
		os.Remove(beside.Name())
	}
	return err
}

// writeInto writes into what is there, and is no regular file.
func writeInto(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(writeTo(f, write), f.Close())
}

// createBeside creates a file in the directory of another one, whose info is old; nil if there is none. Until it has
// the owner and the mode of that one, it is secret.
func createBeside(path string, old os.FileInfo) (*os.File, error) {
	mode := os.FileMode(0o666)
	if old != nil {
		mode = 0o600
	}
	name := fmt.Sprintf(".%s.%d", filepath.Base(path), rand.Uint64())
	return os.OpenFile(filepath.Join(filepath.Dir(path), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}

// writeWhole writes a new file, so that it outlasts a crash, and gives it the owner and the mode of the one that it
// replaces, if there is one.
func writeWhole(f *os.File, old os.FileInfo, write func(io.Writer) error) error {
	if err := writeTo(f, write); err != nil {
		return err
	}
	if old != nil {
		if err := keepOwner(f, old); err != nil {
			return err
		}
	}
	return f.Sync()
}

// writeTo writes to a file what write writes, in large pieces.
func writeTo(f *os.File, write func(io.Writer) error) error {
	out := bufio.NewWriterSize(f, 64<<10)
	if err := write(out); err != nil {
		return err
	}
	return out.Flush()
}

// keepOwner gives a new file the owner and the mode of the one that it replaces.
func keepOwner(f *os.File, info os.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := f.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	}
	return f.Chmod(info.Mode().Perm())
}

// removeIfInterrupted removes a file if a signal ends the process before stop is called. A signal that the process ignores,
// as one started by nohup, ends nothing.
func removeIfInterrupted(name string) (stop func()) {
	signals := make(chan os.Signal, 1)
	for _, s := range [...]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() {
		for s := range signals {
			os.Remove(name)
			signal.Reset(s)
			syscall.Kill(os.Getpid(), s.(syscall.Signal))
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}
