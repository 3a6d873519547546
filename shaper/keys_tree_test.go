package shaper

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"shaper/policy"
	"shaper/tests/trial"
	"shaper/unit"
)

// A family is a class with buckets and the classes beneath it, under an account. It is written twice: with `per`, and with a class
// for each key.
type family struct {
	account policy.Class
	members []policy.Class // the class with buckets first; each has its parent before it
	keys    int
}

// randomFamily returns a family of which each account allows far more than all of them, or else not. In bytes, since an account
// that counts items has patience with one contender, and a class with buckets stands between it and the keys.
func randomFamily(r *rand.Rand, account string, keyed func(int, policy.Class) policy.Class) family {
	f := family{account: named("account", leakyClass(account)), keys: 1 + r.IntN(3)}
	next := func() policy.Class {
		conf := randomClass(r)
		if conf.Algorithm == policy.Token { // two computations of one moment may differ by a nanosecond
			conf.Algorithm, conf.Burst = []policy.Algorithm{policy.GCRA, policy.SlidingLog, policy.FixedWindow, policy.SlidingWindow}[r.IntN(4)], policy.Burst{}
		}
		return conf
	}
	top := next()
	for top.Rate.Kind() != unit.Bytes { // in which keys take turns, as they do at the account
		top = next()
	}
	top.Weight = 1
	f.members = append(f.members, keyed(10, under("account", named("0", top))))
	for i := 1; i < 2+r.IntN(5); i++ {
		f.members = append(f.members, keyed(10, under(strconv.Itoa(r.IntN(i)), named(strconv.Itoa(i), next()))))
	}
	return f
}

// withKeys returns the family with `per`.
func (f *family) withKeys() []*Class {
	return NewTree(start, append([]policy.Class{f.account}, f.members...))[1:]
}

// writtenOut returns a class for each member and key, by member and key.
func (f *family) writtenOut() (all [][]*Class) {
	confs := []policy.Class{f.account}
	for key := range f.keys {
		for _, conf := range f.members {
			conf.Per = policy.Per{}
			if conf.Name += fmt.Sprint(".", key); conf.Parent != "account" {
				conf.Parent += fmt.Sprint(".", key)
			}
			confs = append(confs, conf)
		}
	}
	for i, c := range NewTree(start, confs)[1:] {
		if i < len(f.members) {
			all = append(all, nil)
		}
		all[i%len(f.members)] = append(all[i%len(f.members)], c)
	}
	return all
}

// An exited item has left the class of a member, for a key.
type exited struct {
	at                  time.Duration
	member, key, number int
}

// A driven tree is one of the two forms of a family.
type driven struct {
	root  *Class
	of    map[*Item]exited
	exits []exited
	quit  func(now time.Time, it *Item, of exited) // an item has left; nil: nobody wants to know
}

func drive(c *Class) *driven { return &driven{root: c.root().class, of: map[*Item]exited{}} }

// enter offers an item to the class of a member.
func (d *driven) enter(now time.Time, c *Class, it Item, of exited) {
	d.of[&it] = of
	if c.Enter(now, &it) == Leaves {
		d.left(now, &it)
	}
}

func (d *driven) left(now time.Time, it *Item) {
	of := d.of[it]
	of.at = now.Sub(start)
	d.exits = append(d.exits, of)
	if it.Left(now); d.quit != nil {
		d.quit(now, it, of)
	}
}

// advance lets all leave from a time on, and before another one, each item when it may.
func (d *driven) advance(now, until time.Time) {
	for {
		next := later(now, d.root.Next(now))
		if !next.Before(until) {
			return
		}
		if now = next; d.root.Next(now).After(now) {
			continue // time has changed which item is the next
		}
		d.left(now, d.root.Release(now))
	}
}

// differs fails if other items have left two forms of a family, or at other moments.
func (d *driven) differs(t *testing.T, written *driven) {
	t.Helper()
	for i, want := range written.exits {
		if i == len(d.exits) || d.exits[i] != want {
			t.Fatalf("exit %d is %+v; if written out, %+v", i, d.exits[i:min(i+1, len(d.exits))], want)
		}
	}
	if len(d.exits) != len(written.exits) {
		t.Fatalf("%d items leave, and %d if written out", len(d.exits), len(written.exits))
	}
}

