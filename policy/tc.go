package policy

// TC is a section [tc.DEVICE]: the tree of classes that the kernel shapes a
// network device with.
type TC struct {
	Device string `json:"device"`
	// Class is the root of the tree that what leaves the device goes through.
	Class string `json:"class"`
	// Ingress is the root of the tree for what arrives; "" does not shape it.
	Ingress string `json:"ingress,omitempty"`
	// Apply has the daemon put it into the kernel, and keep it there.
	Apply bool `json:"apply"`
	// TakeOver allows to replace a root qdisc that somebody else has made.
	TakeOver bool `json:"take_over"`
	// Mark has the proxy mark what it sends with the class it belongs to.
	Mark bool `json:"mark"`
}

var tcFields = []field[TC]{
	require(one("class", classForm, func(t *TC) *string { return &t.Class }, anyText)),
	emptyAs("none", one("ingress", classForm, func(t *TC) *string { return &t.Ingress }, anyText)),
	yesNo("apply", func(t *TC) *bool { return &t.Apply }),
	yesNo("take_over", func(t *TC) *bool { return &t.TakeOver }),
	yesNo("mark", func(t *TC) *bool { return &t.Mark }),
}
