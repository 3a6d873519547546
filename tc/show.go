package tc

import "shaper/policy"

// Shown is an object of ours in the kernel, with its counters.
type Shown struct {
	Type   Type     `json:"type"`
	Device string   `json:"device"`
	Kind   string   `json:"kind"`
	Handle string   `json:"handle"`
	Parent string   `json:"parent"`
	Pref   uint16   `json:"pref,omitzero"`   // of a filter
	Class  string   `json:"class,omitempty"` // in the policy: of a class, or where a filter leads
	Words  string   `json:"words,omitempty"` // its parameters, as tc(8) takes them
	Counts Counters `json:"counters,omitzero"`
}

// Show returns our objects in the kernel for a section.
func (k *Kernel) Show(d Device, p *policy.Policy, section policy.TC) ([]Shown, error) {
	s, err := k.read(d)
	if err != nil {
		return nil, err
	}
	return s.show(d, p, section), nil
}

// show returns the objects of a snapshot with the names of their classes.
func (s *snapshot) show(d Device, p *policy.Policy, section policy.TC) []Shown {
	names := classNames(p)
	all := []Shown{}
	for _, o := range s.ours {
		if o.Type == Link {
			continue
		}
		one := Shown{Type: o.Type, Device: o.Device, Kind: o.Kind, Handle: o.Handle.String(), Parent: o.within(), Pref: o.Pref.Priority,
			Words: o.Params.words(), Counts: s.counted[o.place()]}
		switch {
		case o.Type == Filter && o.Kind == "u32":
			one.Handle = u32Handle(o.Handle).String()
			class, _ := leadsTo(o.Params)
			one.Class = names[class]
		case o.Type == Filter:
			class, _ := leadsTo(o.Params)
			one.Class = names[class]
		case o.Handle == tbfHandle:
			if one.Class = section.Class; o.Device == d.mirror() {
				one.Class = section.Ingress
			}
		case o.Type == Class:
			one.Class = names[o.Handle]
		}
		all = append(all, one)
	}
	return all
}

// classNames returns the names of classes by their class id. The leaf for a class with
// children itself has the name of the class and "/". "unmatched" is the class of packets
// that match no rule, "note" the class that notes packet sizes.
func classNames(p *policy.Policy) map[Handle]string {
	names := map[Handle]string{htbHandle + policy.UnmatchedMinor: "unmatched", noteHandle: "note"}
	for name, minor := range p.Minors() {
		names[htbHandle|Handle(minor)] = name
	}
	return names
}

// Count returns the counters of each class of a section: for what leaves, and for what
// arrives. A class that shapes both is in both maps. A class without children has the drops
// of its queue.
func (k *Kernel) Count(d Device, p *policy.Policy, section policy.TC) (leaving, arriving map[string]Counters, err error) {
	s, err := k.snap(d, false)
	if err != nil {
		return nil, nil, err
	}
	all := s.show(d, p, section)
	dropped := droppedBelow(all)
	leaving, arriving = map[string]Counters{}, map[string]Counters{}
	for _, o := range all {
		if _, known := p.Class(o.Class); !known || o.Type == Filter {
			continue
		}
		if n, isLeaf := dropped[at{o.Device, o.Handle}]; isLeaf {
			o.Counts.Dropped = n
		}
		if o.Device == d.Name {
			leaving[o.Class] = o.Counts
		} else {
			arriving[o.Class] = o.Counts
		}
	}
	return leaving, arriving, nil
}

// at is where a qdisc may be: below a handle, as text.
type at struct{ device, handle string }

// droppedBelow returns what each queue has dropped, by the class that it is below. HTB's own
// count of a class has only the packets that the queue refuses at once. fq_codel and sfq
// accept one and drop another, and CoDel drops when packets leave.
func droppedBelow(all []Shown) map[at]uint64 {
	below := map[at]uint64{}
	for _, o := range all {
		if o.Type == Qdisc {
			below[at{o.Device, o.Parent}] = o.Counts.Dropped
		}
	}
	return below
}
