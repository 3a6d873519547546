package tctest

import (
	"maps"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The parts of the handle of a u32 filter (include/uapi/linux/pkt_cls.h): the table, the
// bucket in the table, and the node in the bucket.
const (
	u32Table  = 0xfff00000
	u32Bucket = 0x000ff000
	u32Node   = 0x00000fff
	u32Root   = 0x80000000 // handle of the first root table
)

// addRoot adds the root table of a list, and returns its number.
func (b *block) addRoot(prio uint16) (number uint32) {
	if b.tables == nil {
		b.tables = map[uint32]*table{}
	}
	if len(b.tables) == 0 {
		b.next = u32Root
	}
	number, b.next = b.next, b.next+1<<20
	b.tables[number] = &table{prio: prio, divisor: 1, root: true, keys: map[uint32]attrs{}}
	return number
}

// lookUp returns the table and the filter of a handle; nil for what does not exist.
func (b *block) lookUp(handle uint32) (*table, attrs) {
	t := b.tables[handle&u32Table]
	if t == nil {
		return nil, nil
	}
	return t, t.keys[handle]
}

// setU32 is u32_change (net/sched/cls_u32.c).
func (d *device) setU32(b *block, l *list, r Request, there bool) error {
	if !r.hasOptions {
		return unix.EINVAL
	}
	if err := d.checkU32(b, r.options); err != nil {
		return err
	}
	_, key := b.lookUp(r.Handle)
	switch {
	case there && key == nil:
		return refuse(unix.EINVAL, "Key node id cannot be zero")
	case there: // the selector cannot change
		if link := key.u32(nl.TCA_U32_LINK); link != 0 && r.options.u32(nl.TCA_U32_LINK) != link {
			b.unlink(link, d.kernel.Grace)
		}
		sel := key[nl.TCA_U32_SEL]
		maps.Copy(key, r.options)
		key[nl.TCA_U32_SEL] = sel
		return nil
	case r.options[nl.TCA_U32_DIVISOR] != nil:
		return b.addTable(l, r)
	}
	in := r.options.u32(nl.TCA_U32_HASH) &^ u32Node
	if in&u32Table == 0 {
		in |= l.root
	}
	t := b.tables[in&u32Table]
	handle := in | r.Handle&u32Node
	switch {
	case t == nil:
		return refuse(unix.EINVAL, "Specified hash table not found")
	case t.divisor <= in&u32Bucket>>12:
		return refuse(unix.EINVAL, "Specified hash table buckets exceed configured value")
	case r.Handle&u32Table != 0 && r.Handle&u32Table != in&u32Table:
		return refuse(unix.EINVAL, "Handle specified hash table address mismatch")
	case len(r.options[nl.TCA_U32_SEL]) < nl.SizeofTcU32Sel:
		return refuse(unix.EINVAL, "Selector not specified")
	case r.Handle&u32Node == 0:
		return refuse(unix.EINVAL, "tctest: a filter without a number is not modelled")
	case t.keys[handle] != nil:
		return unix.ENOSPC
	}
	t.keys[handle] = r.options
	return nil
}

// checkU32 is u32_set_parms: what a filter leads to must exist, except its class.
func (d *device) checkU32(b *block, options attrs) error {
	if link := options.u32(nl.TCA_U32_LINK); link != 0 {
		switch t := b.tables[link&u32Table]; {
		case link&u32Node != 0:
			return refuse(unix.EINVAL, "u32 Link handle must be a hash table")
		case t == nil:
			return refuse(unix.EINVAL, "Link hash table not found")
		case t.root:
			return refuse(unix.EINVAL, "Not linking to root node")
		}
	}
	if options[nl.TCA_U32_ACT] == nil {
		return nil
	}
	if d.kernel.Lacks["mirred"] {
		return refuse(unix.ENOENT, "Failed to load TC action module")
	}
	if index, _ := redirect(options); d.kernel.devices[int(index)] == nil {
		return refuse(unix.ENODEV, "Failed to find device")
	}
	return nil
}

// addTable adds a table with the number in the request.
func (b *block) addTable(l *list, r Request) error {
	divisor := r.options.u32(nl.TCA_U32_DIVISOR)
	switch {
	case divisor == 0 || divisor > 256:
		return refuse(unix.EINVAL, "Exceeded maximum number of hash buckets")
	case r.Handle&u32Node != 0:
		return refuse(unix.EINVAL, "Divisor can only be used on a hash table")
	case r.Handle == 0:
		return refuse(unix.EINVAL, "tctest: a table without a number is not modelled")
	case b.tables[r.Handle] != nil:
		return unix.ENOSPC
	}
	b.tables[r.Handle] = &table{prio: l.prio, divisor: divisor, keys: map[uint32]attrs{}}
	return nil
}

// delU32 is u32_delete. The list goes when it is the only u32 list and no filter remains.
func (d *device) delU32(b *block, l *list, handle uint32) error {
	t, key := b.lookUp(handle)
	switch {
	case key != nil:
		delete(t.keys, handle)
		if link := key.u32(nl.TCA_U32_LINK); link != 0 {
			b.unlink(link, d.kernel.Grace)
		}
	case t.root:
		return refuse(unix.EINVAL, "Not allowed to delete root node")
	case b.isLinked(handle) || time.Now().Before(t.busy):
		return refuse(unix.EBUSY, "Can not delete in-use filter")
	default:
		delete(b.tables, handle)
	}
	for _, other := range b.lists {
		if other.kind == "u32" && other != l {
			return nil
		}
	}
	for _, t := range b.tables {
		if len(t.keys) > 0 {
			return nil
		}
	}
	b.dropList(l)
	return nil
}

// unlink notes that a link to a table is gone. The table stays in use for a grace period of
// RCU.
func (b *block) unlink(link uint32, grace time.Duration) {
	if t := b.tables[link]; t != nil && grace > 0 {
		t.busy = time.Now().Add(grace)
	}
}

// isLinked reports whether a filter leads to a table.
func (b *block) isLinked(number uint32) bool {
	for _, t := range b.tables {
		for _, key := range t.keys {
			if key.u32(nl.TCA_U32_LINK) == number {
				return true
			}
		}
	}
	return false
}

// walk calls put with the tables of a list and their filters. The tables of a list are
// those with its preference.
func (b *block) walk(l *list, put func(handle uint32, options []byte)) {
	if l.kind != "u32" {
		return
	}
	for number, t := range b.tables {
		if t.prio != l.prio {
			continue
		}
		put(number, attrs{nl.TCA_U32_DIVISOR: native.AppendUint32(nil, t.divisor)}.bytes())
		for handle, key := range t.keys {
			told := maps.Clone(key)
			told[nl.TCA_U32_HASH] = native.AppendUint32(nil, handle&^u32Node)
			put(handle, told.bytes())
		}
	}
}

// redirect returns the index of the device to which an action moves packets, and the bytes
// in the option that hold it (include/uapi/linux/tc_act/tc_mirred.h); nil if there is none.
func redirect(options attrs) (index uint32, at []byte) {
	const first, actOptions, mirredParms, ifindex = 1, 2, 2, 24
	action := options[nl.TCA_U32_ACT]
	for _, number := range []int{first, actOptions, mirredParms} {
		action = find(action, number)
	}
	if len(action) < ifindex+4 {
		return 0, nil
	}
	return native.Uint32(action[ifindex:]), action[ifindex:]
}

// find returns the value of an attribute, not copied.
func find(b []byte, number int) []byte {
	all, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil
	}
	for _, a := range all {
		if int(a.Attr.Type&nl.NLA_TYPE_MASK) == number {
			return a.Value
		}
	}
	return nil
}

// forget clears a device from the actions that move packets to it.
func (q *qdisc) forget(index uint32) {
	for _, options := range q.block.all() {
		if to, at := redirect(options); to == index && at != nil {
			native.PutUint32(at, 0)
		}
	}
}
