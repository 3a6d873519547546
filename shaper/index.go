package shaper

// A keyIndex finds entries of keys by their hashes: to find one costs a single access to memory, beside
// that to the entry itself. It is a hash table with open addressing and linear probing, without pointers. An
// entry takes 11 to 21 bytes of it, half of what it would take of a map.
//
// It consists of parts that grow one by one: with a million entries, one of them grows within a tenth of a
// millisecond. The zero value is empty.
type keyIndex [indexParts]indexPart // by the first bits of a hash

const indexParts = 1 << 6

// An indexPart has a power of 2 of cells, of which a quarter is free at least. An entry is in the cell that its
// hash says, or behind it with no free cell in between.
type indexPart struct {
	cells []indexCell
	used  int
}

// An indexCell is a hash, and the entry in the low half; 0: it is free.
type indexCell uint64

func newIndexCell(hash uint32, entry int32) indexCell {
	return indexCell(hash)<<32 | indexCell(entry)
}

func (c indexCell) hash() uint32 { return uint32(c >> 32) }
func (c indexCell) entry() int32 { return int32(c) }

func (x *keyIndex) part(hash uint32) *indexPart { return &x[hash/(1<<32/indexParts)] }

// find returns the entry that has this hash and for which is returns true; 0 if there is none.
func (x *keyIndex) find(hash uint32, is func(entry int32) bool) (entry int32) {
	p := x.part(hash)
	if len(p.cells) == 0 {
		return 0
	}
	for at := p.home(hash); p.cells[at] != 0; at = p.next(at) {
		if c := p.cells[at]; c.hash() == hash && is(c.entry()) {
			return c.entry()
		}
	}
	return 0
}

// add adds an entry above 0 that is not there.
func (x *keyIndex) add(hash uint32, entry int32) {
	p := x.part(hash)
	if p.used++; p.used > len(p.cells)/4*3 {
		p.grow()
	}
	p.put(newIndexCell(hash, entry))
}

// remove removes an entry that is there. It panics if the entry is not there.
func (x *keyIndex) remove(hash uint32, entry int32) {
	p, c := x.part(hash), newIndexCell(hash, entry)
	if p.used == 0 {
		panic(absentEntry)
	}
	gap := p.home(hash)
	for ; p.cells[gap] != c; gap = p.next(gap) {
		if p.cells[gap] == 0 {
			panic(absentEntry)
		}
	}
	p.used--
	for at := p.next(gap); p.cells[at] != 0; at = p.next(at) {
		if p.distance(p.home(p.cells[at].hash()), at) >= p.distance(gap, at) { // it may also be in the gap
			p.cells[gap], gap = p.cells[at], at
		}
	}
	p.cells[gap] = 0
}

const absentEntry = "shaper: a key to forget is not in the index"

func (p *indexPart) grow() {
	old := p.cells
	p.cells = make([]indexCell, max(2*len(old), 8))
	for _, c := range old {
		if c != 0 {
			p.put(c)
		}
	}
}

// put puts a cell where it belongs.
func (p *indexPart) put(c indexCell) {
	at := p.home(c.hash())
	for p.cells[at] != 0 {
		at = p.next(at)
	}
	p.cells[at] = c
}

// home returns the cell that a hash says, next the one behind it, and distance how far a cell is behind another one.
func (p *indexPart) home(hash uint32) int      { return int(hash) & (len(p.cells) - 1) }
func (p *indexPart) next(at int) int           { return (at + 1) & (len(p.cells) - 1) }
func (p *indexPart) distance(from, to int) int { return (to - from) & (len(p.cells) - 1) }
