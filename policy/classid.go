package policy

import (
	"hash/fnv"
	"slices"
)

// The numbers of our qdiscs and classes in the kernel.
const (
	// Major is the handle of every root qdisc of ours. It tells them from those of others.
	Major = 0x5ca0
	// UnmatchedMinor is the class, on each device, of packets that no rule matches.
	UnmatchedMinor = 1

	firstMinor = 0x10
	lastMinor  = 0x7fff // the kernel gives 8000: and above to qdiscs without a number

	maxKernelClasses = 16000 // each takes two numbers
)

// The marks of packets for transparent listeners. None is the mark of a class.
const (
	// OwnMark is that of packets that the proxy sends, unless their class has one: nftables must not
	// lead them back to it.
	OwnMark = 0x5ca3<<16 | 1
	// InterceptedMark is that of packets of others, on their way to a transparent listener.
	InterceptedMark = 0x5ca3<<16 | 2
)

// Minors returns the minor number of each class that shapes a device. The key is the name of
// the class. The name and a "/" is the key of another number: that of the packets that
// belong to the class itself, and not to a child of it.
//
// A number follows from the path of its class in the tree. So a class keeps its number if
// others come and go, and a class that moves gets another one, since HTB cannot move it.
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

// Marks returns the mark of each class whose packets the proxy marks for a device. A mark is
// the id of the class in the kernel, as the fw classifier expects it. If there is a transparent
// listener, "" has OwnMark, for all other classes. The map is empty if nobody asks for marks.
func (p *Policy) Marks() map[string]uint32 {
	marks := map[string]uint32{}
	if slices.ContainsFunc(p.Listeners, func(l Listener) bool { return l.Mode == Transparent }) {
		marks[""] = OwnMark
	}
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
