package shaper

import (
	"hash/maphash"

	"shaper/policy"
)

// visitors remembers which keys have been in the bucket that those share for which there is no room.
// It is a Bloom filter: it never forgets a key, but takes some for visitors that are none, 1 in 5,000
// after 10,000 visitors and 1 in 12 after 100,000. Its size is fixed, so that a flood of keys costs
// nothing more. The zero value has none. The lock of the tree guards visitors.
//
// Source: B. H. Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970.
type visitors struct {
	bits *[1 << visitorBits / 64]uint64 // 64 KiB; nil: there has never been a visitor
	none bool                           // no bit is set
	seed maphash.Seed                   // so that nobody can choose keys that look like one another
}

const (
	visitorBits   = 19
	visitorHashes = 3 // so many parts of one hash of 64 bits are indices of bits
)

// add adds a key.
func (v *visitors) add(key policy.Key) {
	if v.bits == nil {
		v.bits, v.seed = new([1 << visitorBits / 64]uint64), maphash.MakeSeed()
	}
	v.none = false
	h := maphash.Comparable(v.seed, key)
	for n := range visitorHashes {
		i := visitorBit(h, n)
		v.bits[i/64] |= 1 << (i % 64)
	}
}

// has reports whether a key may have been added since clear.
func (v *visitors) has(key policy.Key) bool {
	if v.bits == nil || v.none {
		return false
	}
	h := maphash.Comparable(v.seed, key)
	for n := range visitorHashes {
		if i := visitorBit(h, n); v.bits[i/64]&(1<<(i%64)) == 0 {
			return false
		}
	}
	return true
}

// visitorBit returns the nth bit of a key with a hash.
func visitorBit(h uint64, n int) uint64 { return h >> (n * visitorBits) & (1<<visitorBits - 1) }

// clear forgets all keys.
func (v *visitors) clear() {
	if v.bits != nil && !v.none {
		clear(v.bits[:])
		v.none = true
	}
}
