package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/daemon"
	"shaper/tests/trial"
)

const patience = time.Minute

// fake is a Source that a test drives.
type fake struct {
	trees chan error // nil: an event; an error ends the stream
	pages chan string
}

func (f *fake) WatchTree(ctx context.Context, show func(daemon.Event[daemon.Tree])) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-f.trees:
			if err != nil {
				return err
			}
			all := classes()
			show(daemon.Event[daemon.Tree]{Now: noon, Summary: summary, View: daemon.Tree{Total: len(all), Classes: all}})
		}
	}
}

func (f *fake) WatchClass(ctx context.Context, name string, show func(daemon.Event[daemon.ClassView])) error {
	f.pages <- name
	show(bulkPage())
	<-ctx.Done()
	return ctx.Err()
}

// session is a top that runs in a terminal.
type session struct {
	t      *testing.T
	source *fake
	near   *os.File // where a person would sit
	far    *os.File
	before *unix.Termios
	ended  chan error
	facts  func(daemon.Class, time.Time) [][2]string

	mu    sync.Mutex
	drawn strings.Builder
}

// begin opens a terminal. Run starts top in it.
func begin(t *testing.T) *session {
	near, far := trial.OpenTerminal(t, 80, 24)
	s := &session{t: t, source: &fake{make(chan error, 1), make(chan string, 1)}, near: near, far: far, ended: make(chan error, 1)}
	s.before, s.facts = s.modes(), func(daemon.Class, time.Time) [][2]string { return nil }
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(s, near)
	}()
	t.Cleanup(func() { far.Close(); near.Close(); <-read })
	return s
}

func (s *session) run() {
	go func() {
		defer func() {
			if fault := recover(); fault != nil {
				s.ended <- fmt.Errorf("%v", fault)
			}
		}()
		s.ended <- Run(s.t.Context(), Options{Source: s.source, Terminal: s.far, Facts: s.facts})
	}()
}

// Write takes what is drawn.
func (s *session) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drawn.Write(text)
}

// await waits until a text is drawn, and forgets all that was.
func (s *session) await(text string) (drawn string) {
	s.t.Helper()
	trial.Await(s.t, fmt.Sprintf("%q is drawn", text), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		drawn = s.drawn.String()
		if !strings.Contains(drawn, text) {
			return false
		}
		s.drawn.Reset()
		return true
	})
	return drawn
}

func (s *session) modes() (modes *unix.Termios) {
	s.t.Helper()
	raw, err := s.far.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { modes, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) }), err)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return modes
}

// end waits until top has ended, and looks whether the terminal is as it was.
func (s *session) end() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		s.await(leaveScreen)
		if after := s.modes(); *after != *s.before {
			s.t.Errorf("the modes of the terminal were %+v and are %+v", s.before, after)
		}
		return err
	case <-time.After(patience):
		s.t.Fatal("it does not end")
		return nil
	}
}

// Whatever ends it, the terminal is as it was.
func TestTerminalIsRestored(t *testing.T) {
	for name, end := range map[string]func(*session){
		"q":       func(s *session) { s.near.WriteString("q") },
		"ctrl-C":  func(s *session) { s.near.WriteString("\x03") },
		"SIGTERM": func(*session) { syscall.Kill(os.Getpid(), syscall.SIGTERM) },
		"SIGHUP":  func(*session) { syscall.Kill(os.Getpid(), syscall.SIGHUP) },
		"SIGINT":  func(*session) { syscall.Kill(os.Getpid(), syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			s.run()
			s.source.trees <- nil
			if drawn := s.await("bulk"); !strings.HasPrefix(drawn, enterScreen+beginUpdate) {
				t.Errorf("it begins with %q", drawn)
			}
			if *s.modes() == *s.before {
				t.Error("the terminal is not in raw mode")
			}
			end(s)
			if err := s.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A panic gives the terminal back before anybody reads it: one of Run, and one of a goroutine beside.
func TestPanicRestoresTheTerminal(t *testing.T) {
	s := begin(t)
	s.facts = func(daemon.Class, time.Time) [][2]string { panic("a fault") }
	s.run()
	s.source.trees <- nil
	s.await("bulk")
	s.near.WriteString("\r")
	if err := s.end(); err == nil || err.Error() != "a fault" {
		t.Errorf("it ends with %v", err)
	}

	s = begin(t)
	terminal := &tty{file: s.far}
	if err := terminal.enter(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer func() { s.ended <- errors.New(recover().(string)) }()
		defer terminal.guard()
		panic("another")
	}()
	if err := s.end(); err.Error() != "another" {
		t.Errorf("it ends with %v", err)
	}
}

// The first answer decides whether the terminal is taken. When the daemon goes later, top says so, and
// goes on when it is back.
func TestDaemonGoes(t *testing.T) {
	s := begin(t)
	gone := errors.New("the daemon is not reachable")
	s.source.trees <- gone
	s.run()
	if err := <-s.ended; err != gone {
		t.Errorf("without a daemon: %v", err)
	}
	if s.drawn.Len() > 0 {
		t.Errorf("without a daemon it draws %q", s.drawn.String())
	}
	s.run()
	s.source.trees <- nil
	s.await("5 classes")
	s.source.trees <- gone
	s.await("old since 12:00:00: the daemon is not reachable")
	s.source.trees <- nil
	s.await("5 classes")
	s.near.WriteString("q")
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// Enter follows the class under the cursor, and esc the tree again. Only one of them is followed. A new
// size, and a wake-up, draw all.
func TestFollows(t *testing.T) {
	s := begin(t)
	s.run()
	s.source.trees <- nil
	s.await("bulk")
	s.near.WriteString("j\r")
	s.await("the next leaves at")
	if name := <-s.source.pages; name != "bulk" {
		t.Errorf("it follows %q", name)
	}
	s.near.WriteString("\x1b")
	s.await("5 classes")
	s.source.trees <- nil
	s.near.WriteString("?")
	s.await("any key")
	s.near.WriteString("x")
	s.await("aggregator")
	raw, err := s.far.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: 40, Row: 10})
	})
	syscall.Kill(os.Getpid(), syscall.SIGWINCH)
	s.await("This one has 40x10")
	syscall.Kill(os.Getpid(), syscall.SIGCONT)
	if drawn := s.await("This one has 40x10"); !strings.Contains(drawn, enterScreen) {
		t.Errorf("when it wakes up, it draws %q", drawn)
	}
	s.near.WriteString("q")
	if err := s.end(); err != nil {
		t.Error(err)
	}
}
