package tc

import "math/bits"

// The kernel tries the filters of a list one by one. In a long list, runs of filters that
// test the same byte of the packet go into a hash table by that byte: then the kernel tries
// one of a run of 256 addresses. The first match stays the same, since filters in different
// buckets cannot match the same packet, and a bucket keeps the order.
const (
	longList = 256 // longer lists get tables
	longRun  = 64  // shorter runs get none
)

// u32List returns the objects of a list of filters in a slot.
func u32List(device string, root Handle, s slot, all []entry) (objects []Object) {
	l := lister{device: device, root: root, pref: u32Pref(s), table: firstTable(s)}
	minRun := max(longRun, 2*len(all)/tablesOfList+1) // so that there are enough tables
	if len(all) <= longList {
		l.keys(0, 0, all)
		return l.objects
	}
	for len(all) > 0 {
		run, by := longestRun(all)
		if run < minRun {
			run = min(plainRun(all, minRun), u32Places)
			l.linked(1, hashByte{}, map[uint32][]entry{0: all[:run]})
		} else {
			l.linked(256, by, by.buckets(all[:run]))
		}
		all = all[run:]
	}
	return l.objects
}

// plainRun returns how many filters there are before the next run of at least minRun.
func plainRun(all []entry, minRun int) int {
	for n := minRun; n < len(all); n += minRun {
		if run, _ := longestRun(all[n:]); run >= minRun {
			return n
		}
	}
	return len(all)
}

// lister makes the objects of a list.
type lister struct {
	device  string
	root    Handle
	pref    Pref
	table   uint32 // number of the next table
	links   uint32 // how many filters lead to tables
	objects []Object
}

func (l *lister) add(h Handle, p Params) {
	l.objects = append(l.objects, Object{Type: Filter, Device: l.device, Handle: h, Parent: l.root, Kind: "u32", Pref: l.pref, Params: p})
}

// keys adds filters to a bucket, in their order.
func (l *lister) keys(table, bucket uint32, all []entry) {
	for i, e := range all {
		l.add(u32Node(table, bucket, uint32(i+1)), u32Key{Selector: e.selector, Class: e.class})
	}
}

// linked adds a table with its filters, and then the filter that leads to it.
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

// hashByte is a byte of the packet: the offset of a word, and the mask of the byte in it.
type hashByte struct {
	offset int32
	mask   uint32
}

// of returns the value that a selector wants of the byte; ok is false if it does not test
// the whole byte.
func (h hashByte) of(s *selector) (value uint32, ok bool) {
	for _, m := range s.all() {
		if m.Offset == h.offset && m.Mask&h.mask == h.mask {
			return m.Value & h.mask >> bits.TrailingZeros32(h.mask), true
		}
	}
	return 0, false
}

// buckets returns the filters of a run by the value of the byte.
func (h hashByte) buckets(run []entry) map[uint32][]entry {
	m := map[uint32][]entry{}
	for _, e := range run {
		value, _ := h.of(&e.selector)
		m[value] = append(m[value], e)
	}
	return m
}

// longestRun returns the length of the longest run of filters, from the first on, that all
// test one byte, and that byte. Of several bytes with the longest run it takes the one with
// the smallest buckets.
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

// isHeader reports whether a byte comes before the addresses, and so has few values. At 9
// IPv4 has the protocol.
func isHeader(offset int32, mask uint32) bool {
	return offset < 8 || offset == 8 && mask == 0x00ff0000
}

// run returns how many filters in a row test the byte, up to one whose bucket is full, and
// the size of the fullest bucket.
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
