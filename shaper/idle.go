package shaper

import (
	"container/heap"
	"hash/maphash"
	"math"
	"time"

	"shaper/limit"
	"shaper/policy"
)

// idleKeys remembers keys that nobody uses: 64 bytes for each, and less than 96 with
// index and heap. Each further limit of the class takes another 24. Only a limiter whose memory
// does not fit into an entry takes more: a log of departures. The lock of the tree guards
// idleKeys.
//
// An entry has a number above 0, which is its place in chunks. It stays where it is while somebody uses its
// key: with many keys, each part of an entry, of the index and of the heap is far from the processor,
// and to take a key out and to put it back took most of the time of a message.
type idleKeys struct {
	epoch    time.Time // the times of entries count from here
	index    keyIndex
	seed     maphash.Seed                 // so that nobody can choose keys that look like one another in the index
	chunks   [][]idleKey                  // the entries; in chunks, so that growing copies nothing
	further  furtherMemories              // what the further limits of each entry remember
	last     int32                        // the entry with the highest number that there has been
	free     []int32                      // entries to use again
	order    []int32                      // a heap of entries, the first to be forgotten first
	inUse    int                          // how many entries have a key that somebody uses
	limiters map[policy.Key]limit.Limiter // those that do not fit into their entries
	memories []limit.Memory               // those of the last keptState, to use again
}

// An idleKey is an entry: what is remembered of one key.
type idleKey struct {
	key     policy.Key
	inUse   bool          // somebody uses the key, and the rest means nothing
	place   int32         // in order
	until   time.Duration // until when to remember it; if it is in use, until when forget need not look at it
	assured time.Duration // when it is within its assured rate
	at      time.Duration // limit.Memory.At
	used    [2]int64      // limit.Memory.Used
}

const chunkSize = 1 << 10

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

// remembered returns how many keys are remembered that nobody uses.
func (s *idleKeys) remembered() int { return len(s.order) - s.inUse }

// Len, Less and Swap implement heap.Interface for order.
func (s *idleKeys) Len() int { return len(s.order) }

func (s *idleKeys) Less(i, j int) bool { return s.entry(s.order[i]).until < s.entry(s.order[j]).until }

func (s *idleKeys) Swap(i, j int) {
	s.order[i], s.order[j] = s.order[j], s.order[i]
	s.entry(s.order[i]).place, s.entry(s.order[j]).place = int32(i), int32(j)
}

// Push and Pop are not used, since they would allocate.
func (s *idleKeys) Push(any) { panic("shaper: put adds to the heap") }
func (s *idleKeys) Pop() any { panic("shaper: remove takes out of the heap") }

func (s *idleKeys) entry(i int32) *idleKey { return &s.chunks[i/chunkSize][i%chunkSize] }

// find returns the entry of a key; 0 if there is none.
func (s *idleKeys) find(key policy.Key) int32 {
	return s.index.find(s.hash(key), func(i int32) bool { return s.entry(i).key == key })
}

// hash returns what the index finds a key by.
func (s *idleKeys) hash(key policy.Key) uint32 { return uint32(maphash.Comparable(s.seed, key)) }

// put remembers the bucket of a key at now, if there is something to remember. It returns false
// if that does not fit into an entry, so that the key keeps the limiter.
func (s *idleKeys) put(now time.Time, key policy.Key, state bucketState) (fits bool) {
	i := s.find(key)
	if i == 0 {
		i = s.add(key)
	}
	s.use(i, false)
	before := s.entry(i).until
	if !s.fill(i, now, state) {
		s.remove(i)
		return true
	}
	if e := s.entry(i); e.until != before {
		heap.Fix(s, int(e.place))
	}
	return len(s.limiters) == 0 || s.limiters[key] == nil
}

// add adds an entry for a key, which is the last to be forgotten.
func (s *idleKeys) add(key policy.Key) (i int32) {
	i = s.freeEntry()
	*s.entry(i) = idleKey{key: key, place: int32(len(s.order)), until: math.MaxInt64}
	s.index.add(s.hash(key), i)
	s.order = append(s.order, i)
	return i
}

// use says whether somebody uses the key of an entry.
func (s *idleKeys) use(i int32, inUse bool) {
	switch e := s.entry(i); {
	case e.inUse == inUse:
	case inUse:
		e.inUse, s.inUse = true, s.inUse+1
	default:
		e.inUse, s.inUse = false, s.inUse-1
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

// take returns what is remembered of a key, which somebody uses from now on until put. It returns
// false if that is nothing.
func (s *idleKeys) take(key policy.Key) (kept keptState, known bool) {
	i := s.find(key)
	if i == 0 {
		return kept, false
	}
	kept = s.kept(i, &s.further)
	s.use(i, true)
	if kept.limiter != nil {
		delete(s.limiters, key)
	}
	return kept, true
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

// forget forgets keys that need not be remembered at now. It looks at so many at most.
func (s *idleKeys) forget(now time.Time, most int) {
	for range most {
		if len(s.order) == 0 || s.entry(s.order[0]).until > now.Sub(s.epoch) {
			return
		}
		s.drop(s.order[0])
	}
}

// drop removes an entry, unless somebody uses its key.
func (s *idleKeys) drop(i int32) {
	e := s.entry(i)
	if !e.inUse {
		s.remove(i)
		return
	}
	e.until = math.MaxInt64
	heap.Fix(s, int(e.place))
}

// each calls do with each key that nobody uses and what is remembered of it.
func (s *idleKeys) each(do func(policy.Key, keptState)) {
	for _, i := range s.order {
		if !s.entry(i).inUse {
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
	for _, i := range s.order {
		if e := s.entry(i); !e.inUse && !s.fill(i, now, to(s.kept(i, &old))) {
			e.until = math.MinInt64
		}
	}
	heap.Init(s)
	for len(s.order) > 0 && s.entry(s.order[0]).until == math.MinInt64 {
		s.remove(s.order[0])
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
	at, last := int(e.place), len(s.order)-1
	s.Swap(at, last)
	if s.order = s.order[:last]; at < last {
		heap.Fix(s, at)
	}
	s.index.remove(s.hash(e.key), i)
	if len(s.limiters) > 0 {
		delete(s.limiters, e.key)
	}
	s.free = append(s.free, i)
}
