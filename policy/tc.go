package policy

// TC is a section [tc.DEVICE]: the tree of classes with which the kernel shapes a network
// device.
type TC struct {
	Device string `json:"device"`
	// Class is the root of the tree for packets that leave through the device.
	Class string `json:"class"`
	// Ingress is the root of the tree for packets that arrive; "" does not shape them.
	Ingress string `json:"ingress,omitempty"`
	// Apply makes the daemon put the tree into the kernel and keep it there.
	Apply bool `json:"apply"`
	// TakeOver allows shaper to replace a root qdisc that it did not create.
	TakeOver bool `json:"take_over"`
	// Mark makes the proxy mark its packets with their class.
	Mark bool `json:"mark"`
}

var tcFields = []field[TC]{
	require(one("class", classForm, func(t *TC) *string { return &t.Class }, anyText)),
	emptyAs("none", one("ingress", classForm, func(t *TC) *string { return &t.Ingress }, anyText)),
	yesNo("apply", func(t *TC) *bool { return &t.Apply }),
	yesNo("take_over", func(t *TC) *bool { return &t.TakeOver }),
	yesNo("mark", func(t *TC) *bool { return &t.Mark }),
}
