package shaper

import (
	"hash/maphash"
	"iter"
	"math"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// A keyTable has an entry for each key of a class. While somebody uses a key, its entry says which bucket that has. Else the
// entry remembers what the bucket owes: 64 bytes for each, and some 100 with index and order. Each further limit of the class
// takes another 24. Only a limiter whose memory does not fit into an entry takes more: a log of departures. The lock of the
// tree guards a keyTable.
//
// An entry has a number above 0, which is its place in chunks. It stays where it is while somebody uses its key. With many
// keys, whatever is in another place is far from the processor. So a message looks into the index and into the entry, and
// nowhere else.
type keyTable struct {
	epoch    time.Time // the times of entries count from here
	index    keyIndex
	seed     maphash.Seed                 // so that nobody can choose keys that look like one another in the index
	size     int                          // how many numbers an entry has
	chunks   [][]int64                    // the entries; in chunks, so that growing copies nothing. nil: resize has left it to reach
	last     int32                        // the entry with the highest number that there has been
	free     []int32                      // entries to use again
	active   []*Class                     // the buckets of keys that somebody uses, in any order; see entry.bucket
	order    reviews                      // when to look whether an entry may be forgotten
	limiters map[policy.Key]limit.Limiter // those that do not fit into their entries
	memories []limit.Memory               // those of the last keptState, to use again
	change   change                       // what is not made in all entries yet
	parity   uint8                        // of the number of changes: so an entry says whether the last one is made in it
}

// A change replaces what is remembered of each key. It is a reload, and a million keys take some seconds of a processor. So it
// is made in an entry when somebody asks for its key, and in all others in pieces, between which the tree is not locked. It
// is the same, whenever that is.
type change struct {
	now    time.Time // when it came
	to     func(keptState) bucketState
	chunks [][]int64 // what was remembered before; also the entries themselves, if these have the same size
	size   int
	next   int32 // the first entry that goOn has not seen; 0: the change is made
}

const chunkSize = 1 << 10

// keptState is what is remembered of a bucket. It is valid until the next one is read.
type keptState struct {
	limiter  limit.Limiter  // nil: memories are all that its limiter remembers
	memories []limit.Memory // of each of its parts
	assured  time.Time      // when it is within its assured rate
}

// newKeyTable returns that of a class with so many limits.
func newKeyTable(now time.Time, limits int) keyTable {
	return keyTable{epoch: now, seed: maphash.MakeSeed(), size: entrySize(limits)}
}

// len returns how many entries there are: for keys that somebody uses, and for those that are remembered.
func (s *keyTable) len() int { return int(s.last) - len(s.free) }

// entry returns an entry. While a change is under way, reach or renew has to come first, unless somebody uses the entry.
func (s *keyTable) entry(i int32) entry { return entryIn(s.chunks, i, s.size) }

// entryIn returns an entry of so many numbers.
func entryIn(chunks [][]int64, i int32, size int) entry {
	at := int(i%chunkSize) * size
	return chunks[i/chunkSize][at : at+size : at+size]
}

// find returns the entry of a key; 0 if there is none.
func (s *keyTable) find(key policy.Key) int32 {
	i := s.index.find(s.hash(key), func(i int32) bool {
		s.reach(i)
		return s.entry(i).key() == key
	})
	if i != 0 && s.change.next != 0 && !s.renew(i) {
		return 0
	}
	return i
}

// hash returns what the index finds a key by.
func (s *keyTable) hash(key policy.Key) uint32 { return uint32(maphash.Comparable(s.seed, key)) }

// bucketOf returns the bucket of an entry that somebody uses; nil if nobody does, or if there is no entry.
func (s *keyTable) bucketOf(entry int32) *Class {
	if entry != 0 {
		if n := s.entry(entry).bucket(); n != 0 {
			return s.active[n-1]
		}
	}
	return nil
}

// bucketOfKey returns the bucket of a key that somebody uses; nil if nobody does.
func (s *keyTable) bucketOfKey(key policy.Key) *Class { return s.bucketOf(s.find(key)) }

// use notes that somebody uses a bucket, and makes it that of the key of an entry. Nobody used the key before.
func (s *keyTable) use(c *Class, entry int32) {
	c.entry = entry
	s.active = append(s.active, c)
	s.entry(entry).setBucket(len(s.active))
}

// disuse notes that nobody uses a bucket any more. What is to become of its entry is up to the caller.
func (s *keyTable) disuse(c *Class) {
	e, last := s.entry(c.entry), len(s.active)-1
	moves, to := s.active[last], e.bucket()
	s.active[to-1] = moves
	s.entry(moves.entry).setBucket(to)
	e.setBucket(0)
	s.active[last], s.active = nil, s.active[:last]
}

// put remembers the bucket of an entry at now, which nobody uses any more. It removes the entry if there is nothing
// to remember. It returns false if that does not fit into an entry, so that the key keeps the limiter.
func (s *keyTable) put(now time.Time, i int32, state bucketState) (fits bool) {
	e := s.entry(i)
	before := e.until()
	if fits, empty := s.fill(e, now, state); !empty {
		if e.until() < before {
			s.reviewAtEnd(i)
		}
		return fits
	}
	s.remove(i)
	return true
}

// remember is put for a key that nobody uses, whether it has an entry or not.
func (s *keyTable) remember(now time.Time, key policy.Key, state bucketState) {
	i := s.find(key)
	if i == 0 {
		i = s.add(key)
	}
	s.put(now, i, state)
}

// add adds an entry for a key that has none.
func (s *keyTable) add(key policy.Key) (i int32) {
	i = s.freeEntry()
	s.reach(i)
	e := s.entry(i)
	e.setKey(key, s.parity)
	e.setUntil(math.MaxInt64)
	s.index.add(s.hash(key), i)
	return i
}

// reviewAtEnd makes forget look at an entry when it may be forgotten, and not at another time.
func (s *keyTable) reviewAtEnd(i int32) {
	e := s.entry(i)
	e.endReview()
	if s.order.add(review{e.until(), i, e.review()}); s.order.n > 2*s.len()+chunkSize {
		s.order.keep(s.counts)
	}
}

// counts reports whether a review is the last one that its entry has got.
func (s *keyTable) counts(r review) bool {
	e := s.entry(r.entry)
	return e.review() == r.number && e.until() != freeUntil
}

// fill sets what an entry is to remember at now, unless that is empty. It reports whether it fits into the entry.
func (s *keyTable) fill(e entry, now time.Time, state bucketState) (fits, empty bool) {
	until, within := now, time.Time{}
	fits = true
	for n, l := range limit.Parts(state.limiter) {
		m, whole := l.Memory(now)
		until, fits = later(until, m.Until), fits && whole
		*e.memory(n) = [perLimit]int64{int64(m.At.Sub(s.epoch)), m.Used[0], m.Used[1]}
	}
	if state.assured != nil && state.assured.Next() != limit.Never {
		within = state.assured.Next()
		until = later(until, within)
	}
	if !until.After(now) {
		return true, true
	}
	e.setUntil(until.Sub(s.epoch))
	e[entryAssured] = int64(within.Sub(s.epoch))
	switch {
	case !fits && s.limiters == nil:
		s.limiters = map[policy.Key]limit.Limiter{e.key(): state.limiter}
	case !fits:
		s.limiters[e.key()] = state.limiter
	case len(s.limiters) > 0:
		delete(s.limiters, e.key())
	}
	return fits, false
}

// kept returns what an entry remembers.
func (s *keyTable) kept(e entry) keptState {
	kept := keptState{assured: s.timeOf(time.Duration(e[entryAssured]))}
	until := s.timeOf(e.until())
	s.memories = s.memories[:0]
	for n := range e.limits() {
		m := e.memory(n)
		s.memories = append(s.memories, limit.Memory{Until: until, At: s.timeOf(time.Duration(m[0])), Used: [2]int64(m[1:])})
	}
	if kept.memories = s.memories; len(s.limiters) > 0 {
		kept.limiter = s.limiters[e.key()]
	}
	return kept
}

// timeOf returns a time of an entry. What is further away than a Duration can say is
// limit.Never, or long ago.
func (s *keyTable) timeOf(since time.Duration) time.Time {
	switch since {
	case math.MaxInt64:
		return limit.Never
	case math.MinInt64:
		return time.Time{}
	}
	return s.epoch.Add(since)
}

// forget forgets keys that need not be remembered at now. It looks at so many at most, and reports whether
// there are more to look at.
//
// A put leads to one review at most that finds something else than a key to forget: one that was used since, or is in
// use, or has got another review. So whoever looks at two keys before each put keeps up with whatever comes.
func (s *keyTable) forget(now time.Time, most int) (more bool) {
	since := now.Sub(s.epoch)
	for ; s.order.n > 0 && s.order.at(0).at <= since; most-- {
		if most == 0 {
			return true
		}
		r := s.order.takeFirst()
		switch e := s.entry(r.entry); {
		case !s.counts(r):
		case e.bucket() != 0:
			e.setUntil(math.MaxInt64)
		case e.until() > since:
			s.reviewAtEnd(r.entry)
		default:
			s.remove(r.entry)
		}
	}
	return false
}

// each calls do with each key that nobody uses and what is remembered of it.
func (s *keyTable) each(do func(policy.Key, keptState)) {
	s.goOn(math.MaxInt)
	for i := range s.entries() {
		if e := s.entry(i); e.bucket() == 0 {
			do(e.key(), s.kept(e))
		}
	}
}

// begin begins a change: what is remembered of each key is replaced by what to returns, which has so many limits. to returns the
// same whenever it is called. If another change is not made yet, begin makes that first.
func (s *keyTable) begin(now time.Time, limits int, to func(keptState) bucketState) {
	s.goOn(math.MaxInt)
	s.change = change{now, to, s.chunks, s.size, 1}
	if s.parity ^= 1; entrySize(limits) != s.size {
		s.resize(entrySize(limits))
	}
	s.order = reviews{} // if all got another review beside the one that they have, half of them would not count
	for _, c := range s.active {
		s.reach(c.entry)
		e := s.entry(c.entry)
		e.setParity(s.parity)
		e.setUntil(math.MaxInt64) // it has no review
	}
}

// goOn makes the change in so many entries at most. It reports whether there are more.
func (s *keyTable) goOn(most int) (more bool) {
	if s.change.next == 0 {
		return false
	}
	for ; most > 0 && s.change.next <= s.last; most-- {
		s.renew(s.change.next)
		s.change.next++
	}
	if s.change.next <= s.last {
		return true
	}
	s.change = change{}
	return false
}

// renew makes the change in an entry, unless it is made there. It returns false if there is nothing to remember of the key, and
// so no entry any more. Somebody uses no entry in which the change is not made.
func (s *keyTable) renew(i int32) (remains bool) {
	s.reach(i)
	e := s.entry(i)
	if e.until() == freeUntil {
		return false
	}
	if e.parity() == s.parity {
		return true
	}
	e.setParity(s.parity)
	if _, empty := s.fill(e, s.change.now, s.change.to(s.kept(entryIn(s.change.chunks, i, s.change.size)))); empty {
		s.remove(i)
		return false
	}
	s.reviewAtEnd(i)
	return true
}

// resize gives entries another size. Each chunk is made when somebody asks for an entry in it: a million entries take a tenth of
// a second to copy.
func (s *keyTable) resize(size int) {
	s.chunks, s.size = make([][]int64, len(s.chunks)), size
}

// reach makes the chunk of an entry if resize has left it.
func (s *keyTable) reach(i int32) {
	if s.chunks[i/chunkSize] == nil {
		s.makeChunk(i / chunkSize)
	}
}

// makeChunk makes a chunk that resize has left, with the entries that it had before the change. They remember nothing.
func (s *keyTable) makeChunk(n int32) {
	chunk, old := make([]int64, chunkSize*s.size), s.change.chunks[n]
	for i := range chunkSize {
		copy(chunk[i*s.size:][:entryLimits], old[i*s.change.size:])
	}
	s.chunks[n] = chunk
}

// entries yields the entries that have a key. The caller may remove an entry that it has got.
func (s *keyTable) entries() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i := int32(1); i <= s.last; i++ {
			if s.entry(i).until() != freeUntil && !yield(i) {
				return
			}
		}
	}
}

// freeEntry returns an entry that is not in use.
func (s *keyTable) freeEntry() int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	s.last++
	if int(s.last/chunkSize) >= len(s.chunks) {
		s.chunks = append(s.chunks, make([]int64, chunkSize*s.size))
	}
	return s.last
}

// remove removes an entry, so that the table knows nothing of its key. Nobody uses the key.
func (s *keyTable) remove(i int32) {
	e := s.entry(i)
	key := e.key()
	s.index.remove(s.hash(key), i)
	if len(s.limiters) > 0 {
		delete(s.limiters, key)
	}
	e.endReview()
	e.setUntil(freeUntil)
	s.free = append(s.free, i)
}
