package exchange

// KeptMemory returns the memory of all messages that are kept.
func KeptMemory() int64 { return keptMemory.Load() }

// Charges returns how many requests are charged for whose answers have not ended.
func (x *Exchange) Charges() int {
	if x.accounts.book == nil {
		return 0
	}
	return len(x.accounts.book.charges)
}
