package tc

import "shaper/policy"

// Shown is an object that the kernel has, with what it has counted.
type Shown struct {
	Type   Type     `json:"type"`
	Device string   `json:"device"`
	Kind   string   `json:"kind"`
	Handle string   `json:"handle"`
	Parent string   `json:"parent"`
	Pref   uint16   `json:"pref,omitzero"` // of a filter
	Class  string   `json:"class,omitempty"`
	Words  string   `json:"words,omitempty"` // what it was told, as tc(8) takes it
	Counts Counters `json:"counters,omitzero"`
}

// Show returns what is ours in the kernel for a section.
func (k *Kernel) Show(d Device, p *policy.Policy, section policy.TC) ([]Shown, error) {
	s, err := k.read(d)
	if err != nil {
		return nil, err
	}
	return s.show(d, p, section), nil
}

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

// classNames returns the names of classes by their class id. What belongs to a class
// with children itself has a "/" behind the name; "unmatched" is what no rule
// matches, and "note" what shaper has written down.
func classNames(p *policy.Policy) map[Handle]string {
	names := map[Handle]string{htbHandle + policy.UnmatchedMinor: "unmatched", noteHandle: "note"}
	for name, minor := range p.Minors() {
		names[htbHandle|Handle(minor)] = name
	}
	return names
}

// Count returns what the kernel has counted for each class of a section: of what
// leaves, and of what arrives. A class that both have is in both.
func (k *Kernel) Count(d Device, p *policy.Policy, section policy.TC) (leaving, arriving map[string]Counters, err error) {
	s, err := k.snap(d, false)
	if err != nil {
		return nil, nil, err
	}
	all := s.show(d, p, section)
	leaving, arriving = map[string]Counters{}, map[string]Counters{}
	for _, o := range all {
		if _, known := p.Class(o.Class); !known || o.Type == Filter {
			continue
		}
		if o.Device == d.Name {
			leaving[o.Class] = o.Counts
		} else {
			arriving[o.Class] = o.Counts
		}
	}
	return leaving, arriving, nil
}
