package simulate

import (
	"shaper/policy"
	"shaper/shaper"
)

// A class is one of the policy, with what is counted for the report: of itself
// and of all beneath it.
type class struct {
	*shaper.Class
	conf   policy.Class
	parent *class // nil: none
	tree   *tree
	tally
}

// A tree lets items go; its event is the next departure.
type tree struct {
	event
	root *shaper.Class
}

// release lets the item of a tree go whose time has come.
func (r *run) release(t *tree) error {
	if it := t.root.Release(r.now); it != nil {
		it.Owner.Leave(r.now)
	}
	r.expect(t)
	return r.err
}

// expect looks when the next item of a tree leaves.
func (r *run) expect(t *tree) {
	at := t.root.Next(r.now)
	if at.Before(r.now) {
		at = r.now
	}
	r.agenda.set(&t.event, at)
}
