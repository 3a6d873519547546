package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shaper/tests/trial"
)

// fakeNames is a lookup of a test.
type fakeNames struct {
	mu      sync.Mutex // guards the fields below
	addr    string     // the answer; "": an error
	ttl     time.Duration
	hangs   bool
	asked   []time.Time
	running int
	most    int // that ran at a time
}

func (f *fakeNames) lookup(ctx context.Context, _ string, _ []Address) (Answer, error) {
	f.mu.Lock()
	f.asked = append(f.asked, time.Now())
	f.running++
	f.most = max(f.most, f.running)
	addr, ttl, hangs := f.addr, f.ttl, f.hangs
	f.mu.Unlock()
	time.Sleep(10 * time.Millisecond) // in virtual time
	if hangs {
		<-ctx.Done()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	switch {
	case hangs:
		return Answer{}, ctx.Err()
	case addr == "panic":
		panic(addr)
	case addr == "":
		return Answer{}, errors.New("no such host")
	}
	return Answer{[]Address{{AddrPort: netip.MustParseAddrPort(addr)}}, ttl}, nil
}

// answers changes the answer.
func (f *fakeNames) answers(addr string, ttl time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addr, f.ttl, f.hangs = addr, ttl, false
}

func (f *fakeNames) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangs = true
}

// questions returns how many lookups there were.
func (f *fakeNames) questions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// inNames runs a test of Names in virtual time.
func inNames(t *testing.T, test func(n *Names, f *fakeNames, log *trial.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, log := &fakeNames{addr: "192.0.2.1:1", ttl: 20 * time.Second}, &trial.Log{}
		n := NewNames(f.lookup, slog.New(slog.NewTextHandler(log, nil)))
		defer n.Close()
		test(n, f, log)
	})
}

// find returns the first address of a name, or the error.
func find(n *Names, patience time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	addrs, err := n.Find(ctx, "x:1")
	if err != nil {
		return err.Error()
	}
	return addrs[0].String()
}

// A name that has moved is known by the end of its TTL, and nobody has waited for that. The
// names of a policy do not all come together.
func TestNamesFollowTheirTTL(t *testing.T) {
	inNames(t, func(n *Names, f *fakeNames, _ *trial.Log) {
		for _, ttl := range []time.Duration{20 * time.Second, 0, 100 * time.Millisecond, time.Hour} {
			f.answers("192.0.2.1:1", ttl)
			n.Keep(func(string) bool { return false })
			n.Keep(func(string) bool { return true })
			if got := find(n, time.Minute); got != "192.0.2.1:1" {
				t.Fatal(got)
			}
			known := time.Now()
			f.answers("192.0.2.2:1", ttl)
			holds := min(max(ttl, time.Second), 5*time.Minute)
			time.Sleep(holds * 8 / 10)
			if got := find(n, 0); got != "192.0.2.1:1" {
				t.Errorf("TTL %v: after %v the address is %s", ttl, time.Since(known), got)
			}
			time.Sleep(time.Until(known.Add(holds + time.Second)))
			if got := find(n, 0); got != "192.0.2.2:1" {
				t.Errorf("TTL %v: after %v the address is %s", ttl, time.Since(known), got)
			}
		}
		f.mu.Lock()
		f.asked = nil
		f.mu.Unlock()
		time.Sleep(time.Hour) // with the longest TTL
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		least, most := time.Hour, time.Duration(0)
		for i := range len(f.asked) - 1 {
			gap := f.asked[i+1].Sub(f.asked[i])
			least, most = min(least, gap), max(most, gap)
		}
		if least < maxTTL*9/10 || most > maxTTL+time.Second || most-least < time.Second {
			t.Errorf("lookups come after %v to %v", least, most)
		}
	})
}

// While the resolver is away or hangs, the last answer goes on being used, at once. When it is
// back, the name is looked up again within maxRetry.
func TestLastAnswerIsUsed(t *testing.T) {
	for _, how := range []string{"error", "hang", "panic"} {
		inNames(t, func(n *Names, f *fakeNames, log *trial.Log) {
			find(n, time.Minute)
			switch how {
			case "hang":
				f.hang()
			case "error":
				f.answers("", 0)
			default:
				f.answers("panic", 0)
			}
			for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
				if got := find(n, 0); got != "192.0.2.1:1" {
					t.Fatalf("%s: %s", how, got)
				}
			}
			if got := strings.Count(log.String(), "cannot be looked up; its last addresses stay in use"); got != 1 {
				t.Errorf("%s: the log says so %d times:\n%s", how, got, log)
			}
			if got := f.questions(); got > 500 {
				t.Errorf("%s: %d questions in an hour", how, got)
			}
			f.answers("192.0.2.2:1", time.Minute)
			time.Sleep(maxRetry + patience + time.Second)
			if got := find(n, 0); got != "192.0.2.2:1" {
				t.Errorf("%s: the resolver is back, and the address is %s", how, got)
			}
		})
	}
}

// At most one lookup of a name runs at a time, however many want it.
func TestOneLookupAtATime(t *testing.T) {
	inNames(t, func(n *Names, f *fakeNames, _ *trial.Log) {
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if got := find(n, time.Minute); got != "192.0.2.1:1" {
					t.Error(got)
				}
			})
		}
		wg.Wait()
		if f.questions() != 1 {
			t.Errorf("%d questions", f.questions())
		}
		time.Sleep(time.Hour)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.most != 1 {
			t.Errorf("%d lookups ran at a time", f.most)
		}
	})
}

