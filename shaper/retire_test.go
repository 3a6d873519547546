package shaper

import (
	"sync"
	"testing"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// The shared bucket is limited as any other: nobody gets a new one by leaving it.
func TestKeysShareWhatIsLeft(t *testing.T) {
	c := NewClass(start, perSource(1, leakyClass("1 packets/s")))
	c.Join(start, client(1))
	passed := 0
	for n := range 100 {
		now := at(time.Duration(n) * 10 * ms)
		bucket := c.Join(now, client(2+n%2))
		if bucket.Pass(now, Cost{Packets: 1}) {
			passed++
			lastLeft(bucket, now)
		}
		bucket.Quit(now)
	}
	if passed != 1 {
		t.Errorf("%d packets left in a second, want 1", passed)
	}
}

// A session may quit before its last item has left. The bucket goes when that has left.
func TestKeysQuitWhileAnItemWaits(t *testing.T) {
	c := NewClass(start, perSource(10, leakyClass("1KB/s")))
	bucket := c.Join(start, client(1))
	last := packet(1000)
	enter(t, bucket, 0, Leaves, packet(1000))
	enter(t, bucket, 0, Waits, last)
	bucket.Quit(start)
	released(t, c, second, last)
	last.Left(at(second))
	if len(c.keys.active) != 0 {
		t.Error("the unused bucket is still there")
	}
}

// A bucket whose last copies wait in the shadow goes with them.
func TestKeysOfCopies(t *testing.T) {
	c := tried(perSource(10, leakyClass("1 packets/s")))
	for n := range 5 {
		bucket := c.Join(start, client(n))
		c.trial.mirror(start, bucket, Cost{Packets: 1}, nil, false)
		c.trial.mirror(start, bucket, Cost{Packets: 1}, nil, false)
		bucket.Quit(start)
	}
	c.trial.CatchUp(at(10 * second))
	if n := c.Buckets().Keys(at(10 * second)); n != 0 {
		t.Errorf("%d keys have a bucket or are remembered, want 0", n)
	}
}

// When another algorithm replaces one that counts gaps, nothing waits for a gap any more
// and no bucket stays for one. The class may be the bucket's own or the one above.
func TestKeysSetWhileAnItemLeaves(t *testing.T) {
	root := named("root", leakyClass("30 packets/s"))
	for set, confs := range map[string][]policy.Class{
		"clients": {named("clients", perSource(10, leakyClass("10 packets/s")))},
		"root":    {under("root", named("clients", perSource(10, leakyClass("10KB/s")))), root},
	} {
		t.Run(set, func(t *testing.T) {
			c := tree(confs...)
			bucket := c["clients"].Join(start, client(1))
			it := packet(1)
			it.Settles = true
			enter(t, bucket, 0, Leaves, it)
			bucket.Quit(start)
			conf := c[set].Policy()
			conf.Algorithm = policy.Token
			c[set].Set(start, conf)
			it.Left(at(second))
			if len(c["clients"].keys.active) != 0 {
				t.Error("the unused bucket is still there")
			}
		})
	}
}

// Datagrams may come to a session that is just ending.
func TestKeysPassWhileTheyQuit(t *testing.T) {
	c := NewClass(time.Now(), perSource(10, classBy(policy.SlidingLog, "100000 packets/s")))
	var wg sync.WaitGroup
	for range 2000 {
		bucket := c.Join(time.Now(), client(1))
		wg.Go(func() {
			for range 3 {
				bucket.Pass(time.Now(), Cost{Packets: 1})
				it := packet(1)
				if bucket.Enter(time.Now(), it) == Waits {
					bucket.Cancel(time.Now(), it)
				}
			}
		})
		bucket.Quit(time.Now())
	}
	wg.Wait()
}

// What comes to a bucket that was given up stays there for its owner to move, and never
// leaves from there.
func TestKeysGivenUp(t *testing.T) {
	conf := perSource(10, leakyClass("1 packets/s"))
	conf.MaxWait = unit.Duration(second)
	c := NewClass(start, conf)
	bucket := c.Join(start, client(1))
	bucket.Quit(start)
	late := packet(1)
	enter(t, bucket, 0, Waits, late)
	released(t, bucket, time.Hour)
	if got := bucket.Evict(at(time.Hour), func(*Item) bool { return true }); len(got) != 1 || got[0] != late {
		t.Errorf("Evict took out %v", got)
	}
}
