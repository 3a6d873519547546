package shaper

// A keyIndex finds entries of keys by their hashes: to find one costs a single access to memory, beside
// that to the entry itself. It is a hash table with open addressing and linear probing, without pointers. An
// entry takes 11 to 21 bytes of it, half of what it would take of a map.
//
// It consists of parts that grow one by one: with a million entries, one of them grows within a tenth of a
// millisecond. The zero value is empty.
type keyIndex [indexParts]indexPart // by the first bits of a hash

const indexParts = 1 << 6

// An indexPart has a power of 2 of slots, of which a quarter is free at least. An entry is in the slot that its
// hash says, or behind it with no free slot in between.
type indexPart struct {
	slots []indexSlot
	used  int
}

// An indexSlot is a hash, and the entry in the low half; 0: it is free.
type indexSlot uint64

func newIndexSlot(hash uint32, entry int32) indexSlot {
	return indexSlot(hash)<<32 | indexSlot(entry)
}

func (s indexSlot) hash() uint32 { return uint32(s >> 32) }
func (s indexSlot) entry() int32 { return int32(s) }

func (x *keyIndex) part(hash uint32) *indexPart { return &x[hash/(1<<32/indexParts)] }

// find returns the entry with a hash of which is says that it is the one; 0 if there is none.
func (x *keyIndex) find(hash uint32, is func(entry int32) bool) (entry int32) {
	p := x.part(hash)
	if len(p.slots) == 0 {
		return 0
	}
	for at := p.home(hash); p.slots[at] != 0; at = p.next(at) {
		if s := p.slots[at]; s.hash() == hash && is(s.entry()) {
			return s.entry()
		}
	}
	return 0
}

// add adds an entry above 0 that is not there.
func (x *keyIndex) add(hash uint32, entry int32) {
	p := x.part(hash)
	if p.used++; p.used > len(p.slots)/4*3 {
		p.grow()
	}
	p.put(newIndexSlot(hash, entry))
}

// remove removes an entry that is there. It panics if the entry is not there.
func (x *keyIndex) remove(hash uint32, entry int32) {
	p, s := x.part(hash), newIndexSlot(hash, entry)
	if p.used == 0 {
		panic(absentEntry)
	}
	gap := p.home(hash)
	for ; p.slots[gap] != s; gap = p.next(gap) {
		if p.slots[gap] == 0 {
			panic(absentEntry)
		}
	}
	p.used--
	for at := p.next(gap); p.slots[at] != 0; at = p.next(at) {
		if p.distance(p.home(p.slots[at].hash()), at) >= p.distance(gap, at) { // it may also be in the gap
			p.slots[gap], gap = p.slots[at], at
		}
	}
	p.slots[gap] = 0
}

const absentEntry = "shaper: a key to forget is not in the index"

func (p *indexPart) grow() {
	old := p.slots
	p.slots = make([]indexSlot, max(2*len(old), 8))
	for _, s := range old {
		if s != 0 {
			p.put(s)
		}
	}
}

// put puts a slot where it belongs.
func (p *indexPart) put(s indexSlot) {
	at := p.home(s.hash())
	for p.slots[at] != 0 {
		at = p.next(at)
	}
	p.slots[at] = s
}

// home returns the slot that a hash says, next the one behind it, and distance how far a slot is behind another one.
func (p *indexPart) home(hash uint32) int      { return int(hash) & (len(p.slots) - 1) }
func (p *indexPart) next(at int) int           { return (at + 1) & (len(p.slots) - 1) }
func (p *indexPart) distance(from, to int) int { return (to - from) & (len(p.slots) - 1) }
