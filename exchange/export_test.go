package exchange

import "shaper/policy"

// KeptMemory returns the memory of all messages that are kept.
func KeptMemory() int64 { return keptMemory.Load() }

// Charges returns how many requests are charged for whose answers have not ended.
func (x *Exchange) Charges() int {
	if x.requests.accounts.book == nil {
		return 0
	}
	return len(x.requests.accounts.book.charges)
}

// InputMemory returns what the buffers take in which bytes wait that were read.
func (x *Exchange) InputMemory() (n int64) {
	for _, l := range [...]*lane{&x.up, &x.down} {
		if b := l.in.buf; b != nil {
			n += int64(len(b.Bytes))
		}
	}
	return n
}

// More returns how much more a request costs than it was charged, if its answer says units.
func More(units int64, cost *policy.Cost, charged int64) int64 {
	return (&settlement{units: units, said: true}).more(cost, charged)
}
