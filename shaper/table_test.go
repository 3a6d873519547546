package shaper

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
)

// A modelKey is what a class is to remember of a key.
type modelKey struct {
	inUse  bool
	until  time.Time
	next   time.Time // when a unit may leave
	within time.Time // when it is within its assured rate
}

// A keyModel is what a keyTable is to remember.
type keyModel map[policy.Key]*modelKey

// note notes what a key that nobody uses has used at now.
func (m keyModel) note(now time.Time, key policy.Key, s bucketState) {
	memory, _ := s.limiter.Memory(now)
	if until := later(memory.Until, s.assured.Next()); until.After(now) {
		m[key] = &modelKey{until: until, next: s.limiter.Next(now, 0, 1), within: s.assured.Next()}
	} else {
		delete(m, key)
	}
}

// forget makes the table look at most reviews, and fails unless it forgets those keys that are due, and no others.
func (m keyModel) forget(t *rapid.T, table *keyTable, now time.Time, most int) {
	more := table.forget(now, most)
	for key, k := range m {
		switch gone := table.find(key) == 0; {
		case gone && (k.inUse || k.until.After(now)):
			t.Fatalf("at %v a key is forgotten that is to be remembered until %v", now.Sub(start), k.until.Sub(start))
		case gone:
			delete(m, key)
		case !more && !k.inUse && !k.until.After(now):
			t.Fatalf("at %v a key is remembered that was to be until %v", now.Sub(start), k.until.Sub(start))
		}
	}
}

// What is remembered of keys is as in a map, whatever comes, goes, is forgotten and is changed by a reload; and no key
// is forgotten late.
func TestKeyTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := ceiling("1 packets/s", classBy(policy.GCRA, "30 packets/min"))
		log := ceiling("20 packets/min", classBy(policy.SlidingLog, "10 packets/min"))
		paces := []pace{paceOf(one), paceOf(log), paceOf(with(one, limitBy(policy.FixedWindow, "5 packets/min"), limitBy(policy.SlidingWindow, "20 packets/min")))}
		p, now := rapid.SampledFrom(paces).Draw(t, "pace"), start
		table := newKeyTable(now, 1+p.further())
		model := keyModel{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 500, 5000, 100_000}).Draw(t, "pause")) * ms)
			who := client(rapid.IntRange(0, 10).Draw(t, "key"))
			per := policy.Per{{By: policy.BySource, IPv4: 32}}
			key := per.Key(&who, nil)
			switch rapid.SampledFrom([]string{"message", "message", "message", "join", "forget", "reload"}).Draw(t, "step") {
			case "message", "join":
				model.forget(t, &table, now, 2)
				s := bucketState{p.idle(now), p.assure(now, nil)}
				i := table.find(key)
				known := i != 0
				if known != (model[key] != nil) {
					t.Fatalf("at %v a key is known: %v", now.Sub(start), known)
				}
				if m := model[key]; known && !m.inUse {
					s = restore(now, table.kept(table.entry(i)), &p)
					if got := s.limiter.Next(now, 0, 1); !later(got, now).Equal(later(m.next, now)) {
						t.Fatalf("at %v a key may send at %v, want %v", now.Sub(start), got.Sub(start), m.next.Sub(start))
					}
					if got := s.assured.Next(); !got.Equal(m.within) {
						t.Fatalf("at %v a key is within its assured rate at %v, want %v", now.Sub(start), got.Sub(start), m.within.Sub(start))
					}
					m.inUse = true
				}
				if i == 0 {
					i = table.add(key)
				}
				bucket := &Class{}
				if c := table.bucketOf(i); c != nil {
					bucket = c
				} else {
					table.use(bucket, i)
				}
				if rapid.IntRange(0, 3).Draw(t, "stays") == 0 && known {
					break
				}
				if rapid.Bool().Draw(t, "gives back") { // so that it is forgotten sooner than it was to be
					s.limiter = p.idle(now)
				}
				s.limiter.Take(now, now, rapid.Int64Range(0, 5).Draw(t, "units"))
				s.assured.Take(now, now, rapid.Int64Range(0, 5).Draw(t, "assured units"))
				table.disuse(bucket)
				table.put(now, i, s)
				model.note(now, key, s)
			case "forget":
				model.forget(t, &table, now, math.MaxInt)
			case "reload":
				old, next := p, rapid.SampledFrom(paces).Draw(t, "next pace")
				table.begin(now, 1+next.further(), func(kept keptState) bucketState {
					s := restore(now, kept, &old)
					s.limiter, s.assured = next.takeOver(now, s.limiter, &old, old.rate), next.assure(now, s.assured)
					s.limiter.Take(now, now, 1)
					return s
				})
				p = next
				table.each(func(key policy.Key, kept keptState) { model.note(now, key, restore(now, kept, &p)) })
			}
			if table.len() != len(model) {
				t.Fatalf("at %v there are %d entries, want %d", now.Sub(start), table.len(), len(model))
			}
			table.each(func(key policy.Key, _ keptState) {
				if m := model[key]; m == nil || m.inUse {
					t.Fatalf("at %v a key counts as idle that is not", now.Sub(start))
				}
			})
		}
	})
}