// Classes beneath a class with buckets do what the same classes do that are written for each key: what comes to them leaves in the
// same order, at the same moments, by all algorithms and in trees of several levels.
func TestKeysBeneathAreAsWrittenOut(t *testing.T) {
	left, families := 0, trial.Size(60, 3000)
	for seed := range families {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		f := randomFamily(r, []string{"1000B/s", "5000B/s", "1MB/s"}[r.IntN(3)], perSource)
		classes, written := f.withKeys(), f.writtenOut()
		keyed, plain := drive(classes[0]), drive(written[0][0])
		buckets := make([][]*Class, len(classes))
		for key := range f.keys {
			for i, c := range classes {
				buckets[i] = append(buckets[i], c.Join(start, client(key)))
			}
		}
		now := start
		for number := range 300 {
			of, it := exited{0, r.IntN(len(f.members)), r.IntN(f.keys), number}, randomItem(r)
			keyed.enter(now, buckets[of.member][of.key], *it, of)
			plain.enter(now, written[of.member][of.key], *it, of)
			until := now.Add(time.Duration(r.Int64N(int64(200 * ms))))
			keyed.advance(now, until)
			plain.advance(now, until)
			now = until
		}
		t.Logf("family %d", seed)
		keyed.differs(t, plain)
		left += len(plain.exits)
	}
	if left < 100*families {
		t.Errorf("of 300 items in each of %d families, %d leave", families, left)
	}
}

// The buckets of a key beneath a class with buckets come and go by themselves, each with what is remembered of it: what leaves is
// what would leave classes that stay. In the end nobody has a bucket, and no key is remembered.
func TestKeysBeneathComeAndGo(t *testing.T) {
	returned := 0
	for seed := range trial.Size(60, 2000) {
		r := rand.New(rand.NewPCG(uint64(seed), 4))
		f := randomFamily(r, "1 connections/s", perRecipient) // which counts nothing: no key waits for another
		classes, written := f.withKeys(), f.writtenOut()
		keyed, plain := drive(classes[0]), drive(written[0][0])
		keyed.quit = func(now time.Time, it *Item, of exited) {
			bucket := it.class
			if bucket == nil { // it has not waited
				bucket = arrival{classes[of.member], now, to(t, classes[of.member], of.key)}.queue()
			}
			bucket.QuitKey(now, to(t, classes[of.member], of.key))
		}
		now, had := start, map[*Class]bool{}
		for number := range 300 {
			of, it := exited{0, r.IntN(len(f.members)), r.IntN(f.keys), number}, randomItem(r)
			for member, c := range written { // one member of a key at a time: the turn of a bucket that comes back is the last
				if c[of.key].queue.Len() > 0 {
					of.member = member
				}
			}
			bucket := classes[of.member].JoinKey(now, to(t, classes[of.member], of.key))
			had[bucket] = true
			one := *it
			if keyed.of[&one] = of; bucket.Enter(now, &one) == Leaves {
				one.class = bucket
				keyed.left(now, &one)
			} else if one.class == nil {
				bucket.QuitKey(now, to(t, classes[of.member], of.key)) // it is refused
			}
			plain.enter(now, written[of.member][of.key], *it, of)
			until := now.Add(time.Duration(r.Int64N(int64(400 * ms))))
			keyed.advance(now, until)
			plain.advance(now, until)
			now = until
		}
		end := now.Add(time.Hour)
		keyed.advance(now, end)
		plain.advance(now, end)
		t.Logf("family %d", seed)
		for _, d := range []*driven{keyed, plain} { // what leaves at one moment is of keys that know nothing of one another
			slices.SortFunc(d.exits, func(a, b exited) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number)) })
		}
		keyed.differs(t, plain)
		returned += len(had)
		for _, c := range classes {
			if n := c.Buckets().Keys(end.Add(24 * time.Hour)); n != 0 || len(c.keys.table.active) != 0 || c.Backlog() != (Backlog{}) || c.keys.queueCost != 0 {
				t.Fatalf("class %s: %d keys, %d buckets, %+v waits, %d in queues", c.name, n, len(c.keys.table.active), c.Backlog(), c.keys.queueCost)
			}
		}
	}
	if returned < 1000 {
		t.Errorf("only %d buckets were opened", returned)
	}
}

