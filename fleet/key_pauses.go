package fleet

import (
	"cmp"
	"maps"
	"slices"
)

// keyPauses are the keys of which the provider wants nothing, as a store in memory knows them. All times are of the store's
// clock, in microseconds. The zero keyPauses is empty.
type keyPauses struct {
	until map[string]int64 // when the pause of each key ends, also of some that are over
	many  int64            // how many pauses there have been; the last one has this number
	named [64]string       // the keys of the last pauses, by their numbers modulo 64
}

// maxPaused bounds how many keys pause at once.
const maxPaused = 1024

// add makes a key pause until a time. It forgets the pauses that are over, and those that end first if there are too many.
func (p *keyPauses) add(now int64, key string, until int64) {
	if p.until == nil {
		p.until = map[string]int64{}
	}
	p.until[key] = max(p.until[key], until)
	keys := slices.SortedFunc(maps.Keys(p.until), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.until[a], p.until[b]), cmp.Compare(a, b))
	})
	for i, k := range keys {
		if p.until[k] <= now || len(keys)-i > maxPaused {
			delete(p.until, k)
		}
	}
	p.many++
	p.named[p.many%int64(len(p.named))] = key
}

// of returns until when a key pauses; 0 if it does not.
func (p *keyPauses) of(now int64, key string) int64 {
	if till := p.until[key]; till > now {
		return till
	}
	return 0
}

// next returns the number and the key of the first pause after number heard whose key is still named. heard may be a number
// of another store; then next begins with the oldest. There has to be a later pause: heard must not be many.
func (p *keyPauses) next(heard int64) (number int64, key string) {
	if heard > p.many {
		heard = 0
	}
	heard = max(heard, p.many-int64(len(p.named))) + 1
	return heard, p.named[heard%int64(len(p.named))]
}

// setBack keeps the ends of the pauses as far away as they were, since the store's clock has been set back by so much.
func (p *keyPauses) setBack(by int64) {
	for key := range p.until {
		p.until[key] -= by
	}
}
