package tc

import "math/bits"

// A list of filters is tried one by one. Where it is long, runs of it that ask for
// the same byte of the packet are put into a table by that byte: of a run of 256
// addresses one is looked at. What is in different buckets cannot match the same
// packet, and in a bucket the order stays, so that the first match is the same.
const (
	longList = 256 // filters from which on tables are worth it
	longRun  = 64
)

// list returns the objects of a list of filters in a slot.
func list(device string, root Handle, s slot, all []entry) (objects []Object) {
	l := lister{device: device, root: root, pref: u32Pref(s), table: firstTable(s)}
	worth := max(longRun, 2*len(all)/tablesOfList+1) // there are only so many tables
	if len(all) <= longList {
		l.keys(0, 0, all)
		return l.objects
	}
	for len(all) > 0 {
		run, by := longestRun(all)
		if run < worth {
			run = min(plainRun(all, worth), u32Places)
			l.linked(1, hashByte{}, map[uint32][]entry{0: all[:run]})
		} else {
			l.linked(256, by, by.buckets(all[:run]))
		}
		all = all[run:]
	}
	return l.objects
}

// plainRun returns how many filters there are before the next long run.
func plainRun(all []entry, worth int) int {
	for n := worth; n < len(all); n += worth {
		if run, _ := longestRun(all[n:]); run >= worth {
			return n
		}
	}
	return len(all)
}

// lister makes a list.
type lister struct {
	device  string
	root    Handle
	pref    Pref
	table   uint32 // the next
	links   uint32
	objects []Object
}

func (l *lister) add(h Handle, p Params) {
	l.objects = append(l.objects, Object{Type: Filter, Device: l.device, Handle: h, Parent: l.root, Kind: "u32", Pref: l.pref, Params: p})
}

// keys puts filters into a bucket, in their order.
func (l *lister) keys(table, bucket uint32, all []entry) {
	for i, e := range all {
		l.add(u32Node(table, bucket, uint32(i+1)), u32Key{Selector: e.selector, Class: e.class})
	}
}

// linked makes a table with its filters, and then the link that has it looked at.
func (l *lister) linked(divisor uint32, by hashByte, buckets map[uint32][]entry) {
	table := l.table
	l.table++
	l.add(u32Node(table, 0, 0), u32Table{divisor})
	for bucket := range divisor {
		l.keys(table, bucket, buckets[bucket])
	}
	l.links++
	link := u32Key{Link: table, HashMask: by.mask, HashOffset: int16(by.offset)}
	link.Selector.add(0, 0, 0)
	l.add(u32Node(0, 0, l.links), link)
}

// hashByte is a byte of the packet: a word, and which byte of it.
type hashByte struct {
	offset int32
	mask   uint32
}

func (h hashByte) of(s *selector) (value uint32, ok bool) {
	for _, m := range s.all() {
		if m.Offset == h.offset && m.Mask&h.mask == h.mask {
			return m.Value & h.mask >> bits.TrailingZeros32(h.mask), true
		}
	}
	return 0, false
}

func (h hashByte) buckets(run []entry) map[uint32][]entry {
	m := map[uint32][]entry{}
	for _, e := range run {
		value, _ := h.of(&e.selector)
		m[value] = append(m[value], e)
	}
	return m
}

// longestRun returns how many filters from the first on ask for one byte of the
// packet, and that byte: of those with the longest run the one that tells them
// apart best, and that has room for all.
func longestRun(all []entry) (longest int, by hashByte) {
	fullest := 0
	for _, m := range all[0].selector.all() {
		for mask := uint32(0xff); mask != 0; mask <<= 8 {
			if m.Mask&mask != mask || isHeader(m.Offset, mask) {
				continue
			}
			h := hashByte{m.Offset, mask}
			run, full := h.run(all)
			if run > longest || run == longest && full < fullest {
				longest, fullest, by = run, full, h
			}
		}
	}
	return longest, by
}

// isHeader reports whether a byte stands before the addresses, and so has few
// values; 9 is where IPv4 has the protocol.
func isHeader(offset int32, mask uint32) bool {
	return offset < 8 || offset == 8 && mask == 0x00ff0000
}

// run returns how many filters ask for the byte, up to one whose bucket is full, and
// how many are in the fullest.
func (h hashByte) run(all []entry) (n, fullest int) {
	var count [256]int
	for i := range all {
		value, ok := h.of(&all[i].selector)
		if !ok || count[value] == u32Places {
			return n, fullest
		}
		count[value]++
		n, fullest = n+1, max(fullest, count[value])
	}
	return n, fullest
}