// A change that is made piece by piece, whatever comes between, is the change that is made at once: of each key that is
// asked for, the same is remembered. A key in which the change is not made yet is forgotten later, and after a further
// reload it goes on from what it had, where one that is not known begins spent. So the two tables forget the same keys.
func TestChangeInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := ceiling("1 packets/s", classBy(policy.GCRA, "30 packets/min"))
		log := ceiling("20 packets/min", classBy(policy.SlidingLog, "10 packets/min"))
		paces := []pace{paceOf(one), paceOf(ceiling("9 packets/s", classBy(policy.GCRA, "30 packets/min"))), paceOf(log),
			paceOf(with(one, limitBy(policy.FixedWindow, "5 packets/min"), limitBy(policy.SlidingWindow, "20 packets/min")))}
		p, now := paces[0], start
		atOnce, pieces := newKeyTable(now, 1+p.further()), newKeyTable(now, 1+p.further())
		both, others := [...]*keyTable{&atOnce, &pieces}, beginning{pace: p}
		use := func(table *keyTable, key policy.Key, units int64) {
			i, s := table.find(key), others.fresh(now)
			if i == 0 {
				i = table.add(key)
			} else {
				s = restore(now, table.kept(table.entry(i)), &p)
			}
			bucket := &Class{}
			table.use(bucket, i)
			s.limiter.Take(now, now, units)
			s.assured.Take(now, now, units)
			table.disuse(bucket)
			table.put(now, i, s)
		}
		next := func(table *keyTable, key policy.Key) (at, within time.Time) {
			s := others.fresh(now)
			if i := table.find(key); i != 0 {
				s = restore(now, table.kept(table.entry(i)), &p)
			}
			return later(s.limiter.Next(now, 0, 1), now), later(s.assured.Next(), now)
		}
		entryOf := func(table *keyTable, key policy.Key) int32 { // as find, but it makes no change in the entry
			return table.index.find(table.hash(key), func(i int32) bool {
				table.reach(i)
				return table.entry(i).key() == key
			})
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 500, 5000, 100_000}).Draw(t, "pause")) * ms)
			n := rapid.Uint64Range(1, 8).Draw(t, "key")
			key, units := policy.KeyOf(n, n, 0), rapid.Int64Range(0, 5).Draw(t, "units")
			switch rapid.SampledFrom([]string{"message", "message", "message", "look", "piece", "forget", "reload"}).Draw(t, "step") {
			case "message":
				use(&atOnce, key, units)
				use(&pieces, key, units)
			case "look":
				at, within := next(&atOnce, key)
				if got, gotWithin := next(&pieces, key); !got.Equal(at) || !gotWithin.Equal(within) {
					t.Fatalf("at %v a key may send at %v, and by its assured rate at %v, want %v and %v", now.Sub(start), got.Sub(start), gotWithin.Sub(start), at.Sub(start), within.Sub(start))
				}
			case "piece":
				pieces.goOn(int(units))
			case "forget":
				pieces.forget(now, math.MaxInt)
				for n := range uint64(8) {
					key := policy.KeyOf(n+1, n+1, 0)
					i := entryOf(&atOnce, key)
					if i == 0 || entryOf(&pieces, key) != 0 {
						continue
					}
					if until := atOnce.timeOf(atOnce.entry(i).until()); until.After(now) {
						t.Fatalf("at %v a key is forgotten that counts until %v", now.Sub(start), until.Sub(start))
					}
					atOnce.remove(i)
				}
			case "reload":
				old, to, at := p, rapid.SampledFrom(paces).Draw(t, "next pace"), now
				for _, table := range both {
					table.begin(at, 1+to.further(), func(kept keptState) bucketState {
						s := restore(at, kept, &old)
						return bucketState{to.takeOver(at, s.limiter, &old, old.rate), to.assure(at, s.assured)}
					})
				}
				if p, others.pace = to, to; slices.Contains(to.origins(&old), -1) {
					others.spend(at) // as keys.set does
				}
				atOnce.goOn(math.MaxInt)
			}
		}
		pieces.goOn(math.MaxInt)
		for _, table := range both {
			if table.forget(now.Add(24*time.Hour), math.MaxInt); table.len() != 0 || table.order.n != 0 {
				t.Fatalf("%d entries and %d reviews remain", table.len(), table.order.n)
			}
		}
	})
}

