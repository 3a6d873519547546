package tctest

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// qdiscOf returns the qdisc of the class that a request is about.
func (d *device) qdiscOf(r Request) (*qdisc, error) {
	if major := r.Parent &^ minor; r.Parent != netlink.HANDLE_ROOT && major != 0 && major != r.Handle&^minor {
		return nil, unix.EINVAL
	}
	q := d.qdisc(r.Handle &^ minor)
	switch {
	case q == nil:
		return nil, unix.ENOENT
	case q.kind != "htb" && q.kind != "tbf":
		return nil, refuse(unix.EINVAL, "Qdisc is not classful")
	}
	return q, nil
}

// newClass is tc_ctl_tclass (net/sched/sch_api.c).
func (d *device) newClass(r Request) error {
	q, err := d.qdiscOf(r)
	if err != nil {
		return err
	}
	c, there := q.classes[r.Handle]
	switch {
	case !there && !r.has(unix.NLM_F_CREATE):
		return unix.ENOENT
	case there && r.has(unix.NLM_F_EXCL):
		return unix.EEXIST
	case q.kind != "htb":
		return unix.EOPNOTSUPP
	}
	parms, err := htbParms(r)
	if err != nil {
		return err
	}
	if !there {
		if c, err = d.addClass(q, r); err != nil {
			return err
		}
	}
	if d.isParent(c) { // htb keeps the old values
		parms.Quantum, parms.Prio = c.parms.Quantum, c.parms.Prio
	}
	c.parms, c.options = parms, r.options
	return nil
}

// htbParms reads the parameters of a class of htb from a request.
func htbParms(r Request) (p nl.TcHtbCopt, err error) {
	b := r.options[nl.TCA_HTB_PARMS]
	if len(b) < nl.SizeofTcHtbCopt {
		return p, unix.EINVAL
	}
	p = *nl.DeserializeTcHtbCopt(b)
	if p.Rate.Rate == 0 || p.Ceil.Rate == 0 {
		return p, unix.EINVAL
	}
	return p, nil
}

// addClass is htb_change_class (net/sched/sch_htb.c) for a new class. If the parent does
// not exist, the class is below the qdisc. The parent loses its queue.
func (d *device) addClass(q *qdisc, r Request) (*class, error) {
	c := &class{handle: r.Handle, parent: r.Parent}
	above, there := q.classes[r.Parent]
	if !there {
		c.parent = netlink.HANDLE_ROOT
	}
	const deepest = 8 // TC_HTB_MAXDEPTH
	depth := 1
	for p := above; p != nil; p = q.classes[p.parent] {
		depth++
	}
	if depth > deepest {
		return nil, refuse(unix.EINVAL, "HTB: tree is too deep")
	}
	if there {
		above.leaf = nil
	}
	q.classes[c.handle] = c
	return c, nil
}

// delClass is htb_delete.
func (d *device) delClass(r Request) error {
	q, err := d.qdiscOf(r)
	if err != nil {
		return err
	}
	c, there := q.classes[r.Handle]
	switch {
	case q.kind != "htb":
		return unix.EOPNOTSUPP
	case !there:
		return unix.ENOENT
	case d.isParent(c) || q.block.leadsTo(c.handle):
		return refuse(unix.EBUSY, "HTB class in use")
	}
	delete(q.classes, c.handle)
	return nil
}

// dumpClasses returns the messages of the classes of all qdiscs.
func (d *device) dumpClasses() (replies [][]byte) {
	for _, q := range d.qdiscs() {
		if q.kind == "tbf" {
			inner := uint32(0)
			if q.inner != nil {
				inner = q.inner.handle
			}
			replies = append(replies, message(nl.TcMsg{Ifindex: int32(d.Index), Handle: q.handle | 1, Parent: netlink.HANDLE_ROOT, Info: inner}, "tbf", nil, nil))
		}
		for _, c := range q.classes {
			options := attrs{}
			for number, value := range c.options {
				options[number] = value
			}
			options[nl.TCA_HTB_PARMS] = c.parms.Serialize()
			replies = append(replies, message(nl.TcMsg{Ifindex: int32(d.Index), Handle: c.handle, Parent: c.parent}, "htb", options.bytes(), &c.counted))
		}
	}
	return replies
}
