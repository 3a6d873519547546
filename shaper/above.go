package shaper

// standBeneath makes the buckets of the class stand beneath those of a parent. There are none yet.
func (k *keys) standBeneath(parent *keys) {
	k.above, k.conf.Weight = parent, k.class.conf.Weight
}

// top returns the keys of the topmost class of those that have the same.
func (k *keys) top() *keys {
	for k.above != nil {
		k = k.above
	}
	return k
}

// mayMove reports whether the buckets of a class come with it if it gets another parent; so they do if it has none.
func (k *keys) mayMove() bool { return k == nil || k.above == nil }
