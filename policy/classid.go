package policy

import "hash/fnv"

// The numbers by which the kernel knows our qdiscs and classes.
const (
	// Major is the handle of each root qdisc that is ours, and so marks it.
	Major = 0x5ca0
	// UnmatchedMinor is the class of what no rule matches, on each device.
	UnmatchedMinor = 1

	firstMinor = 0x10
	lastMinor  = 0x7fff // the kernel takes 8000: and above for qdiscs that nobody has numbered

	maxKernelClasses = 16000 // each has two numbers
)

// Minors returns the minor number of each class that a device is shaped with, and
// under its name and a "/" that of what belongs to a class with children itself.
// They follow from where the class is in its tree, so that a class keeps its number
// while others come and go, and one that moves gets another: HTB moves none.
func (p *Policy) Minors() map[string]uint16 {
	minors, taken := map[string]uint16{}, map[uint16]bool{Major: true}
	paths := p.paths()
	number := func(name, path string) {
		if _, done := minors[name]; done || len(taken) > lastMinor-firstMinor {
			return
		}
		h := fnv.New32a()
		h.Write([]byte(path))
		minor := firstMinor + uint16(h.Sum32()%(lastMinor-firstMinor+1))
		for taken[minor] {
			if minor++; minor > lastMinor {
				minor = firstMinor
			}
		}
		taken[minor], minors[name] = true, minor
	}
	for _, t := range p.TC {
		for _, root := range t.roots() {
			for _, c := range p.Tree(root) {
				number(c.Name, paths[c.Name])
				number(c.Name+"/", paths[c.Name]+"/")
			}
		}
	}
	return minors
}

// Marks returns the mark of each class whose packets the proxy marks for a device:
// its class id, as the fw classifier takes it. It is empty where no section asks
// for marks.
func (p *Policy) Marks() map[string]uint32 {
	marks := map[string]uint32{}
	var minors map[string]uint16
	for _, t := range p.TC {
		if !t.Mark {
			continue
		}
		if minors == nil {
			minors = p.Minors()
		}
		tree := p.Tree(t.Class)
		parents := map[string]bool{}
		for _, c := range tree {
			parents[c.Parent] = true
		}
		for _, c := range tree {
			name := c.Name
			if parents[name] {
				name += "/"
			}
			marks[c.Name] = Major<<16 | uint32(minors[name])
		}
	}
	return marks
}
