package exchange

// KeptMemory returns the memory of all messages that are kept.
func KeptMemory() int64 { return keptMemory.Load() }
