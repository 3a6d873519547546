package shaper

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/calendar"
	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A disk is a Ledger in virtual time. A write takes as long as takes says. Then what was asked
// before it began is safe, and the asks are answered. A disk that hangs finishes nothing.
type disk struct {
	takes func() time.Duration
	hangs bool
	room  int // for keys; 0: any number

	asked   map[string]limit.Lease // by name and key
	waiting []func(now time.Time)
	safe    map[string]limit.Lease

	writing  map[string]limit.Lease // nil: no write is under way
	written  []func(now time.Time)
	finishes time.Time
	writes   int
}

func newDisk(takes func() time.Duration) *disk {
	return &disk{takes: takes, asked: map[string]limit.Lease{}, safe: map[string]limit.Lease{}}
}

func (d *disk) Ask(lease limit.Lease, answer func(time.Time, int64)) {
	id, granted := lease.Name+"/"+lease.Key, lease.Units
	if _, known := d.asked[id]; lease.Key != "" && d.room > 0 && !known && d.keys() >= d.room {
		granted = limit.NoRoom
	} else {
		d.asked[id] = lease
	}
	if answer != nil {
		d.waiting = append(d.waiting, func(now time.Time) { answer(now, granted) })
	}
}

func (d *disk) keys() (n int) {
	for _, lease := range d.asked {
		if lease.Key != "" {
			n++
		}
	}
	return n
}

// next begins a write if there is something to write, and returns when the write ends.
func (d *disk) next(now time.Time) time.Time {
	if d.writing == nil && len(d.waiting) > 0 {
		d.writing, d.written, d.waiting = maps.Clone(d.asked), d.waiting, nil
		d.finishes = now.Add(d.takes())
		d.writes++
	}
	if d.writing == nil || d.hangs {
		return limit.Never
	}
	return d.finishes
}

// finish ends a write that is due.
func (d *disk) finish(now time.Time) {
	if d.writing == nil || d.hangs || d.finishes.After(now) {
		return
	}
	answers := d.written
	d.safe, d.writing, d.written = d.writing, nil, nil
	for _, answer := range answers {
		answer(now)
	}
}

// crash returns what the next process finds.
func (d *disk) crash(midway bool) []limit.Lease {
	if midway && d.writing != nil {
		return slices.Collect(maps.Values(d.writing))
	}
	return slices.Collect(maps.Values(d.safe))
}

// A leave is something that has left.
type leave struct {
	at time.Duration
	n  int64
}

// A keptClass is a class over the lives of several processes.
type keptClass struct {
	conf  policy.Class
	class *Class
	disk  *disk
	now   time.Duration
	left  []leave
	waits int
}

// start makes a process at now.
func (k *keptClass) start(takes func() time.Duration, found []limit.Lease) {
	k.class, k.disk = NewClass(at(k.now), k.conf), newDisk(takes)
	for _, lease := range found {
		if lease.Expires.After(at(k.now)) {
			k.class.backing.resume(at(k.now), &lease)
		}
	}
	k.class.backing.keepIn(at(k.now), k.disk)
	for _, lease := range found { // what the last process kept is safe until the first write
		k.disk.safe[lease.Name+"/"+lease.Key] = lease
	}
}

// offer lets an item come, which waits until it may leave.
func (k *keptClass) offer(n int64) {
	it := &Item{Cost: costOf(k.conf.Rate.Kind(), n), Patient: true}
	if v := k.class.Enter(at(k.now), it); v == Leaves {
		k.left = append(k.left, leave{k.now, n})
	} else if v == Waits {
		k.waits++
	}
}

// run goes on until a time.
func (k *keptClass) run(until time.Duration) {
	for {
		next := earlier(k.class.Next(at(k.now)), at(until))
		next = earlier(next, k.disk.next(at(k.now)))
		k.now = max(next.Sub(start), k.now)
		k.disk.finish(at(k.now))
		for it := k.class.Release(at(k.now)); it != nil; it = k.class.Release(at(k.now)) {
			k.left = append(k.left, leave{k.now, it.Cost.In(k.conf.Rate.Kind())})
			k.waits--
			lastLeft(k.class, at(k.now))
		}
		if k.now >= until && k.disk.next(at(k.now)).After(at(k.now)) {
			return
		}
	}
}

func costOf(kind unit.Kind, n int64) Cost {
	switch kind {
	case unit.Bytes:
		return Cost{Bytes: n}
	case unit.Packets:
		return Cost{Packets: n}
	}
	return Cost{Messages: n}
}

