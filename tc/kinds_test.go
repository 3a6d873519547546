package tc

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"shaper/tc/tctest"
)

// Kinds asks the kernel for each kind, and leaves nothing behind.
func TestKinds(t *testing.T) {
	for lacks, want := range map[string]Kinds{
		"":                    {true, true, true},
		"fq_codel":            {false, true, true},
		"sfq":                 {true, false, true},
		"flower":              {true, true, false},
		"ifb":                 {true, true, false}, // without a device flower cannot be tried
		"fq_codel sfq flower": {},
	} {
		fake := tctest.New("eth0")
		fake.Lacks = map[string]bool{}
		for _, kind := range strings.Fields(lacks) {
			fake.Lacks[kind] = true
		}
		k := On(fake)
		got, err := k.Kinds()
		if err != nil || got != want {
			t.Errorf("without %q: %+v, %v", lacks, got, err)
		}
		holdsNoProbe(t, k)
		fake.Between = func(q tctest.Request, _ func() error) error {
			t.Errorf("a second call asks the kernel: %v", q)
			return unix.EIO
		}
		if again, err := k.Kinds(); err != nil || again != want {
			t.Errorf("a second call: %+v, %v", again, err)
		}
	}
}

// holdsNoProbe fails the test if a probe has left something behind.
func holdsNoProbe(t *testing.T, k *Kernel) {
	t.Helper()
	links, err := k.conn.LinkList()
	if err != nil || len(links) != 2 {
		t.Errorf("%d devices, %v", len(links), err)
	}
	qdiscs, err := k.conn.Execute(request(unix.RTM_GETQDISC, unix.NLM_F_DUMP, &nl.TcMsg{Family: nl.FAMILY_ALL}))
	for _, b := range qdiscs {
		if m := parseMessage(b); m.handle != 0 {
			t.Errorf("%s %v remains", m.kind, m.handle)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// If a step fails for another reason, Kinds returns an error.
func TestKindsFail(t *testing.T) { synctest.Test(t, kindsFail) }

func kindsFail(t *testing.T) {
	for step := 0; ; step++ {
		fake := tctest.New("eth0")
		n := 0
		fake.Between = func(_ tctest.Request, do func() error) error {
			if n++; n == step+1 {
				return unix.EPERM
			}
			return do()
		}
		k := On(fake)
		_, err := k.Kinds()
		if n <= step {
			if err != nil || step < 6 {
				t.Errorf("after %d steps: %v", step, err)
			}
			return
		}
		if !errors.Is(err, unix.EPERM) || !strings.HasPrefix(err.Error(), "tc: ") {
			t.Errorf("step %d: %v", step, err)
		}
		if _, err := k.Device("eth0"); err != nil { // an error is not kept
			t.Errorf("the next call: %v", err)
		}
	}
}

// Kinds waits for another process that is probing, and deletes what a crash has left
// behind.
func TestProbesMeet(t *testing.T) {
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fake := tctest.New("eth0")
			fake.Plug(probeDevice, "ifb")
			began := time.Now()
			if !crash {
				time.AfterFunc(7*time.Millisecond, func() { fake.Unplug(probeDevice) })
			}
			k := On(fake)
			kinds, err := k.Kinds()
			if err != nil || !kinds.Flower {
				t.Errorf("%+v, %v", kinds, err)
			}
			took := time.Since(began)
			if crash && (took < crashed || took > 2*crashed) || !crash && took > 10*time.Millisecond {
				t.Errorf("crash %v: after %v", crash, took)
			}
			holdsNoProbe(t, k)
		})
	}
}

// Kinds waits for as many processes as are probing one after the other, and deletes the device of none: each takes a
// while, and all of them longer than a crash is given.
func TestProbesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := tctest.New("eth0")
		fake.Plug(probeDevice, "ifb")
		deletions := 0
		fake.Between = func(q tctest.Request, do func() error) error {
			if q.Type == unix.RTM_DELLINK {
				deletions++
			}
			return do()
		}
		for n := range 5 {
			time.AfterFunc(time.Duration(n+1)*crashed*3/4, func() {
				if fake.Unplug(probeDevice); n < 4 {
					fake.Plug(probeDevice, "ifb")
				}
			})
		}
		k := On(fake)
		if kinds, err := k.Kinds(); err != nil || !kinds.Flower || deletions != 1 {
			t.Errorf("%+v, %v, %d deletions, want its own alone", kinds, err, deletions)
		}
		holdsNoProbe(t, k)
	})
}

// If another process makes the device of a probe again at the moment it is deleted, and
// dies, the device has another index. It is deleted, too.
func TestProbesCrashTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := tctest.New("eth0")
		fake.Plug(probeDevice, "ifb")
		deletions := 0
		fake.Between = func(q tctest.Request, do func() error) error {
			err := do()
			if q.Type != unix.RTM_DELLINK {
				return err
			}
			if deletions++; deletions == 1 {
				fake.Plug(probeDevice, "ifb")
			}
			if deletions > 4 {
				return unix.EPERM // ends a loop without end
			}
			return err
		}
		k := On(fake)
		if kinds, err := k.Kinds(); err != nil || !kinds.Flower || deletions != 3 {
			t.Errorf("%+v, %v, %d deletions", kinds, err, deletions)
		}
		holdsNoProbe(t, k)
	})
}

// Sweep deletes the ifb devices of devices that are gone, and no others.
func TestSweep(t *testing.T) {
	fake := tctest.New("eth0")
	k := On(fake)
	for name, kind := range map[string]string{"shaper2": "ifb", "shaper77": "ifb", "shaper78": "ifb", "shaper79": "veth", "shaperx": "ifb", "other80": "ifb",
		"shaper": "ifb", "shaper0": "ifb", "shaper+81": "ifb", "shaper082": "ifb", "shaper-3": "ifb"} {
		fake.Plug(name, kind)
	}
	if n, err := k.Sweep(); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for name, there := range map[string]bool{"shaper2": true, "shaper77": false, "shaper78": false, "shaper79": true, "shaperx": true, "other80": true,
		"shaper": true, "shaper0": true, "shaper+81": true, "shaper082": true, "shaper-3": true} {
		if _, err := k.link(name); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := k.Sweep(); n != 0 || err != nil {
		t.Errorf("a second call: %d, %v", n, err)
	}
}

func TestSweepFails(t *testing.T) {
	fake := tctest.New()
	k := On(fake)
	fake.Plug("shaper77", "ifb")
	for typ, want := range map[uint16]string{
		unix.RTM_GETLINK: "tc: read links: operation not permitted",
		unix.RTM_DELLINK: "tc: delete ifb on shaper77: operation not permitted",
	} {
		fake.Between = func(q tctest.Request, do func() error) error {
			if q.Type == typ {
				return unix.EPERM
			}
			return do()
		}
		if n, err := k.Sweep(); n != 0 || err == nil || err.Error() != want {
			t.Errorf("%d, %v", n, err)
		}
	}
	fake.Between = func(q tctest.Request, do func() error) error {
		if q.Type == unix.RTM_DELLINK {
			fake.Unplug("shaper77") // by another shaper
		}
		return do()
	}
	if _, err := k.Sweep(); err != nil {
		t.Error(err)
	}
}

// isGone knows the errors of the kernel, and of package netlink, for what does not exist.
func TestIsGone(t *testing.T) {
	for err, want := range map[error]bool{unix.ENOENT: true, unix.ENODEV: true, netlink.LinkNotFoundError{}: true, unix.EINVAL: false, nil: false} {
		if isGone(err) != want {
			t.Errorf("isGone(%T) is not %v", err, want)
		}
	}
}