// The estimate for a bucket beneath a bucket counts the turns of its siblings, and those of other keys: no estimate is later than all
// that waits takes to leave, and nearly all are what happens.
func TestForecastOfBucketsBeneathBuckets(t *testing.T) {
	const trees = 400
	early, late, waits := 0, 0, 0
	for seed := range uint64(trees) {
		r := rand.New(rand.NewPCG(seed, 12))
		a, b := 1+r.IntN(12), 1+r.IntN(6)
		child := func(name string, rate int) policy.Class {
			conf := perSource(100, under("keys", named(name, leakyClass(fmt.Sprint(rate, " messages/s")))))
			conf.Priority, conf.Weight, conf.Ceil = r.IntN(3), 1+r.IntN(3), rateOf("20 messages/s")
			return withQueue(conf, 10000, 0)
		}
		classes := tree(named("root", leakyClass("100 messages/s")), perSource(100, under("root", named("keys", leakyClass("20 messages/s")))),
			child("a", a), child("b", b), child("c", 20-a-b))
		s := &sim{root: classes["root"], now: start}
		for key := range 1 + r.IntN(80) {
			for _, name := range []string{"a", "b", "c"} {
				bucket := classes[name].Join(start, client(key))
				for range r.IntN(40) * r.IntN(2) {
					bucket.Enter(start, message(1))
				}
			}
		}
		s.run(time.Duration(r.Int64N(int64(3 * second))))
		bucket := classes["a"].Join(s.now, client(0))
		_, said := bucket.Estimate().Place(s.now, message(1).Cost)
		said = max(said, 0)
		began := s.now
		left := s.wait(bucket, message(1))
		if drained := s.drain().Sub(began); said > max(drained, left)+ms {
			t.Errorf("seed %d: the estimate is %v, and all has left after %v", seed, said, drained)
		}
		switch {
		case said < left*2/3-second:
			early++
		case said > left*4/3+second:
			late++
		}
		if left > second {
			waits++
		}
	}
	t.Logf("of %d estimates, of which %d are of waits above a second, %d are too early and %d too late", trees, waits, early, late)
	if early > trees/100 || late > trees*7/100 || waits < trees/4 {
		t.Errorf("of %d estimates, of which %d are of waits above a second, %d are too early and %d too late", trees, waits, early, late)
	}
}

// keyedFamily is a class with buckets per recipient, and two beneath it that share what a key has.
func keyedFamily(most int) []policy.Class {
	return []policy.Class{
		perRecipient(most, named("customer", leakyClass("10 messages/s"))),
		perRecipient(most, ceiling("10 messages/s", under("customer", withPriority(0, named("otp", leakyClass("2 messages/s")))))),
		perRecipient(most, ceiling("10 messages/s", under("customer", named("bulk", leakyClass("2 messages/s"))))),
	}
}