// total returns how much has left from a time on, up to another.
func (k *keptClass) total(from, to time.Duration) (sum int64) {
	for _, l := range k.left {
		if l.at >= from && l.at < to {
			sum += l.n
		}
	}
	return sum
}

// exceeds returns how what has left breaks the promise of a limit of the class; "" if it does
// not. It adds up each interval from one departure to another.
func (k *keptClass) exceeds() string {
	p := paceOf(k.conf)
	for i, first := range k.left {
		sum := int64(0)
		for j, last := range k.left[i:] {
			sum += last.n
			for r := range p.restraints() {
				if r.isBroken(j, sum, first, last) {
					return fmt.Sprintf("%d left from %v to %v, against %v", sum, first.at, last.at, r.rate)
				}
			}
		}
	}
	return ""
}

// isBroken reports whether no such sum may leave from one departure to the jth after it.
func (r *restraint) isBroken(j int, sum int64, first, last leave) bool {
	if r.algorithm != policy.Leaky && sum <= r.atOnce { // so it is for most, and cheaper to see than a window
		return false
	}
	within := last.at - first.at
	switch {
	case r.calendar.Period != "":
		window, _ := r.calendar.Around(at(first.at))
		same, _ := r.calendar.Around(at(last.at))
		return window.Equal(same)
	case r.algorithm == policy.Leaky && r.kind != unit.Bytes:
		return j == 1 && within < r.rate.Time(first.n)
	case r.algorithm == policy.Leaky:
		return sum > r.rate.Units(within)+2*r.atOnce+1
	case r.algorithm.HasBurst(): // sum <= atOnce + rate*within, and one nanosecond
		units, ns := r.rate.Exact()
		return (sum-r.atOnce)*ns > units*int64(within+2)
	case r.algorithm == policy.SlidingLog:
		return within < r.window
	}
	return first.at/r.window == last.at/r.window
}

// keptConfs returns a policy for each algorithm whose budget a ledger keeps.
func keptConfs() map[string]policy.Class {
	confs := map[string]policy.Class{}
	for _, a := range algorithms {
		conf := classBy(a, "60 messages/min")
		if a == policy.Leaky {
			conf = classBy(a, "4 messages/min")
		}
		if a.HasBurst() {
			conf.Burst = policy.Burst{N: 20, Kind: unit.Messages}
		}
		conf.Name, conf.Queue = string(a), policy.Queue{}
		confs[conf.Name] = conf
	}
	bytes := classBy(policy.Leaky, "100 B/s")
	bytes.Name, bytes.Queue = "bytes", policy.Queue{}
	confs["bytes"] = bytes
	large := classBy(policy.FixedWindow, "1000 messages/h")
	large.Name, large.Queue = "large", policy.Queue{}
	confs["large"] = large
	several := classBy(policy.SlidingLog, "400 messages/min") // which it leases four at a time
	several.Name, several.Queue = "several", policy.Queue{}
	confs["several"] = several
	also := confs[string(policy.GCRA)]
	also.Name = "also"
	also.Also = []policy.Limit{
		{Rate: rateOf("500 messages/h"), Algorithm: policy.SlidingLog},
		{Rate: rateOf("10 messages/s"), Algorithm: policy.Leaky}, // what leaves by it matters for a tenth of a second
	}
	confs[also.Name] = also
	daily := classBy(policy.FixedWindow, "500 messages/day")
	daily.Name, daily.Queue, daily.Window = "daily", policy.Queue{}, policy.Window{Period: calendar.Day}
	confs[daily.Name] = daily
	return confs
}

// anyDisk returns how long writes take.
func anyDisk(t *rapid.T) func() time.Duration {
	slow := rapid.SampledFrom([]time.Duration{0, ms, 20 * ms, 300 * ms}).Draw(t, "disk")
	return func() time.Duration {
		if slow == 0 {
			return 0
		}
		return time.Duration(rapid.Int64Range(0, int64(slow)).Draw(t, "write"))
	}
}

