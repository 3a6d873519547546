package fleet

import "slices"

// items are what the items that wait next need, the first one first.
type items []int64

// first returns what the first item needs; 0 if there is none.
func (i items) first() int64 {
	if len(i) == 0 {
		return 0
	}
	return i[0]
}

// set makes these the next items, and reports whether they were so before.
func (i *items) set(next []int64, class *Class) (same bool) {
	same = len(next) == len(*i)
	if !same {
		*i = append((*i)[:0], next...)
	}
	most := class.largestCost()
	for at, n := range next {
		n = min(n, most)
		same = same && n == (*i)[at]
		(*i)[at] = n
	}
	return same
}

// leave forgets the first item, which has left, if another one is known.
func (i *items) leave(n int64) {
	if all := *i; len(all) > 1 && all[0] == n {
		*i = slices.Delete(all, 0, 1)
	}
}

// largest returns what the largest item needs.
func (i items) largest() (n int64) {
	for _, of := range i {
		n = max(n, of)
	}
	return n
}

// whole returns the sum of as many items as have room in so many units, and of the first in any case. Those that are
// not known are taken to be as large as the one before them, which is last if there is none.
func (i items) whole(units, last int64) (sum int64) {
	for n, of := range i {
		if n > 0 && sum+of > units {
			return sum
		}
		sum, last = sum+of, of
	}
	return max(sum+(units-sum)/last*last, min(units, last))
}

// ask returns about how many of so many units to ask for so that no item lies in two blocks, and how many are needed: what
// remains of the first block is mostly lost before the second one comes. The items are those for which no slots are in hand.
// last is that of whole.
func (i items) ask(units, last int64) (whole, need int64) {
	if need = i.first(); i.largest() > 1 {
		need = max(need, 2) // then the store counts each slot that begins within reach
	}
	return i.whole(units, max(last, 1)), max(need, 1)
}