// A resolver that hangs holds up nobody: who waits for a name that is not known gives up when
// it likes. When nobody waits any more, the lookup ends, and the next one begins afresh.
func TestHangingResolver(t *testing.T) {
	inNames(t, func(n *Names, f *fakeNames, _ *trial.Log) {
		f.hang()
		began := time.Now()
		if got := find(n, 3*time.Second); got != context.DeadlineExceeded.Error() || time.Since(began) != 3*time.Second {
			t.Errorf("%s after %v", got, time.Since(began))
		}
		f.answers("192.0.2.1:1", time.Minute)
		time.Sleep(minRetry)
		if got := find(n, time.Second); got != "192.0.2.1:1" {
			t.Errorf("then: %s", got)
		}
		n.Keep(func(string) bool { return false })
		f.hang()
		began = time.Now()
		if got := find(n, time.Hour); got != context.DeadlineExceeded.Error() || time.Since(began) != patience {
			t.Errorf("%s after %v", got, time.Since(began))
		}
	})
}

// While a name cannot be looked up, at most one session at a time waits for it, and nobody in the
// second after a failure. So a listener with another upstream goes on.
func TestFailuresHoldUpOne(t *testing.T) {
	inNames(t, func(n *Names, f *fakeNames, _ *trial.Log) {
		f.hang()
		waits := func() time.Duration {
			began := time.Now()
			if got := find(n, 3*time.Second); got != context.DeadlineExceeded.Error() {
				t.Error(got)
			}
			return time.Since(began)
		}
		for range 3 {
			if got := waits(); got != 3*time.Second {
				t.Errorf("the first waits %v", got)
			}
			if got := waits(); got != 0 {
				t.Errorf("after a failure, a session waits %v", got)
			}
			time.Sleep(minRetry)
			var wg sync.WaitGroup
			wg.Go(func() { waits() })
			synctest.Wait()
			if got := waits(); got != 0 {
				t.Errorf("beside one that waits, another waits %v", got)
			}
			wg.Wait()
			time.Sleep(minRetry)
		}
		if got := f.questions(); got != 6 {
			t.Errorf("%d questions, want one for each that waited", got)
		}
	})
}

// Known never waits, and asks again after a second while there is no answer.
func TestKnownNeverWaits(t *testing.T) {
	inNames(t, func(n *Names, f *fakeNames, _ *trial.Log) {
		f.answers("", 0)
		for range 100 {
			if got := n.Known("x:1"); got != nil {
				t.Fatal(got)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := f.questions(); got != 10 {
			t.Errorf("%d questions in 10 s", got)
		}
		f.answers("192.0.2.1:1", time.Minute)
		time.Sleep(time.Second)
		n.Known("x:1")
		synctest.Wait()
		time.Sleep(time.Second)
		if got := fmt.Sprint(n.Known("x:1")); !strings.Contains(got, "192.0.2.1:1") {
			t.Error(got)
		}
	})
}

// A name that no policy has any more is not looked up again.
func TestForgottenNamesRest(t *testing.T) {
	inNames(t, func(n *Names, f *fakeNames, _ *trial.Log) {
		find(n, time.Minute)
		n.Keep(func(upstream string) bool { return upstream == "x:1" })
		time.Sleep(time.Minute)
		if f.questions() < 3 {
			t.Errorf("%d questions in a minute", f.questions())
		}
		n.Keep(func(string) bool { return false })
		before := f.questions()
		time.Sleep(time.Hour)
		if got := f.questions(); got != before {
			t.Errorf("%d questions after that", got-before)
		}
	})
}

// A session of an old policy that still tries an upstream of it makes nobody look its name up for
// ever.
func TestOldSessionsKeepNoName(t *testing.T) {
	inNames(t, func(n *Names, f *fakeNames, _ *trial.Log) {
		find(n, time.Minute)
		n.Keep(func(string) bool { return false })
		if got := find(n, time.Minute); !strings.Contains(got, "192.0.2.1:1") {
			t.Errorf("the old session finds %s", got)
		}
		n.Known("x:1")
		time.Sleep(time.Minute) // until the lookup has ended
		before := f.questions()
		time.Sleep(time.Hour)
		if got := f.questions(); got != before {
			t.Errorf("%d questions in an hour without the name in the policy", got-before)
		}
	})
}

// A name that no policy has, but a client chooses, is kept until its TTL ends, and then forgotten. If
// it has no address, or nobody waits for it any more, it is forgotten at once.
func TestForeignNames(t *testing.T) {
	inNames(t, func(n *Names, f *fakeNames, _ *trial.Log) {
		kept := func() int {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(n.names)
		}
		n.Keep(func(string) bool { return false })
		f.answers("192.0.2.1:1", 20*time.Second)
		for range 3 {
			if got := find(n, time.Minute); got != "192.0.2.1:1" {
				t.Fatal(got)
			}
			time.Sleep(5 * time.Second)
		}
		if asked := f.questions(); asked != 1 || kept() != 1 {
			t.Errorf("%d questions within the TTL, %d names are kept", asked, kept())
		}
		if time.Sleep(10 * time.Second); f.questions() != 1 || kept() != 0 {
			t.Errorf("%d questions after the TTL, %d names are kept", f.questions(), kept())
		}
		f.answers("", 0)
		if find(n, time.Minute); kept() != 0 {
			t.Error("a name without an address is kept")
		}
		f.hang()
		if find(n, time.Second); kept() != 0 {
			t.Error("a name that nobody waits for is kept")
		}
	})
}
