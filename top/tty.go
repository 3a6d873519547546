package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// writePatience bounds how long a terminal that takes nothing may hold up the end.
const writePatience = 2 * time.Second

// tty is the terminal. Between enter and leave it is in raw mode, and shows the alternate screen.
type tty struct {
	file *os.File

	mu    sync.Mutex
	saved *term.State // its modes before enter; nil: it has been left
}

// with calls f with the descriptor of the terminal. File.Fd would make it block.
func (t *tty) with(f func(fd int) error) error {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

// size returns the columns and lines of the terminal.
func (t *tty) size() (width, height int, err error) {
	err = t.with(func(fd int) error {
		width, height, err = term.GetSize(fd)
		return err
	})
	return width, height, err
}

// enter takes the terminal. If it is taken already, enter does so once more, since somebody else may
// have changed its modes; leave restores those before the first.
func (t *tty) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.with(func(fd int) error {
		saved, err := term.MakeRaw(fd)
		if t.saved == nil {
			t.saved = saved
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	return t.write([]byte(enterScreen))
}

// write writes to the terminal.
func (t *tty) write(text []byte) error {
	t.file.SetWriteDeadline(time.Now().Add(writePatience))
	_, err := t.file.Write(text)
	return err
}

// leave gives the terminal back as it was before enter. To leave it twice does no harm.
func (t *tty) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return
	}
	t.write([]byte(leaveScreen))
	t.with(func(fd int) error { return term.Restore(fd, t.saved) })
	t.saved = nil
}

// guard is deferred by each goroutine beside the one that owns the terminal. If the goroutine panics,
// guard gives the terminal back first, so that the panic can be read.
func (t *tty) guard() {
	if fault := recover(); fault != nil {
		t.leave()
		panic(fault)
	}
}

// escapePatience is how long the rest of a key that begins with ESC may take.
const escapePatience = 50 * time.Millisecond

// read calls press with each key until the context ends or the terminal is gone, and returns why.
func (t *tty) read(ctx context.Context, press func(key)) error {
	stop := context.AfterFunc(ctx, func() { t.file.SetReadDeadline(time.Now()) })
	defer stop()
	buffer, rest := make([]byte, 256), []byte(nil)
	for {
		n, err := t.file.Read(buffer)
		late := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !late:
			return err
		}
		var keys []key
		keys, rest = decode(append(rest, buffer[:n]...), late)
		for _, k := range keys {
			press(k)
		}
		var deadline time.Time
		if len(rest) > 0 {
			deadline = time.Now().Add(escapePatience)
		}
		if t.file.SetReadDeadline(deadline); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
