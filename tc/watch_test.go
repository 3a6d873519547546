package tc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"shaper/tc/tctest"
)

// watcher gathers what a watch reports.
type watcher struct {
	mu   sync.Mutex
	told []string
	hold chan struct{} // the next call waits for it; nil: it does not wait
}

func (w *watcher) changed(device string) {
	w.mu.Lock()
	w.told = append(w.told, device)
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

// took returns what was reported since the last call.
func (w *watcher) took() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return told
}

// Watch reports each change of a device of interest, whoever makes it. At first it reports
// that anything may have changed.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.fake.Plug("eth1", "veth")
		var w watcher
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- WatchOn(ctx, r.fake.Subscribe(100), func(name string) bool { return name == "eth0" || IsMirror(name) }, w.changed)
		}()
		holds := func(want ...string) {
			t.Helper()
			if got := slices.Compact(w.took()); !slices.Equal(got, want) {
				t.Errorf("reported %q, want %q", got, want)
			}
		}
		holds("")
		r.mustApply(treePlan(t))
		holds("eth0")
		r.mustApply(treePlan(t)) // changes nothing
		r.must(add, theirs("eth1"))
		holds()
		l, err := r.link("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.conn.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		holds("eth0")
		r.fake.Plug(r.mirror(), "ifb")
		holds("shaper2")
		r.fake.Unplug(r.mirror())
		holds("shaper2")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		r.mustClear()
		holds()
	})
}

// If notifications are lost, Watch reports that any device may have changed.
func TestWatchLosesMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := watcher{hold: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- WatchOn(ctx, r.fake.Subscribe(3), func(name string) bool { return name == "eth0" }, w.changed)
		}()
		w.took() // the watcher is now busy
		r.mustApply(treePlan(t))
		close(w.hold)
		if got := w.took(); !slices.Equal(got, []string{"", "eth0", "eth0", "eth0"}) {
			t.Errorf("reported %q", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// broken is a feed whose Receive fails.
type broken struct{ closed int }

func (*broken) Receive() ([]syscall.NetlinkMessage, error) { return nil, unix.EIO }
func (*broken) NameOf(uint32) string                       { return "" }
func (b *broken) Close()                                   { b.closed++ }

// If a feed fails, the watch ends. The feed is closed once, whether it or the context ends
// first.
func TestWatchFails(t *testing.T) {
	var b broken
	err := WatchOn(t.Context(), &b, func(string) bool { return true }, func(string) {})
	if !errors.Is(err, unix.EIO) || err.Error() != "tc: watch links and qdiscs: input/output error" || b.closed != 1 {
		t.Errorf("%v, closed %d times", err, b.closed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b = broken{}
	if err := WatchOn(ctx, &b, nil, func(string) { cancel() }); err != nil {
		t.Error(err)
	}
}

// Messages of other kinds are about no device.
func TestDeviceOf(t *testing.T) {
	fake := tctest.New("eth0")
	f := fake.Subscribe(9)
	defer f.Close()
	l := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb7"}}
	if err := fake.LinkAdd(l); err != nil {
		t.Fatal(err)
	}
	all, err := f.Receive()
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	data := all[0].Data
	for typ, want := range map[uint16]string{unix.RTM_NEWLINK: "ifb7", unix.RTM_DELLINK: "ifb7", unix.RTM_NEWADDR: ""} {
		if got := deviceOf(f, typ, data); got != want {
			t.Errorf("%d: %q", typ, got)
		}
	}
}

// The sockets work as a Conn and a Feed, without root too: reading needs no privileges.
func TestOpen(t *testing.T) {
	k, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	lo, err := k.link("lo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.dump(Qdisc, "lo", 0); err != nil {
		t.Error(err)
	}
	if _, err := k.link("nonesuch"); !errors.Is(err, ErrNoDevice) {
		t.Errorf("%v", err)
	}
	f, err := subscribe()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.NameOf(uint32(lo.Attrs().Index)); got != "lo" {
		t.Errorf("%q", got)
	}
	if got := f.NameOf(1 << 30); got != "" {
		t.Errorf("%q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := Watch(ctx, IsMirror, func(string) { cancel() }); err != nil {
		t.Error(err)
	}
}
