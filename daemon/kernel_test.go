package daemon

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/stats"
	"shaper/tc"
	"shaper/tc/tctest"
	"shaper/tests/trial"
)

// keptPolicy returns a policy that shapes a device, with a rate for class a.
func keptPolicy(t *testing.T, rate string) *policy.Policy {
	t.Helper()
	p, _, err := policy.Parse("t.toml", []byte("[class.root]\nrate = \"10mbit\"\n[class.a]\nparent = \"root\"\nrate = \""+rate+"\"\n[tc.eth0]\nclass = \"root\"\napply = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// keepKernel runs a test in a synctest bubble, with a policy that is kept in a kernel in memory.
func keepKernel(t *testing.T, test func(t *testing.T, k *kernel, fake *tctest.Kernel, log *trial.Log)) {
	synctest.Test(t, func(t *testing.T) {
		fake := tctest.New("eth0")
		logged, log := trial.NewLog()
		k := newKernel(log)
		k.connect = func() (*tc.Kernel, error) { return tc.On(fake), nil }
		k.watch = func(ctx context.Context, interest func(string) bool, changed func(string)) error {
			return tc.WatchOn(ctx, fake.Subscribe(1000), interest, changed)
		}
		commit, err := k.prepare(keptPolicy(t, "1mbit"))
		if err != nil {
			t.Fatal(err)
		}
		commit()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); k.run(ctx) }()
		test(t, k, fake, logged)
		cancel()
		<-ended
		k.close()
	})
}

// rateOf returns the rate of class a in the kernel; "" if the kernel has no such class.
func rateOf(t *testing.T, fake *tctest.Kernel, p *policy.Policy) string {
	t.Helper()
	k := tc.On(fake)
	d, err := k.Device("eth0")
	if err != nil {
		t.Fatal(err)
	}
	all, err := k.Show(d, p, p.TC[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Type == tc.Class && s.Class == "a" {
			_, rate, _ := strings.Cut(s.Words, "rate ")
			rate, _, _ = strings.Cut(rate, " ")
			return rate
		}
	}
	return ""
}

// The daemon mends a device that comes back, and what others change in the kernel.
func TestKernelIsKept(t *testing.T) {
	keepKernel(t, func(t *testing.T, k *kernel, fake *tctest.Kernel, log *trial.Log) {
		p := keptPolicy(t, "1mbit")
		holds := func(want string) {
			t.Helper()
			time.Sleep(longestBackoff)
			synctest.Wait()
			if got := rateOf(t, fake, p); got != want {
				t.Errorf("the rate is %q, not %q", got, want)
			}
		}
		holds("1000000bit")
		var corrected []map[string]int
		k.told = func(objects map[string]int) { corrected = append(corrected, objects) }
		k.set(keptPolicy(t, "2mbit"))
		holds("2000000bit")
		other := tc.On(fake)
		d, err := other.Device("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Clear(d, nil); err != nil {
			t.Fatal(err)
		}
		holds("2000000bit")
		wantLines(t, log.String(), "the kernel differed from the policy; shaper has corrected it")
		kept := k.read().kept
		if kept == nil || kept.Corrected == 0 || kept.Error != "" {
			t.Fatalf("the reading says %+v", kept)
		}
		if want := []map[string]int{{"eth0": int(kept.Corrected)}}; !reflect.DeepEqual(corrected, want) {
			t.Errorf("run tells that it has corrected %v, want %v", corrected, want)
		}
		fake.Unplug("eth0")
		time.Sleep(longestBackoff)
		fake.Plug("eth0", "veth")
		holds("2000000bit")
		wantLines(t, log.String(), "waiting for a network device")
	})
}

// The kernel tells nobody of some changes. The daemon finds them by itself.
func TestSilentChangeOfTheKernel(t *testing.T) {
	keepKernel(t, func(t *testing.T, k *kernel, fake *tctest.Kernel, log *trial.Log) {
		synctest.Wait()
		time.Sleep(longestBackoff)
		link, err := fake.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		want := link.Attrs().GSOMaxSize
		if err := fake.LinkSetGSOMaxSize(link, int(want)+1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookTime)
		synctest.Wait()
		if link, _ = fake.LinkByName("eth0"); link.Attrs().GSOMaxSize != want {
			t.Errorf("gso_max_size is %d, want %d", link.Attrs().GSOMaxSize, want)
		}
	})
}

// If the kernel refuses a policy, the one before stays. A policy without the section clears the
// device.
func TestKernelPrepares(t *testing.T) {
	keepKernel(t, func(t *testing.T, k *kernel, fake *tctest.Kernel, _ *trial.Log) {
		p := keptPolicy(t, "1mbit")
		refusals := 2
		fake.Between = func(q tctest.Request, do func() error) error {
			if q.Type == unix.RTM_NEWTCLASS && refusals > 0 {
				refusals--
				return unix.EPERM
			}
			return do()
		}
		if _, err := k.prepare(keptPolicy(t, "2mbit")); !errors.Is(err, unix.EPERM) {
			t.Errorf("%v", err)
		}
		if got := rateOf(t, fake, p); got != "1000000bit" {
			t.Errorf("the rate is %q", got)
		}
		commit, err := k.prepare(&policy.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		commit()
		if got := rateOf(t, fake, p); got != "" {
			t.Errorf("the rate is %q", got)
		}
	})
}

// read returns what the kernel counts, by class.
func TestKernelReads(t *testing.T) {
	keepKernel(t, func(t *testing.T, k *kernel, fake *tctest.Kernel, _ *trial.Log) {
		p := keptPolicy(t, "1mbit")
		minor := uint32(p.Minors()["a"])
		fake.Count("eth0", policy.Major<<16|minor, tctest.Counters{Bytes: 7, Packets: 2})
		fake.Count("eth0", minor<<16, tctest.Counters{Dropped: 3})
		for _, r := range k.read().classes {
			if sent := r.Sent[stats.Upstream]; r.Name == "a" && (sent.Bytes != 7 || sent.Packets != 2 || r.Dropped[stats.QueueFull].Items != 3) {
				t.Errorf("%+v", r)
			}
		}
		if len(k.read().classes) != 2 {
			t.Errorf("%+v", k.read())
		}
	})
}

// The counters of a class on two devices never fall: not while one of them is away, and not when it comes back
// and begins at 0.
func TestKernelCountersNeverFall(t *testing.T) {
	fake := tctest.New("eth0", "eth1")
	_, log := trial.NewLog()
	k := newKernel(log)
	k.connect = func() (*tc.Kernel, error) { return tc.On(fake), nil }
	defer k.close()
	const both = "[class.root]\nrate = \"10mbit\"\n[class.a]\nparent = \"root\"\nrate = \"1mbit\"\n[tc.eth0]\nclass = \"root\"\napply = true\n[tc.eth1]\nclass = \"root\"\napply = true\n"
	prepare := func(text string) {
		t.Helper()
		p, _, err := policy.Parse("t.toml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		commit, err := k.prepare(p)
		if err != nil {
			t.Fatal(err)
		}
		commit()
	}
	prepare(both)
	minor := uint32(k.policy.Minors()["a"])
	count := func(device string, n tctest.Counters) { fake.Count(device, policy.Major<<16|minor, n) }
	want := func(when string, bytes, overlimits uint64, waiting int64) {
		t.Helper()
		for _, r := range k.read().classes {
			if r.Name == "a" {
				if n := r.Sent[stats.Upstream].Bytes; n != bytes || r.Overlimits != overlimits || r.BacklogItems != waiting {
					t.Errorf("%s: %d bytes, %d overlimits and %d that wait, want %d, %d and %d", when, n, r.Overlimits, r.BacklogItems, bytes, overlimits, waiting)
				}
				return
			}
		}
		t.Errorf("%s there is no reading", when)
	}
	count("eth0", tctest.Counters{Bytes: 100, Overlimits: 3, Queue: 5})
	count("eth1", tctest.Counters{Bytes: 7, Overlimits: 1, Queue: 2})
	want("at first", 107, 4, 7)
	fake.Unplug("eth0")
	want("without eth0", 107, 4, 2)
	count("eth1", tctest.Counters{Bytes: 17, Overlimits: 1})
	want("while eth0 is away", 117, 4, 0)
	fake.Plug("eth0", "veth")
	prepare(both)
	want("when eth0 is back", 117, 4, 0)
	count("eth0", tctest.Counters{Bytes: 1})
	want("when eth0 counts", 118, 4, 0)
	prepare(strings.Split(both, "[tc.eth1]")[0])
	want("when eth1 is not shaped any more", 118, 4, 0)
	prepare("[class.a]\nrate = \"1mbit\"\n[listener.l]\nlisten = \"127.0.0.1:1\"\nupstream = \"127.0.0.1:2\"\nclass = \"a\"\n")
	if all := k.read().classes; all != nil {
		t.Errorf("without a section: %+v", all)
	}
}

// Without CAP_NET_ADMIN the proxy runs, and the log says once that the kernel part is off. Who reads sees that the
// kernel is not as the policy says, as long as the policy has something to keep there.
func TestKernelIsOff(t *testing.T) {
	logged, log := trial.NewLog()
	k := newKernel(log)
	k.connect = func() (*tc.Kernel, error) { return nil, tc.ErrNotPermitted }
	for range 2 {
		if commit, err := k.prepare(keptPolicy(t, "1mbit")); err != nil {
			t.Fatal(err)
		} else {
			commit()
		}
	}
	if n := strings.Count(logged.String(), "THE KERNEL PART IS OFF"); n != 1 {
		t.Errorf("the warning came %d times, want once", n)
	}
	if r := k.read(); r.classes != nil || r.kept == nil || r.kept.Error != tc.ErrNotPermitted.Error() {
		t.Errorf("the reading is %+v, %+v", r, r.kept)
	}
	if _, err := k.prepare(&policy.Policy{}); err != nil {
		t.Fatal(err)
	}
	if kept := k.read().kept; kept != nil {
		t.Errorf("of a policy without a device the reading says %+v", kept)
	}
}

// Who reads does not wait while a reload, set or the deletion of a removed section changes the kernel.
func TestReadingDoesNotWait(t *testing.T) {
	fake := tctest.New("eth0")
	_, log := trial.NewLog()
	k := newKernel(log)
	k.connect = func() (*tc.Kernel, error) { return tc.On(fake), nil }
	defer k.close()
	prepare := func(p *policy.Policy) (commit func()) {
		commit, err := k.prepare(p)
		if err != nil {
			t.Fatal(err)
		}
		return commit
	}
	prepare(keptPolicy(t, "1mbit"))()
	want := k.read()
	if len(want.classes) != 2 || want.kept == nil {
		t.Fatalf("the reading is %+v", want)
	}
	during := func(what string, change func()) {
		read := make(chan kernelReading, 1)
		fake.Between = func(r tctest.Request, do func() error) error {
			if !r.IsChange() {
				return do()
			}
			fake.Between = nil // once for each change
			go func() { read <- k.read() }()
			select {
			case got := <-read:
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: the reading is %+v, want %+v", what, got, want)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s: the reading waits", what)
			}
			return do()
		}
		change()
		if fake.Between != nil {
			t.Errorf("%s changes nothing", what)
		}
	}
	during("a reload", func() { prepare(keptPolicy(t, "2mbit"))() })
	during("set after a reload", func() { k.set(keptPolicy(t, "3mbit")) })
	during("set", func() { k.set(keptPolicy(t, "4mbit")) })
	if want = k.read(); want.classes[1].Rate.Text != "4mbit" {
		t.Errorf("the rate of class a is %s", want.classes[1].Rate.Text)
	}
	commit := prepare(&policy.Policy{})
	during("a deletion", commit)
	if got := k.read(); got.classes != nil || got.kept != nil {
		t.Errorf("the reading is %+v", got)
	}
}

// A change of the kernel is mended at once if such changes are rare, and ever later if they
// repeat, until there has been none for a while.
func TestTempo(t *testing.T) {
	var b backoff
	now := time.Now()
	holds := func(want time.Duration) {
		t.Helper()
		if got := b.delay(now); got != want {
			t.Errorf("after %v, not %v", got, want)
		}
	}
	holds(settleTime)
	holds(settleTime) // nothing had to be mended
	for _, want := range []time.Duration{2 * settleTime, 4 * settleTime, 8 * settleTime, 16 * settleTime, longestBackoff, longestBackoff} {
		b.mended(now)
		holds(want)
		now = now.Add(want)
	}
	now = now.Add(retryTime + 1)
	holds(settleTime)
}
