package simulate

import (
	"shaper/policy"
	"shaper/shaper"
)

// A class is a class of the policy, and counts for the report what it and all beneath it do.
type class struct {
	*shaper.Class
	conf   policy.Class
	parent *class // nil: none
	tree   *tree
	tally
}

// newClass returns a class that has done nothing yet.
func newClass(conf policy.Class) *class {
	return &class{conf: conf, tally: tally{kind: conf.Rate.Kind()}}
}

// A tree is a tree of classes. Its event is the next departure.
type tree struct {
	event
	root *shaper.Class
}

// release lets an item of a tree go if its time has come.
func (r *run) release(t *tree) error {
	if it := t.root.Release(r.now); it != nil {
		it.Owner.Leave(r.now)
	}
	r.expect(t)
	return r.err
}

// expect sets the event of a tree to its next departure.
func (r *run) expect(t *tree) {
	at := t.root.Next(r.now)
	if at.Before(r.now) {
		at = r.now
	}
	r.agenda.set(&t.event, at)
}