// Reviews of a key that is used again and again, and forgotten sooner each time, do not pile up. They are more than a review
// has numbers, and the key is forgotten all the same.
func TestReviewsDoNotPileUp(t *testing.T) {
	const most = 1<<16 + 10
	p := paceOf(classBy(policy.GCRA, "1 packets/s"))
	table := newKeyTable(start, 1)
	who := client(1)
	per := policy.Per{{By: policy.BySource, IPv4: 32}}
	for n := range int64(most) {
		l := p.idle(start)
		l.Take(start, start, 2*most-n)
		table.remember(start, per.Key(&who, nil), bucketState{limiter: l})
	}
	if table.order.n > 2*chunkSize {
		t.Errorf("%d reviews of one key", table.order.n)
	}
	if table.forget(at(2*most*second), math.MaxInt); table.len() != 0 || table.order.n != 0 {
		t.Errorf("%d entries and %d reviews remain", table.len(), table.order.n)
	}
}

// A reload that lets all keys be forgotten sooner leaves no reviews behind that do not count: to drop those of a million keys
// takes a while, and would hold up a message.
func TestReloadLeavesTheReviewsThatCount(t *testing.T) {
	const keys = 3 * chunkSize
	slow, fast := paceOf(classBy(policy.GCRA, "1 packets/min")), paceOf(classBy(policy.GCRA, "1 packets/s"))
	table := newKeyTable(start, 1)
	per := policy.Per{{By: policy.BySource, IPv4: 32}}
	for n := range keys {
		who := client(n)
		l := slow.idle(start)
		l.Take(start, start, 1)
		table.remember(start, per.Key(&who, nil), bucketState{limiter: l})
	}
	for _, p := range []*pace{&fast, &slow} {
		table.begin(start, 1, func(keptState) bucketState {
			l := p.idle(start)
			l.Take(start, start, 1)
			return bucketState{limiter: l}
		})
		if table.goOn(math.MaxInt); table.order.n != keys {
			t.Errorf("%d reviews of %d keys", table.order.n, keys)
		}
	}
	if table.forget(at(time.Minute), math.MaxInt); table.len() != 0 || table.order.n != 0 {
		t.Errorf("%d entries and %d reviews remain", table.len(), table.order.n)
	}
}

// A review that is older than all numbers of reviews finds an entry that is free by now.
func TestReviewOfAFreeEntry(t *testing.T) {
	p := paceOf(classBy(policy.GCRA, "1 packets/s"))
	table := newKeyTable(start, 1)
	who := client(1)
	key := (&policy.Per{{By: policy.BySource, IPv4: 32}}).Key(&who, nil)
	l := p.idle(start)
	l.Take(start, start, 10)
	table.remember(start, key, bucketState{limiter: l})
	for range 1 << 16 {
		table.remember(start, key, bucketState{limiter: p.idle(start)})
	}
	if table.len() != 0 || table.order.n != 1 {
		t.Fatalf("%d entries and %d reviews", table.len(), table.order.n)
	}
	if table.forget(at(time.Minute), 10); table.len() != 0 || table.order.n != 0 {
		t.Errorf("%d entries and %d reviews remain", table.len(), table.order.n)
	}
}

// TestTableOfBuckets uses buckets and gives them up in any order, and holds that the entry of each key leads to the bucket of
// the key, or to none.
func TestTableOfBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := newKeyTable(start, 1)
		of := map[policy.Key]*Class{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.Uint64Range(1, 8).Draw(t, "key")
			key := policy.KeyOf(n, n, 0)
			if c := of[key]; c != nil {
				table.disuse(c)
				delete(of, key)
			} else {
				i := table.find(key)
				if i == 0 {
					i = table.add(key)
				}
				of[key] = &Class{}
				table.use(of[key], i)
			}
			for n := range uint64(9) {
				key := policy.KeyOf(n, n, 0)
				if got := table.bucketOfKey(key); got != of[key] {
					t.Fatalf("key %d has the bucket %p, want %p", n, got, of[key])
				}
			}
			if len(table.active) != len(of) {
				t.Fatalf("%d buckets are in use, want %d", len(table.active), len(of))
			}
		}
	})
}