// Whatever the moments at which processes crash, and whatever a write had reached by then, no
// promise of any algorithm breaks.
func TestCrashesGiveNoBudget(t *testing.T) {
	t.Parallel()
	for name, conf := range keptConfs() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				k := &keptClass{conf: conf, now: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "start"))}
				if name == "daily" {
					_, midnight := paceOf(conf).calendar.Around(start)
					k.now += midnight.Sub(start) - 2*time.Minute
				}
				k.start(anyDisk(t), nil)
				most := int64(1)
				if conf.Rate.Kind() == unit.Bytes {
					most = paceOf(conf).atOnce
				}
				many := 30
				if name == "several" || name == "daily" {
					many = 150
				}
				for range rapid.IntRange(1, 6).Draw(t, "lives") {
					for range rapid.IntRange(1, 8).Draw(t, "bursts") {
						for range rapid.IntRange(0, many).Draw(t, "items") {
							k.offer(rapid.Int64Range(1, most).Draw(t, "n"))
						}
						k.run(k.now + time.Duration(rapid.SampledFrom([]int64{1, 20, 1000, 20_000, 60_000}).Draw(t, "pause"))*ms)
					}
					found := k.disk.crash(rapid.Bool().Draw(t, "midway"))
					k.now += time.Duration(rapid.SampledFrom([]int64{0, 1, 100, 3000, 50_000}).Draw(t, "down")) * ms
					k.start(anyDisk(t), found)
				}
				if why := k.exceeds(); why != "" {
					t.Fatal(why)
				}
			})
		})
	}
}

// While nothing crashes, a class that keeps its budget in a ledger uses at least 98 % of it.
func TestLeasesCostLittle(t *testing.T) {
	for name, conf := range keptConfs() {
		bare, leased := &keptClass{conf: conf}, &keptClass{conf: conf}
		bare.class, bare.disk = NewClass(at(0), conf), newDisk(nil)
		leased.start(func() time.Duration { return 5 * ms }, nil)
		for _, k := range []*keptClass{bare, leased} {
			for range 4000 {
				k.offer(1)
			}
			k.run(2 * time.Hour)
		}
		want, got := bare.total(0, 2*time.Hour), leased.total(0, 2*time.Hour)
		if t.Logf("%s: %d of %d, %d writes", name, got, want, leased.disk.writes); want < 480 || got*100 < want*98 {
			t.Errorf("%s: %d left, and without a ledger %d", name, got, want)
		}
	}
}

// A crash loses what is leased, a hundredth of the budget, and not more.
func TestCrashLosesOneLease(t *testing.T) {
	confs := map[string]policy.Class{}
	for _, a := range []policy.Algorithm{policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow, policy.Token, policy.GCRA} {
		conf := classBy(a, "1000 messages/day")
		conf.Queue = policy.Queue{}
		if a.HasBurst() {
			conf.Burst = policy.Burst{N: 1000, Kind: unit.Messages}
		}
		confs[string(a)] = conf
	}
	daily := confs[string(policy.FixedWindow)]
	daily.Window = policy.Window{Period: calendar.Day}
	confs["daily"] = daily
	also := classBy(policy.Leaky, "100 messages/s")
	also.Queue, also.Also = policy.Queue{}, []policy.Limit{daily.Own()}
	confs["also"] = also
	for a, conf := range confs {
		k := &keptClass{conf: conf, now: time.Hour}
		disk := func() time.Duration { return 5 * ms }
		k.start(disk, nil)
		for range 600 {
			k.offer(1)
		}
		k.run(k.now + time.Minute)
		if got := k.total(0, k.now+1); got != 600 {
			t.Fatalf("%s: %d left before the crash, want 600", a, got)
		}
		found := k.disk.crash(false)
		k.now += second
		back := k.now
		k.start(disk, found)
		for range 1000 {
			k.offer(1)
		}
		k.run(k.now + time.Minute)
		if got := k.total(back, k.now+1); got < 390 || got > 401 { // a token comes back every 86 s
			t.Errorf("%s: %d left after the crash, want 390 to 400", a, got)
		}
	}
}

// A disk that hangs delays what leaves once, and a disk that is back is used again.
func TestTrafficGoesOnWithoutTheLedger(t *testing.T) {
	conf := keptConfs()["large"]
	k := &keptClass{conf: conf}
	k.start(func() time.Duration { return ms }, nil)
	k.disk.hangs = true
	for range 500 {
		k.offer(1)
	}
	k.run(ledgerPatience - 1)
	if got := k.total(0, time.Hour); got != 0 {
		t.Fatalf("%d left before the ledger has answered", got)
	}
	k.run(ledgerPatience + ms)
	if got := k.total(0, time.Hour); got != 500 {
		t.Fatalf("%d left, want all 500 once the patience is over", got)
	}
	for range 600 {
		k.offer(1)
	}
	k.run(2 * ledgerPatience)
	if got := k.total(0, time.Hour); got != 1000 {
		t.Fatalf("%d left, want the 1000 that the window holds", got)
	}
	k.disk.hangs = false
	k.run(k.now + second)
	k.run(time.Hour + time.Minute) // the next window
	found := k.disk.crash(false)
	k.start(func() time.Duration { return ms }, found)
	for range 2000 {
		k.offer(1)
	}
	k.run(k.now + time.Minute)
	if got := k.total(time.Hour, 2*time.Hour); got > 1000 || got < 990 {
		t.Errorf("%d left in the next window, over a crash; want 990 to 1000", got)
	}
}

