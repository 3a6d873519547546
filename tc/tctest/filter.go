package tctest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// parentOf returns the qdisc whose filters a request is about.
func (d *device) parentOf(r Request) (*qdisc, error) {
	q := d.qdisc(r.Parent &^ minor)
	if q == nil {
		return nil, refuse(unix.EINVAL, "Parent Qdisc doesn't exists")
	}
	switch q.kind {
	case "htb", "ingress", "fq_codel", "sfq":
		return q, nil
	case "clsact":
		return nil, refuse(unix.EINVAL, "tctest: filters of clsact are not modelled")
	case "tbf":
		return nil, refuse(unix.EOPNOTSUPP, "Class doesn't support blocks")
	}
	return nil, refuse(unix.EINVAL, "Qdisc not classful")
}

// newFilter is tc_new_tfilter (net/sched/cls_api.c).
func (d *device) newFilter(r Request) error {
	q, err := d.parentOf(r)
	if err != nil {
		return err
	}
	b := &q.block
	l, err := b.find(r)
	prio, protocol := r.pref()
	created := err == nil && l == nil
	switch {
	case err != nil:
		return err
	case created && (r.Kind == "" || protocol == 0 || prio == 0):
		return unix.EINVAL
	case created && !r.has(unix.NLM_F_CREATE):
		return refuse(unix.ENOENT, "Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter")
	case created && (d.kernel.Lacks[r.Kind] || !slices.Contains([]string{"u32", "flower", "bpf"}, r.Kind)):
		return refuse(unix.ENOENT, "TC classifier not found")
	case created:
		l = b.addList(prio, protocol, r.Kind)
	}
	if err := d.setFilter(b, l, r); err != nil {
		if created {
			b.dropList(l)
		}
		return err
	}
	return nil
}

// setFilter adds a filter to a list, or changes it.
func (d *device) setFilter(b *block, l *list, r Request) error {
	if err := r.checkKind(l.kind, "Specified filter kind does not match existing one"); err != nil {
		return err
	}
	there := b.has(l, r.Handle)
	switch {
	case !there && !r.has(unix.NLM_F_CREATE):
		return refuse(unix.ENOENT, "Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter")
	case there && r.has(unix.NLM_F_EXCL):
		return refuse(unix.EEXIST, "Filter already exists")
	}
	switch l.kind {
	case "u32":
		return d.setU32(b, l, r, there)
	case "flower":
		if short := r.options[nl.TCA_FLOWER_KEY_IPV6_SRC]; short != nil && len(short) < 16 {
			return unix.ERANGE
		}
	case "bpf":
		const opsLen, ops = 4, 5 // TCA_BPF_OPS_LEN, TCA_BPF_OPS
		if len(r.options[opsLen]) < 2 || len(r.options[ops]) != 8*int(native.Uint16(r.options[opsLen])) {
			return unix.EINVAL
		}
	}
	if !r.hasOptions || r.Handle == 0 {
		return unix.EINVAL
	}
	l.filters[r.Handle] = r.options
	return nil
}

// has reports whether a list has a filter, or a table.
func (b *block) has(l *list, handle uint32) bool {
	if l.kind == "u32" {
		t, key := b.lookUp(handle)
		return t != nil && (handle&u32Node == 0 || key != nil)
	}
	_, there := l.filters[handle]
	return there
}

// addList adds a list to a block.
func (b *block) addList(prio, protocol uint16, kind string) *list {
	l := &list{prio: prio, protocol: protocol, kind: kind, filters: map[uint32]attrs{}}
	if kind == "u32" {
		l.root = b.addRoot(prio)
	}
	b.lists = append(b.lists, l)
	slices.SortFunc(b.lists, func(a, b *list) int { return cmp.Compare(a.prio, b.prio) })
	return l
}

// delFilter is tc_del_tfilter. Handle 0 deletes the whole list, preference 0 all lists.
func (d *device) delFilter(r Request) error {
	q, err := d.parentOf(r)
	if err != nil {
		return err
	}
	b := &q.block
	if prio, _ := r.pref(); prio == 0 {
		q.block = block{}
		return nil
	}
	l, err := b.find(r)
	if err != nil || l == nil {
		return refuse(unix.ENOENT, "Filter with specified priority/protocol not found")
	}
	if err := r.checkKind(l.kind, "Specified filter kind does not match existing one"); err != nil {
		return err
	}
	switch {
	case r.Handle == 0:
		b.dropList(l)
		return nil
	case !b.has(l, r.Handle):
		return refuse(unix.ENOENT, "Specified filter handle not found")
	case l.kind == "u32":
		return d.delU32(b, l, r.Handle)
	}
	if delete(l.filters, r.Handle); len(l.filters) == 0 {
		b.dropList(l)
	}
	return nil
}

// dumpFilters returns the messages of the filters of a qdisc. Before the filters of each
// list comes a message for the list itself.
func (d *device) dumpFilters(parent uint32) (replies [][]byte) {
	q := d.qdisc(parent &^ minor)
	if q == nil {
		return nil
	}
	for _, l := range q.block.lists {
		put := func(handle uint32, options []byte) {
			msg := nl.TcMsg{Ifindex: int32(d.Index), Handle: handle, Parent: parent, Info: uint32(l.prio)<<16 | uint32(l.protocol)}
			replies = append(replies, message(msg, l.kind, options, nil))
		}
		put(0, nil)
		for handle, f := range l.filters {
			put(handle, f.bytes())
		}
		q.block.walk(l, put)
	}
	return replies
}

// Loose describes what leads nowhere: filters to classes, tables or devices that do not
// exist, and tables whose list is gone. The kernel accepts them all.
func (k *Kernel) Loose() (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		for _, q := range d.qdiscs() {
			for _, what := range k.loose(q) {
				all = append(all, fmt.Sprintf("%s: %x: %s", d.Name, q.handle, what))
			}
		}
	}
	return all
}

// loose describes what leads nowhere in a qdisc.
func (k *Kernel) loose(q *qdisc) (all []string) {
	b, prios := &q.block, map[uint16]bool{}
	for _, l := range b.lists {
		prios[l.prio] = true
		for handle, f := range l.filters {
			if class := f.u32(classAttr[l.kind]); class != 0 && q.classes[class] == nil {
				all = append(all, fmt.Sprintf("filter %x of %d leads to class %x", handle, l.prio, class))
			}
		}
	}
	for number, t := range b.tables {
		if !prios[t.prio] {
			all = append(all, fmt.Sprintf("table %x has no list %d", number, t.prio))
		}
		for handle, key := range t.keys {
			if class := key.u32(nl.TCA_U32_CLASSID); class != 0 && q.classes[class] == nil {
				all = append(all, fmt.Sprintf("filter %x leads to class %x", handle, class))
			}
			if link := key.u32(nl.TCA_U32_LINK); link != 0 && b.tables[link] == nil {
				all = append(all, fmt.Sprintf("filter %x leads to table %x", handle, link))
			}
			if to, at := redirect(key); at != nil && k.devices[int(to)] == nil {
				all = append(all, fmt.Sprintf("filter %x moves packets to device %d", handle, to))
			}
		}
	}
	return all
}
