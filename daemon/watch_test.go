package daemon

import (
	"context"
	"errors"
	"math"
	"strings"
	"syscall"
	"testing"
)

// errSeen ends a stream that has shown enough.
var errSeen = errors.New("seen")

// firstOf returns the first event of a view on the control socket.
func firstOf[V any](p *process, view string) (first Event[V], err error) {
	p.t.Helper()
	ctx, cancel := context.WithCancelCause(p.t.Context())
	defer cancel(nil)
	err = watch(ctx, p.Client, view, func(e Event[V]) {
		first = e
		cancel(errSeen)
	})
	if context.Cause(ctx) == errSeen {
		err = nil
	}
	return first, err
}

// The control socket sends what the dashboard shows, even if daemon.http is off.
func TestWatchWithoutHTTP(t *testing.T) {
	p := begin(t, strings.Replace(base, `"127.0.0.1:0"`, `""`, 1))
	all, err := firstOf[Tree](p, "classes")
	if err != nil || all.View.Total != 3 || all.View.Classes[2].Rate != "64KiB/s" || all.Summary.State != Running || all.Now.IsZero() {
		t.Errorf("%v, %v", all, err)
	}
	one, err := firstOf[ClassView](p, "class/slow")
	if err != nil || one.View.Class == nil || one.View.Class.Name != "slow" || !strings.HasPrefix(one.View.Why, "class slow: nothing waits") {
		t.Errorf("%v, %v", one, err)
	}
	if none, err := firstOf[ClassView](p, "class/none"); err != nil || none.View.Class != nil {
		t.Errorf("%v, %v", none, err)
	}
	if _, err := firstOf[Tree](p, "none"); CodeOf(err) != CodeNotFound || err.Error() != `there is no view "none"` {
		t.Errorf("a view that does not exist: %v", err)
	}
}

// Whoever reaches daemon.http may hold all the streams that browsers get. The control socket still has
// some.
func TestBrowsersDoNotKeepOutTheControlSocket(t *testing.T) {
	p := begin(t, base)
	for range 8 {
		p.look("classes")
	}
	if _, err := firstOf[Tree](p, "classes"); err != nil {
		t.Error(err)
	}
}

// With daemon.http, the daemon keeps the last hour. What it does not know of it is no number.
func TestWatchCurves(t *testing.T) {
	p := begin(t, base)
	p.awaitSample("slow")
	one, err := firstOf[ClassView](p, "class/slow")
	if c := one.View.Curves; err != nil || c.Unit != "bytes" || len(c.Times) != 1 || !math.IsNaN(float64(c.Sent[0])) {
		t.Errorf("the curves are %v, %v", c, err)
	}
}

// A stream ends with the daemon, and with its control socket. The next one is a stream of what is there
// then.
func TestWatchEnds(t *testing.T) {
	p := begin(t, base)
	old := p.Client
	seen, ended := make(chan bool, 1), make(chan error)
	follow := func(c *Client) {
		ended <- c.WatchTree(t.Context(), func(Event[Tree]) {
			select {
			case seen <- true:
			default:
			}
		})
	}
	go follow(old)
	<-seen
	p.edit(`control = "c.sock"`, `control = "d.sock"`)
	if _, err := p.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrUnreachable) {
		t.Errorf("when the socket moved: %v", err)
	}
	p.Client = NewClient(strings.Replace(old.path, "c.sock", "d.sock", 1))
	go follow(p.Client)
	<-seen
	p.signals <- syscall.SIGTERM
	if err := <-ended; !errors.Is(err, ErrUnreachable) {
		t.Errorf("when the daemon stopped: %v", err)
	}
}