// While the first lease is on its way, max_wait refuses nothing for it.
func TestLedgerIsNotAWait(t *testing.T) {
	conf := keptConfs()["large"]
	conf.MaxWait = unit.Duration(100 * ms)
	k := &keptClass{conf: conf}
	k.start(func() time.Duration { return 5 * ms }, nil)
	for range 20 {
		k.offer(1)
	}
	k.run(second)
	if got := k.total(0, second); got != 20 {
		t.Errorf("%d left, want 20", got)
	}
}

// Only what comes first after idle waits for the disk.
func TestLeasesAreAskedForAhead(t *testing.T) {
	conf := keptConfs()["large"]
	k := &keptClass{conf: conf}
	k.start(func() time.Duration { return 5 * ms }, nil)
	k.offer(1)
	k.run(100 * ms)
	for range 200 {
		k.offer(1)
		if k.waits > 0 {
			t.Fatalf("the item at %v waits", k.now)
		}
		k.run(k.now + 20*ms)
	}
	if k.disk.writes > 60 {
		t.Errorf("%d writes for 201 messages, in leases of ten", k.disk.writes)
	}
}

// A class with a short horizon, and one without a ledger, has the limiter itself.
func TestShortHorizonsAreNotLeased(t *testing.T) {
	short := classBy(policy.FixedWindow, "20 messages/s")
	k := &keptClass{conf: short}
	k.start(func() time.Duration { return ms }, nil)
	if _, ok := k.class.limiter.(*limit.FixedWindow); !ok {
		t.Errorf("the limiter is a %T", k.class.limiter)
	}
	c := NewClass(at(0), keptConfs()["large"])
	if _, ok := c.limiter.(*limit.FixedWindow); !ok {
		t.Errorf("without a ledger the limiter is a %T", c.limiter)
	}
}

// A disk that answers, but more slowly than a lease of a short horizon used to last, holds up
// nothing for good.
func TestSlowLedgerDoesNotStopTraffic(t *testing.T) {
	for _, takes := range []time.Duration{100 * ms, 150 * ms, 500 * ms, 990 * ms, 1100 * ms, 3 * second} {
		conf := classBy(policy.FixedWindow, "10 messages/11s")
		k := &keptClass{conf: conf}
		k.start(func() time.Duration { return takes }, nil)
		for range 40 {
			k.offer(1)
		}
		k.run(55 * second)
		if got := k.total(0, 55*second); got < 40 {
			t.Errorf("a write takes %v: %d messages have left after five windows of ten, want 40", takes, got)
		}
	}
}

// A disk that hangs delays the first of many keys, and not each of them. Meanwhile it is not asked
// again: what is asked would pile up.
func TestSilentLedgerDelaysOneKey(t *testing.T) {
	conf := keyedClass(policy.FixedWindow)
	conf.Per = policy.Per{{By: policy.ByRecipient}}
	k := &keptClass{conf: conf, now: time.Hour}
	k.start(func() time.Duration { return ms }, nil)
	k.disk.hangs = true
	spend := func(n int) {
		t.Helper()
		bucket := k.class.JoinKey(at(k.now), to(t, k.class, n))
		defer bucket.QuitKey(at(k.now), to(t, k.class, n))
		it := &Item{Cost: costOf(conf.Rate.Kind(), 1), Patient: true}
		if bucket.Enter(at(k.now), it) == Leaves {
			return
		}
		for k.class.Release(at(k.now)) == nil {
			next := k.class.Next(at(k.now))
			if next == limit.Never {
				t.Fatalf("key %d never leaves", n)
			}
			k.now = next.Sub(start)
		}
	}
	began := k.now
	for n := range 100 {
		spend(n)
	}
	if took := k.now - began; took != ledgerPatience {
		t.Errorf("100 keys took %v, want %v", took, ledgerPatience)
	}
	if n := len(k.disk.waiting); n > 1 {
		t.Errorf("%d asks wait for the disk", n)
	}
	k.disk.hangs = false
	k.run(k.now + second)
	writes := k.disk.writes
	spend(200)
	if k.run(k.now + second); k.disk.writes == writes {
		t.Error("a disk that is back is not asked")
	}
	spend(201)
	k.start(func() time.Duration { return ms }, k.disk.crash(false))
	if got := k.spendIn(k.class.JoinKey(at(k.now), to(t, k.class, 200)), 60); got != 19 {
		t.Errorf("after a crash, %d left of a key that the disk had once, want the other 19", got)
	}
}
