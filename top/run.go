package top

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"shaper/daemon"
)

// Source is what top asks the daemon; [daemon.Client] is one. Each call lasts until the context ends or
// no event can come, and returns why.
type Source interface {
	WatchTree(ctx context.Context, show func(daemon.Event[daemon.Tree])) error
	WatchClass(ctx context.Context, name string, show func(daemon.Event[daemon.ClassView])) error
}

// Options are what Run needs.
type Options struct {
	Source   Source
	Terminal *os.File                                  // opened so that it takes deadlines
	Colour   bool                                      // whether colours may be used
	Facts    func(daemon.Class, time.Time) [][2]string // all that is known of a class, as names and texts
}

// retryPause is how long follow waits before it asks a daemon again that has gone away.
const retryPause = time.Second

// Run shows the classes until the user quits or a signal ends it. It returns an error if the daemon does
// not answer at first, or the terminal fails. If the daemon goes away later, Run says so and asks again.
func Run(ctx context.Context, o Options) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	t := &top{
		tty:     &tty{file: o.Terminal},
		source:  o.Source,
		screen:  screen{looks: noColor},
		model:   model{facts: o.Facts},
		changes: make(chan func()),
	}
	if o.Colour {
		t.screen.looks = colours
	}
	defer t.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer t.tty.leave() // before all others, if this goroutine panics
	t.follow(ctx)
	select {
	case <-ctx.Done():
		return nil
	case first := <-t.changes:
		first()
	}
	if t.model.away != nil {
		return t.model.away
	}
	return t.loop(ctx)
}

// top is what runs. Only the goroutine of Run touches the model and the screen.
type top struct {
	tty     *tty
	source  Source
	screen  screen
	model   model
	changes chan func() // what other goroutines want the goroutine of Run to do; see tell

	running  sync.WaitGroup
	followed string // the class whose page follow asks for; "": the tree
	unfollow func() // ends follow, and waits until it has ended
}

// loop draws a frame after each change, until the user quits or the context ends.
func (t *top) loop(ctx context.Context) error {
	if err := t.tty.enter(); err != nil {
		return err
	}
	if err := t.resize(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(signals)
	var hungUp error // why no key can come any more
	t.beside(func() {
		err := t.tty.read(ctx, func(k key) { t.tell(ctx, func() { t.press(k) }) })
		if ctx.Err() == nil {
			t.tell(ctx, func() { hungUp, t.model.quit = err, true })
		}
	})
	for {
		if err := t.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case change := <-t.changes:
			change()
		case s := <-signals:
			if err := t.obey(s); err != nil {
				return err
			}
		}
		if t.model.quit {
			return hungUp
		}
		if t.model.open != t.followed {
			t.unfollow()
			t.follow(ctx)
		}
	}
}

// beside runs a function in a goroutine that Run awaits.
func (t *top) beside(f func()) {
	t.running.Go(func() {
		defer t.tty.guard()
		f()
	})
}

// tell makes the goroutine of Run call change, unless the context ends first.
func (t *top) tell(ctx context.Context, change func()) {
	select {
	case t.changes <- change:
	case <-ctx.Done():
	}
}

// follow asks the daemon for what the model shows, until unfollow. If the daemon goes away, it asks again.
func (t *top) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	t.followed, t.unfollow = t.model.open, func() { cancel(); <-ended }
	class := t.model.open
	t.beside(func() {
		defer close(ended)
		for {
			err := t.watch(ctx, class)
			t.tell(ctx, func() { t.model.lose(err) })
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryPause):
			}
		}
	})
}

// watch shows a class, or the tree, as long as events come.
func (t *top) watch(ctx context.Context, class string) error {
	if class == "" {
		return t.source.WatchTree(ctx, func(e daemon.Event[daemon.Tree]) {
			t.tell(ctx, func() { t.model.showTree(e) })
		})
	}
	return t.source.WatchClass(ctx, class, func(e daemon.Event[daemon.ClassView]) {
		t.tell(ctx, func() { t.model.showClass(e) })
	})
}

// press does what a key asks of the terminal, and gives all others to the model.
func (t *top) press(k key) {
	switch k {
	case keySuspend:
		t.suspend()
	case keyRedraw:
		t.screen.forget()
	default:
		t.model.press(k)
	}
}

// suspendPatience is how long a signal to stop may take. If it has not come then, nobody could wake
// this process again, and the kernel has ignored it.
const suspendPatience = time.Second

// suspend gives the terminal back and stops the processes of the job, until the shell goes on with it.
func (t *top) suspend() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)
	t.tty.leave()
	syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-woken:
	case <-time.After(suspendPatience):
	}
	t.tty.enter()
	t.screen.forget()
}

// obey does what a signal asks for: after SIGCONT, the terminal may show anything.
func (t *top) obey(s os.Signal) error {
	if s == syscall.SIGCONT {
		t.screen.forget()
		if err := t.tty.enter(); err != nil {
			return err
		}
	}
	return t.resize()
}

// resize takes the size of the terminal.
func (t *top) resize() error {
	width, height, err := t.tty.size()
	if err != nil {
		return err
	}
	if width != t.model.width || height != t.model.height {
		t.model.resize(width, height)
		t.screen.width = width
		t.screen.forget()
	}
	return nil
}

// draw draws what has changed. A terminal that does not take it in time gets a whole frame next time.
func (t *top) draw() error {
	text := t.screen.draw(t.model.view())
	if text == nil {
		return nil
	}
	err := t.tty.write(text)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.screen.forget()
		return nil
	}
	return err
}