// All that people ask of such a class counts what is in its buckets, wherever these stand.
func TestStatusOfKeysBeneath(t *testing.T) {
	classes := tree(keyedFamily(10)...)
	customer, otp, bulk := classes["customer"], classes["otp"], classes["bulk"]
	one, other := otp.JoinKey(start, to(t, otp, 1)), bulk.JoinKey(start, to(t, bulk, 1))
	first, second, third := message(10), message(10), message(20)
	first.Asks = true
	enter(t, one, 0, Leaves, first)
	enter(t, one, 0, Waits, second)
	enter(t, other, 0, Waits, third)
	for _, want := range []struct {
		class           *Class
		items, inFlight int64
		drain           time.Duration
		own             int64
	}{{customer, 2, 1, 0, 0}, {otp, 1, 1, 200 * ms, 1}, {bulk, 1, 0, 100 * ms, 1}} {
		c, name := want.class, want.class.name
		if b := c.Backlog(); b.Items != want.items || int64(c.InFlight()) != want.inFlight {
			t.Errorf("%s: %+v waits, %d in flight", name, b, c.InFlight())
		}
		if cost, drain := c.Estimate().Drain(start); cost != want.own || want.drain > 0 && drain != want.drain {
			t.Errorf("%s: %d leave its queues in %v, want %d in %v", name, cost, drain, want.own, want.drain)
		}
		if w := c.Status().Waits(start); w == nil || w.Class != "customer" && c != otp || w.Limit != "10 messages/s" || !w.Until.Equal(at(100*ms)) {
			t.Errorf("%s waits for %+v", name, w)
		}
		why := c.Status().Why(start)
		if at := map[*Class]time.Duration{customer: 100 * ms, otp: 200 * ms, bulk: 100 * ms}[c]; why.At.Sub(start) != at || why.Backlog.Items != want.items {
			t.Errorf("%s: the next item leaves after %v, of %d", name, why.At.Sub(start), why.Items)
		}
	}
	if why := bulk.Status().Why(start); why.From != "bulk" || len(why.Path) != 1 || why.Path[0].Class != "customer" || !why.Exact {
		t.Errorf("bulk waits because of %+v", why)
	}
	same := bulk.Status().WhyWithKey(start, policy.Conn{}, &policy.Message{Recipient: []byte("1")})
	if same.At.Sub(start) < 200*ms || len(same.Path) == 0 || same.Path[0].Class != "customer" {
		t.Errorf("another message to the same: %+v", same)
	}
	if next := otp.Status().WhyWithKey(start, policy.Conn{}, &policy.Message{Recipient: []byte("2")}); len(next.Path) > 0 {
		t.Errorf("a message to another: %+v", next)
	}
	first.charged.Provider().Answered(start, true)
	if n := otp.InFlight() + customer.InFlight(); n != 0 {
		t.Errorf("%d in flight after the answer", n)
	}
	released(t, customer, 100*ms, third) // bulk is within its assured rate, and otp borrows
	released(t, customer, 200*ms, second)
	one.QuitKey(at(201*ms), to(t, otp, 1))
	if n := customer.Buckets().Keys(at(201 * ms)); n != 1 || len(customer.keys.table.active) != 1 {
		t.Errorf("%d keys while one beneath has a bucket", n)
	}
	other.QuitKey(at(202*ms), to(t, bulk, 1))
	if len(customer.keys.table.active) != 0 {
		t.Error("a bucket stays that nobody uses")
	}
}

// Keys for which there is no room in a class share a bucket there, beneath the one that keys share in the class above. So however
// many keys come, each class is bounded, and they get no more than one limit of each.
func TestKeysBeneathShare(t *testing.T) {
	classes := tree(keyedFamily(2)...)
	customer, otp, bulk := classes["customer"], classes["otp"], classes["bulk"]
	var buckets []*Class
	for n := range 6 {
		buckets = append(buckets, otp.JoinKey(start, to(t, otp, n)))
	}
	for n := range 6 {
		if c := bulk.JoinKey(start, to(t, bulk, n)); n >= 2 && c.Parent() != customer.keys.common.bucket {
			t.Errorf("key %d has no room in the class above, and its bucket is beneath %v", n, c.Parent())
		}
	}
	if n := len(otp.keys.table.active); n != 2 || otp.keys.common.bucket == nil || otp.keys.common.bucket.Parent() != customer.keys.common.bucket {
		t.Fatalf("otp has %d buckets, and a common one %v", n, otp.keys.common.bucket)
	}
	if n := len(customer.keys.table.active); n != 2 || buckets[0].Parent() == buckets[1].Parent() || buckets[5] != otp.keys.common.bucket {
		t.Errorf("customer has %d buckets", n)
	}
	left := 0
	for n := range 6 {
		if buckets[n].Pass(start, Cost{Messages: 1}) {
			left++
			lastLeft(buckets[n], start)
		}
	}
	if left != 3 {
		t.Errorf("%d messages leave at once, want 3: of two keys, and of all others", left)
	}
	for n := range 6 {
		buckets[n].QuitKey(start, to(t, otp, n))
		arrival{bulk, start, to(t, bulk, n)}.queue().QuitKey(start, to(t, bulk, n))
	}
	for _, c := range []*Class{customer, otp, bulk} {
		if k := c.keys; len(k.table.active) != 0 || len(k.common.keys) != 0 {
			t.Errorf("%s has %d buckets, and %d keys in the common one", c.name, len(k.table.active), len(k.common.keys))
		}
	}
}

