package shaper

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// An index has what a map would have, also of keys whose hashes are equal or next to one another.
func TestKeyIndexIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x keyIndex
		hashes := map[int32]uint32{} // of the entries in x
		near := rapid.SampledFrom([]uint32{0, 1<<31 - 8, 1<<32 - 8}).Draw(t, "near")
		for n := range rapid.IntRange(1, 200).Draw(t, "steps") {
			hash, entry := near+rapid.Uint32Range(0, 15).Draw(t, "hash"), int32(n+1)
			if old := rapid.Int32Range(1, entry).Draw(t, "entry"); hashes[old] != 0 && rapid.Bool().Draw(t, "remove") {
				x.remove(hashes[old], old)
				delete(hashes, old)
			} else {
				x.add(hash, entry)
				hashes[entry] = hash
			}
			for entry := range int32(n + 2) {
				hash, has := hashes[entry]
				if got := x.find(hash, func(other int32) bool { return other == entry }); got != entry && has || got != 0 && !has {
					t.Fatalf("entry %d with hash %d: found %d", entry, hash, got)
				}
			}
		}
	})
}

// Whatever comes and goes, an index stays as large as its entries need at most at once.
func TestKeyIndexStaysSmall(t *testing.T) {
	var x keyIndex
	const most = 10_000
	hashes := [most]uint32{}
	for n := range 50 * most {
		i := n % most
		if n >= most {
			x.remove(hashes[i], int32(i+1))
		}
		hashes[i] = rand.Uint32()
		x.add(hashes[i], int32(i+1))
	}
	cells := 0
	for i := range x {
		cells += len(x[i].cells)
	}
	if cells > 8*most/3*11/10 {
		t.Errorf("%d cells for %d entries", cells, most)
	}
}

// To remove an entry that is not there is an error of the program. It ends, and does not go on for ever with the lock held.
func TestRemoveAnAbsentEntry(t *testing.T) {
	for _, entries := range []int32{0, 1, 5} {
		var x keyIndex
		for i := range entries {
			x.add(3, i+1)
		}
		func() {
			defer func() {
				if recover() != absentEntry {
					t.Errorf("an index of %d entries removes another one", entries)
				}
			}()
			x.remove(3, 10)
		}()
	}
}
