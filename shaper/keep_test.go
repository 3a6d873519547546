package shaper

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// An instant ledger grants at once, from a goroutine of its own.
type instant struct {
	leases map[string]limit.Lease // by name
	asks   int
	queue  chan func()
}

func newInstant() *instant {
	l := &instant{leases: map[string]limit.Lease{}, queue: make(chan func(), 1000)}
	go func() {
		for answer := range l.queue {
			answer()
		}
	}()
	return l
}

func (l *instant) Ask(lease limit.Lease, answer func(time.Time, int64)) {
	l.queue <- func() {
		l.asks++
		l.leases[lease.Name] = lease
		if answer != nil {
			answer(time.Now(), lease.Units)
		}
	}
}

// A reload keeps classes in the ledger; a class that is gone, or that another one replaces, asks
// for nothing more.
func TestReloadKeepsTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ledger := NewOnRuntimeTimer(), newInstant()
		defer s.Close()
		defer close(ledger.queue)
		conf := keptConfs()["large"]
		other := conf
		other.Name = "other"
		s.Apply([]policy.Class{conf})
		s.Keep(ledger)
		s.Apply([]policy.Class{conf, other})
		for _, c := range []*Class{s.Class("large"), s.Class("other")} {
			c.Enter(time.Now(), &Item{Cost: Cost{Messages: 1}, Owner: nobodyLeaves{}, Patient: true})
		}
		synctest.Wait()
		if len(ledger.leases) != 3 {
			t.Fatalf("the ledger has %v, want both classes and the secret of keys", ledger.leases)
		}
		gone, former := s.Class("other"), s.Class("large")
		packets := conf
		packets.Rate = rateOf("1000 packets/h")
		s.Apply([]policy.Class{packets})
		synctest.Wait()
		asks := ledger.asks
		for _, c := range []*Class{gone, former} {
			if _, ok := c.limiter.(*leased); ok {
				t.Errorf("%s still has leases", c.name)
			}
			for range 20 {
				c.Enter(time.Now(), &Item{Cost: Cost{Messages: 1}, Owner: nobodyLeaves{}, Patient: true})
			}
		}
		synctest.Wait()
		if ledger.asks != asks {
			t.Errorf("they asked for %d more leases", ledger.asks-asks)
		}
		s.Keep(nil)
		if _, ok := s.Class("large").limiter.(*leased); ok {
			t.Error("without a ledger the class still has leases")
		}
	})
}

// A process that goes on from a ledger has the keys of the one before it.
func TestResumeKeepsTheSecretOfKeys(t *testing.T) {
	before := policy.Secret()
	defer policy.UseSecret(before)
	s := newShaper()
	leases := s.Leases(at(0))
	policy.UseSecret(make([]byte, len(before)))
	s.Resume(at(1), leases)
	if got := policy.Secret(); !bytes.Equal(got, before) {
		t.Error("another secret is in use")
	}
	for i := range leases {
		leases[i].Record = leases[i].Record[1:]
	}
	if s.Resume(at(1), leases); !bytes.Equal(policy.Secret(), before) {
		t.Error("something else is taken for a secret")
	}
}

// nobodyLeaves owns items whose departure does not matter.
type nobodyLeaves struct{}

func (nobodyLeaves) Leave(time.Time) {}

// BenchmarkLeased is an item of a class that keeps its budget in a ledger.
func BenchmarkLeased(b *testing.B) {
	conf := classBy(policy.GCRA, "1000000000 messages/min")
	conf.Burst = policy.Burst{N: 1_000_000_000, Kind: conf.Rate.Kind()}
	k := &keptClass{conf: conf}
	k.start(func() time.Duration { return 0 }, nil)
	k.offer(1)
	k.run(second)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if !k.class.Pass(at(k.now), Cost{Messages: 1}) {
			k.run(k.now + ms)
		}
	}
}

// BenchmarkLeases writes down a million keys, as at a clean stop.
func BenchmarkLeases(b *testing.B) {
	c := NewClass(at(0), keyedClass(policy.GCRA))
	c.conf.MaxKeys = 1 << 20
	for n := range 1 << 20 {
		var key policy.Key
		key.UnmarshalBinary([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, byte(n >> 16), byte(n >> 8), byte(n), 0, 0})
		l := c.keys.pace.idle(at(0))
		l.Take(at(0), at(0), 3)
		c.keys.table.remember(at(0), key, bucketState{l, nil})
	}
	for b.Loop() {
		if got := len(c.backing.leases(at(1))); got != 1<<20 {
			b.Fatal(got)
		}
	}
}