// What comes next to a class with buckets is explained also while it has none beneath it, or only such as are beneath others.
func TestWhyOfKeysWithoutBuckets(t *testing.T) {
	for _, name := range []string{"customer", "otp", "alone"} {
		confs := append(keyedFamily(10), named("account", leakyClass("1 messages/s")), under("account", named("other", leakyClass("1 messages/s"))),
			under("account", named("alone", perRecipient(10, leakyClass("10 messages/s")))))
		confs[0].Parent = "account"
		classes := tree(confs...)
		enter(t, classes["other"], 0, Leaves, message(1))
		if why := classes[name].Status().Why(start); !why.At.Equal(at(second)) || len(why.Path) != 1 || why.Path[0].Class != "account" {
			t.Errorf("what comes to %s leaves after %v because of %+v", name, why.At.Sub(start), why.Path)
		}
	}
}

// A bucket that nobody uses and that pauses keeps its place in the class above until the pause is over, whoever comes then.
func TestBucketsBeneathLinger(t *testing.T) {
	classes := tree(keyedFamily(1)...)
	customer, otp, bulk := classes["customer"], classes["otp"], classes["bulk"]
	b := bulk.JoinKey(start, to(t, bulk, 1))
	b.Provider().ThrottledHere(start, second, "throttled")
	b.QuitKey(start, to(t, bulk, 1))
	for n, shares := range []bool{true, false} {
		now, key := at(time.Duration(n)*2*second), to(t, otp, 2+n)
		c := otp.JoinKey(now, key)
		if c.Parent() == customer.keys.common.bucket != shares {
			t.Errorf("key %d shares a bucket: %v, want %v", n, !shares, shares)
		}
		c.QuitKey(now, key)
	}
	if n := len(bulk.keys.table.active) + len(customer.keys.table.active) + len(customer.keys.linger); n != 0 {
		t.Errorf("%d buckets stay that nobody uses", n)
	}
}

// A class that is gone stays beneath its parent if a class with buckets replaces that: it has none beneath these, and the limit above
// it goes on to hold.
func TestGoneClassWhoseParentGetsKeys(t *testing.T) {
	account := named("account", leakyClass("10 messages/s"))
	for name, conf := range map[string]policy.Class{
		"plain":     leakyClass("100 messages/s"),
		"with keys": perRecipient(10, leakyClass("100 messages/s")),
	} {
		inBubble(t, func(t *testing.T, s *Shaper) {
			old, key, left := s.Class("gone"), Key{}, 0
			if old.keys != nil {
				key = to(t, old, 1)
			}
			c := old.JoinKey(time.Now(), key)
			s.Apply([]policy.Class{perRecipient(10, account)})
			for range 1000 {
				if time.Sleep(ms); c.Pass(time.Now(), Cost{Messages: 1}) {
					lastLeft(c, time.Now())
					left++
				}
			}
			c.QuitKey(time.Now(), key)
			if n := old.joined.Load(); left > 11 || n != 0 {
				t.Errorf("%s: %d leave in a second, want 10; then %d are in the class", name, left, n)
			}
		}, account, under("account", named("gone", conf)))
	}
}

// A session in the common bucket of a class is in that of the class above too. So a key that comes back in another class, while there
// is room, begins in the class above with what its session has used there.
func TestSessionsBeneathShareAbove(t *testing.T) {
	classes := tree(
		perSource(1, named("customer", classBy(policy.SlidingLog, "10 packets/10s"))),
		perSource(1, under("customer", named("otp", leakyClass("1000000 packets/s")))),
		perSource(1, under("customer", named("bulk", leakyClass("1000000 packets/s")))))
	customer, otp, bulk := classes["customer"], classes["otp"], classes["bulk"]
	now, left := start, 0
	send := func(c *Class) {
		for range 20 {
			if now = now.Add(ms); c.Pass(now, Cost{Packets: 1}) {
				lastLeft(c, now)
				left++
			}
		}
		c.Quit(now)
	}
	first, second := otp.Join(now, client(1)), otp.Join(now, client(2))
	if second.Parent() != customer.keys.common.bucket {
		t.Fatal("there is room for another key")
	}
	first.Quit(now)
	bulk.Join(now, client(2)).Quit(now) // nothing is owed yet
	send(second)
	send(bulk.Join(now, client(2)))
	if n := customer.keys.common.bucket.joined.Load(); left != 10 || n != 0 {
		t.Errorf("%d leave, want the 10 of a key in a window; %d are in the common bucket", left, n)
	}
}

