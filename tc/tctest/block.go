package tctest

import (
	"maps"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// block holds the filters of a qdisc. The kernel's mu guards it.
type block struct {
	lists  []*list // in the order of their preferences
	tables map[uint32]*table
	next   uint32 // number of the next root table of u32
}

// list holds the filters of one preference (struct tcf_proto).
type list struct {
	prio     uint16
	protocol uint16 // in the byte order of the wire
	kind     string
	root     uint32           // of u32: the number of its root table
	filters  map[uint32]attrs // of other kinds: options by handle
}

// table is a hash table of u32. All lists of a qdisc share the numbers.
type table struct {
	prio    uint16 // of its list
	divisor uint32
	root    bool
	keys    map[uint32]attrs // options by handle
	busy    time.Time        // until then it counts as in use
}

// all returns the options of all filters, including those of tables without a list.
func (b *block) all() (all []attrs) {
	for _, l := range b.lists {
		all = slices.AppendSeq(all, maps.Values(l.filters))
	}
	for _, t := range b.tables {
		all = slices.AppendSeq(all, maps.Values(t.keys))
	}
	return all
}

// classAttr is the attribute with the class of a filter, by kind.
var classAttr = map[string]int{"u32": nl.TCA_U32_CLASSID, "flower": nl.TCA_FLOWER_CLASSID}

// leadsTo reports whether a filter leads to a class.
func (b *block) leadsTo(handle uint32) bool {
	for _, l := range b.lists {
		for _, f := range l.filters {
			if number, known := classAttr[l.kind]; known && f.u32(number) == handle {
				return true
			}
		}
	}
	for _, t := range b.tables {
		for _, key := range t.keys {
			if key.u32(nl.TCA_U32_CLASSID) == handle {
				return true
			}
		}
	}
	return false
}

// find returns the list at the preference of a request, or nil. It fails if the list is for
// another protocol.
func (b *block) find(r Request) (*list, error) {
	prio, protocol := r.pref()
	for _, l := range b.lists {
		if l.prio == prio && l.protocol != protocol {
			return nil, refuse(unix.EINVAL, "Filter with specified priority/protocol not found")
		}
		if l.prio == prio {
			return l, nil
		}
	}
	return nil, nil
}

// dropList deletes a list. The tables of u32 stay until the last list of that kind goes.
func (b *block) dropList(l *list) {
	b.lists = slices.DeleteFunc(b.lists, func(other *list) bool { return other == l })
	delete(b.tables, l.root)
	if !slices.ContainsFunc(b.lists, func(l *list) bool { return l.kind == "u32" }) {
		clear(b.tables)
	}
}
