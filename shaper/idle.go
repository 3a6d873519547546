package shaper

import (
	"hash/maphash"
	"iter"
	"math"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// idleKeys has an entry for each key of a class, and remembers in it what the bucket of a key owes when nobody uses it
// any more: 64 bytes for each, and some 100 with index and order. Each further limit of the class takes another 24. Only a
// limiter whose memory does not fit into an entry takes more: a log of departures. The lock of the tree guards
// idleKeys.
//
// An entry has a number above 0, which is its place in chunks. It stays where it is while somebody uses its key, and says
// which bucket that is. With many keys, each part of an entry, of the index and of order is far from the
// processor, and to find it takes most of the time of a message.
type idleKeys struct {
	epoch    time.Time // the times of entries count from here
	index    keyIndex
	seed     maphash.Seed                 // so that nobody can choose keys that look like one another in the index
	chunks   [][]idleKey                  // the entries; in chunks, so that growing copies nothing
	further  furtherMemories              // what the further limits of each entry remember
	last     int32                        // the entry with the highest number that there has been
	free     []int32                      // entries to use again
	order    reviews                      // when to look whether an entry may be forgotten
	limiters map[policy.Key]limit.Limiter // those that do not fit into their entries
	memories []limit.Memory               // those of the last keptState, to use again
}

// An idleKey is an entry: what is remembered of one key.
type idleKey struct {
	key     policy.Key
	bucket  int32         // of the key, in keys.active, plus 1: somebody uses it, and the rest means nothing; 0: nobody does
	review  uint32        // the number of its review in order
	until   time.Duration // until when to remember it; it is not before its review, and math.MaxInt64 without one
	assured time.Duration // when it is within its assured rate
	at      time.Duration // limit.Memory.At
	used    [2]int64      // limit.Memory.Used
}

const chunkSize = 1 << 10

// free is the until of an entry without a key.
const free = math.MinInt64

// furtherMemories hold what the further limits of each entry remember.
type furtherMemories struct {
	each   int // how many an entry has
	chunks [][]furtherMemory
}

// A furtherMemory is a limit.Memory; the entry has its Until.
type furtherMemory struct {
	at   time.Duration
	used [2]int64
}

// of returns the memories of an entry.
func (f *furtherMemories) of(i int32) []furtherMemory {
	at := int(i%chunkSize) * f.each
	return f.chunks[i/chunkSize][at : at+f.each]
}

// grow makes room for another chunk of entries.
func (f *furtherMemories) grow() {
	f.chunks = append(f.chunks, make([]furtherMemory, chunkSize*f.each))
}

// keptState is what is remembered of a bucket. It is valid until the next one is read.
type keptState struct {
	limiter  limit.Limiter  // nil: memories are all that its limiter remembers
	memories []limit.Memory // of each of its parts
	assured  time.Time      // when it is within its assured rate
}

func newIdleKeys(now time.Time) idleKeys {
	return idleKeys{epoch: now, seed: maphash.MakeSeed()}
}

// len returns how many entries there are.
func (s *idleKeys) len() int { return int(s.last) - len(s.free) }

func (s *idleKeys) entry(i int32) *idleKey { return &s.chunks[i/chunkSize][i%chunkSize] }

// find returns the entry of a key; 0 if there is none.
func (s *idleKeys) find(key policy.Key) int32 {
	return s.index.find(s.hash(key), func(i int32) bool { return s.entry(i).key == key })
}

// hash returns what the index finds a key by.
func (s *idleKeys) hash(key policy.Key) uint32 { return uint32(maphash.Comparable(s.seed, key)) }

// put remembers the bucket of an entry at now, which nobody uses any more. It removes the entry if there is nothing
// to remember. It returns false if that does not fit into an entry, so that the key keeps the limiter.
func (s *idleKeys) put(now time.Time, i int32, state bucketState) (fits bool) {
	e := s.entry(i)
	before := e.until
	if e.bucket = 0; !s.fill(i, now, state) {
		s.remove(i)
		return true
	}
	if e.until < before {
		s.reviewAtEnd(i)
	}
	return len(s.limiters) == 0 || s.limiters[e.key] == nil
}

// remember is put for a key that nobody uses, whether it has an entry or not.
func (s *idleKeys) remember(now time.Time, key policy.Key, state bucketState) {
	i := s.find(key)
	if i == 0 {
		i = s.add(key)
	}
	s.put(now, i, state)
}

// add adds an entry for a key that has none.
func (s *idleKeys) add(key policy.Key) (i int32) {
	i = s.freeEntry()
	*s.entry(i) = idleKey{key: key, review: s.entry(i).review, until: math.MaxInt64}
	s.index.add(s.hash(key), i)
	return i
}

// reviewAtEnd makes forget look at an entry when it may be forgotten, and not at another time.
func (s *idleKeys) reviewAtEnd(i int32) {
	e := s.entry(i)
	e.review++
	if s.order.add(review{e.until, i, e.review}); s.order.n > 2*s.len()+chunkSize {
		s.order.keep(func(r review) bool { return s.entry(r.entry).review == r.number })
	}
}

// fill sets what an entry is to remember at now. It returns false if there is nothing.
func (s *idleKeys) fill(i int32, now time.Time, state bucketState) bool {
	e := s.entry(i)
	until, within, allWhole := now, time.Time{}, true
	for part, l := range limit.Parts(state.limiter) {
		m, whole := l.Memory(now)
		until, allWhole = later(until, m.Until), allWhole && whole
		if at := m.At.Sub(s.epoch); part == 0 {
			e.at, e.used = at, m.Used
		} else {
			s.further.of(i)[part-1] = furtherMemory{at, m.Used}
		}
	}
	if state.assured != nil && state.assured.Next() != limit.Never {
		within = state.assured.Next()
		until = later(until, within)
	}
	if !until.After(now) {
		return false
	}
	e.until, e.assured = until.Sub(s.epoch), within.Sub(s.epoch)
	if len(s.limiters) > 0 {
		delete(s.limiters, e.key)
	}
	if !allWhole {
		if s.limiters == nil {
			s.limiters = map[policy.Key]limit.Limiter{}
		}
		s.limiters[e.key] = state.limiter
	}
	return true
}

// kept returns what an entry remembers, with its further limits.
func (s *idleKeys) kept(i int32, further *furtherMemories) keptState {
	e, more := *s.entry(i), further.of(i)
	kept := keptState{assured: s.timeOf(e.assured)}
	until := s.timeOf(e.until)
	s.memories = append(s.memories[:0], limit.Memory{Until: until, At: s.timeOf(e.at), Used: e.used})
	for _, m := range more {
		s.memories = append(s.memories, limit.Memory{Until: until, At: s.timeOf(m.at), Used: m.used})
	}
	if kept.memories = s.memories; len(s.limiters) > 0 {
		kept.limiter = s.limiters[e.key]
	}
	return kept
}

// timeOf returns a time of an entry. What is further away than a Duration can say is
// limit.Never, or long ago.
func (s *idleKeys) timeOf(since time.Duration) time.Time {
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
func (s *idleKeys) forget(now time.Time, most int) (more bool) {
	since := now.Sub(s.epoch)
	for ; s.order.n > 0 && s.order.at(0).at <= since; most-- {
		if most == 0 {
			return true
		}
		r := s.order.takeFirst()
		switch e := s.entry(r.entry); {
		case e.review != r.number:
		case e.bucket != 0:
			e.until = math.MaxInt64
		case e.until > since:
			s.reviewAtEnd(r.entry)
		default:
			s.remove(r.entry)
		}
	}
	return false
}

// each calls do with each key that nobody uses and what is remembered of it.
func (s *idleKeys) each(do func(policy.Key, keptState)) {
	for i := range s.entries() {
		if s.entry(i).bucket == 0 {
			do(s.entry(i).key, s.kept(i, &s.further))
		}
	}
}

// change replaces what is remembered of each key by what to returns, which has so many further
// limits.
func (s *idleKeys) change(now time.Time, further int, to func(keptState) bucketState) {
	old := s.further
	s.further = furtherMemories{each: further}
	for range s.chunks {
		s.further.grow()
	}
	for i := range s.entries() {
		e := s.entry(i)
		switch before := e.until; {
		case e.bucket != 0:
		case !s.fill(i, now, to(s.kept(i, &old))):
			s.remove(i)
		case e.until < before:
			s.reviewAtEnd(i)
		}
	}
}

// entries yields the entries that have a key. The caller may remove an entry that it has got.
func (s *idleKeys) entries() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i := int32(1); i <= s.last; i++ {
			if s.entry(i).until != free && !yield(i) {
				return
			}
		}
	}
}

// freeEntry returns an entry that is not in use.
func (s *idleKeys) freeEntry() int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	s.last++
	if int(s.last/chunkSize) >= len(s.chunks) {
		s.chunks = append(s.chunks, make([]idleKey, chunkSize))
		s.further.grow()
	}
	return s.last
}

func (s *idleKeys) remove(i int32) {
	e := s.entry(i)
	s.index.remove(s.hash(e.key), i)
	if len(s.limiters) > 0 {
		delete(s.limiters, e.key)
	}
	e.review++ // no review of this key counts for the next one
	e.until = free
	s.free = append(s.free, i)
}