// A reload that takes away a class beneath one with buckets, or gives that another parent, leaves nobody without limits: what is
// in the old buckets stays beneath the old ones above.
func TestReloadOfKeysBeneath(t *testing.T) {
	family := keyedFamily(100)
	account := named("account", leakyClass("1000 messages/s"))
	confs := append([]policy.Class{account}, family...)
	confs[1].Parent = "account"
	slices.Reverse(confs) // the order of a file is any
	inBubble(t, func(t *testing.T, s *Shaper) {
		otp := s.Class("otp")
		bucket := otp.JoinKey(time.Now(), to(t, otp, 1))
		if !bucket.Pass(time.Now(), Cost{Messages: 1}) {
			t.Fatal("the first message waits")
		}
		lastLeft(bucket, time.Now())
		s.Apply(confs)
		if s.Class("otp") != otp || s.Class("customer").Parent() != s.Class("account") {
			t.Error("the same policy makes other classes")
		}
		gone := s.Apply(confs[1:]) // bulk, of which nobody uses anything
		if s.Class("otp") != otp || len(gone) != 0 && s.Class("bulk") != nil {
			t.Error("a class without bulk beside it is another one")
		}
		faster := slices.Clone(confs)
		faster[1].Ceil, faster[2].Rate = rateOf("20 messages/s"), rateOf("20 messages/s") // of otp and customer
		if s.Apply(faster); s.Class("otp") != otp {
			t.Error("a new rate of the class above makes another class")
		}
		time.Sleep(50 * ms)
		if !bucket.Pass(time.Now(), Cost{Messages: 1}) {
			t.Error("the key does not have the new rate")
		}
		lastLeft(bucket, time.Now())
		packets := slices.Clone(faster) // customer counts another unit, so another class replaces it
		packets[2].Rate = rateOf("20 packets/s")
		s.Apply(packets)
		next := s.Class("otp")
		if next == otp || next.Parent() != s.Class("customer") || bucket.Parent().Named() == s.Class("customer") || bucket.root() != &s.Class("account").node {
			t.Errorf("otp is %p, and was %p; its parent is %v, that of the bucket %v", next, otp, next.Parent().name, bucket.Parent().Named())
		}
		moved := next.JoinKey(time.Now(), to(t, next, 1))
		if moved.Pass(time.Now(), Cost{Packets: 1, Messages: 1}) {
			t.Error("a class that replaces another one has a burst")
		}
		moved.QuitKey(time.Now(), to(t, next, 1))
		bucket.QuitKey(time.Now(), to(t, otp, 1))
		alone := named("otp", leakyClass("2 messages/s")) // without the class above
		s.Apply([]policy.Class{account, alone})
		if s.Class("otp") == next || s.Class("otp").keys != nil {
			t.Error("otp still has buckets")
		}
		s.Apply(confs)
		back := s.Class("otp")
		if c := back.JoinKey(time.Now(), to(t, back, 1)); c.Parent().Named() != s.Class("customer") || back.Parent() != s.Class("customer") {
			t.Errorf("the bucket of a class that comes back is beneath one of %v", c.Parent().Named())
		}
	}, confs...)
}

// A message whose key has no bucket in use, in a class beneath one with buckets: one is made for it there.
func BenchmarkMessageKeysBeneath(b *testing.B) {
	confs := keyedFamily(1 << 20)
	for i := range confs {
		confs[i].Rate, confs[i].Ceil, confs[i].Algorithm = rateOf("1000 messages/s"), unit.Rate{}, policy.GCRA
	}
	benchmarkMessages(b, tree(confs...)["otp"], message(1))
}
