package tctest

import (
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// seat returns the place of the qdisc below a parent.
func (d *device) seat(parent uint32) (at **qdisc, err error) {
	switch parent {
	case netlink.HANDLE_ROOT:
		return &d.root, nil
	case netlink.HANDLE_INGRESS:
		return &d.ingress, nil
	}
	q := d.qdisc(parent &^ minor)
	if q == nil {
		return nil, refuse(unix.ENOENT, "Failed to find specified qdisc")
	}
	c, there := q.classes[parent]
	switch {
	case q.kind == "tbf": // it ignores the minor number
		return &q.inner, nil
	case !there:
		return nil, refuse(unix.ENOENT, "Specified class not found")
	}
	return &c.leaf, nil
}

// newQdisc is tc_modify_qdisc (net/sched/sch_api.c).
func (d *device) newQdisc(r Request) error {
	if r.Parent == 0 || r.Handle == 0 {
		return refuse(unix.EINVAL, "tctest: without its parent and its handle a qdisc is not modelled")
	}
	at, err := d.seat(r.Parent)
	if err != nil {
		return err
	}
	q := *at
	if q == nil || q.handle != r.Handle {
		return d.graft(r, at)
	}
	if r.has(unix.NLM_F_EXCL) {
		return refuse(unix.EEXIST, "Exclusivity flag on, cannot modify")
	}
	if err := r.checkKind(q.kind, "Specified qdisc kind does not match existing one"); err != nil {
		return err
	}
	if !r.hasOptions {
		return nil
	}
	if q.kind == "ingress" || q.kind == "clsact" {
		return refuse(unix.EINVAL, "Change operation not supported by specified qdisc")
	}
	return q.set(r)
}

// graft makes a qdisc and puts it at a place, where another one may be.
func (d *device) graft(r Request, at **qdisc) error {
	other := d.qdisc(r.Handle)
	switch {
	case *at != nil && !r.has(unix.NLM_F_REPLACE):
		return refuse(unix.EEXIST, "NLM_F_REPLACE needed to override")
	case r.Handle&minor != 0:
		return refuse(unix.EINVAL, "Invalid minor handle")
	case other != nil && r.has(unix.NLM_F_EXCL):
		return refuse(unix.EEXIST, "Exclusivity flag on, cannot override")
	case other != nil && other.kind != r.Kind:
		return refuse(unix.EINVAL, "Specified qdisc kind does not match existing one")
	case other != nil:
		return refuse(unix.EINVAL, "tctest: a qdisc in two places is not modelled")
	case !r.has(unix.NLM_F_CREATE):
		return refuse(unix.ENOENT, "Qdisc not found. To create specify NLM_F_CREATE flag")
	case d.kernel.Lacks[r.Kind] || !slices.Contains(qdiscKinds, r.Kind):
		return refuse(unix.ENOENT, "Specified qdisc kind is unknown")
	}
	if c := d.class(r.Parent); c != nil && d.isParent(c) {
		return refuse(unix.EINVAL, "HTB: a class with children has no queue")
	}
	q := &qdisc{handle: r.Handle, parent: r.Parent, kind: r.Kind}
	if err := q.set(r); err != nil {
		return err
	}
	if q.kind == "htb" {
		q.classes = map[uint32]*class{}
	}
	*at = q
	d.hadIngress = d.hadIngress || d.ingress != nil
	return nil
}

var qdiscKinds = []string{"htb", "tbf", "pfifo", "bfifo", "fq_codel", "sfq", "ingress", "clsact"}

// set sets the options of a qdisc, or returns an error if they are malformed.
func (q *qdisc) set(r Request) error {
	short := func(what []byte, want int) bool { return what != nil && len(what) < want }
	switch q.kind {
	case "htb":
		if !r.hasOptions || len(r.options[nl.TCA_HTB_INIT]) < nl.SizeofTcHtbGlob {
			return unix.EINVAL
		}
	case "tbf":
		if parms := r.options[nl.TCA_TBF_PARMS]; len(parms) < nl.SizeofTcTbfQopt {
			return unix.EINVAL
		} else if q.inner != nil && (q.inner.kind == "pfifo" || q.inner.kind == "bfifo") {
			q.inner.raw = native.AppendUint32(nil, nl.DeserializeTcTbfQopt(parms).Limit) // fifo_set_limit
		}
	case "fq_codel":
		if short(r.options[nl.TCA_FQ_CODEL_LIMIT], 4) {
			return unix.ERANGE
		}
	case "sfq":
		if r.hasOptions && len(r.raw) < 20 {
			return unix.EINVAL
		}
	case "pfifo", "bfifo":
		if r.hasOptions && len(r.raw) < 4 {
			return unix.EINVAL
		}
	}
	q.raw = r.raw
	return nil
}

// delQdisc is tc_get_qdisc (net/sched/sch_api.c), which deletes too.
func (d *device) delQdisc(r Request) error {
	at, err := d.seat(r.Parent)
	if err != nil {
		return err
	}
	q := *at
	hasDefault := at == &d.root || at == &d.ingress && d.hadIngress
	switch {
	case q == nil && hasDefault && r.Handle != 0:
		return refuse(unix.EINVAL, "Invalid handle")
	case q == nil && hasDefault && r.Kind != "":
		return refuse(unix.EINVAL, "Invalid qdisc name")
	case q == nil:
		return refuse(unix.ENOENT, "Cannot find specified qdisc on specified device")
	case r.Handle != 0 && q.handle != r.Handle:
		return refuse(unix.EINVAL, "Invalid handle")
	}
	if err := r.checkKind(q.kind, "Invalid qdisc name"); err != nil {
		return err
	}
	*at = nil
	return nil
}

// dumpQdiscs returns the messages of the qdiscs of a device, including the kernel's default
// ones.
func (d *device) dumpQdiscs() (replies [][]byte) {
	own := func(kind string, parent uint32) {
		replies = append(replies, message(nl.TcMsg{Ifindex: int32(d.Index), Parent: parent}, kind, nil, new(Counters)))
	}
	if d.root == nil {
		own("noqueue", netlink.HANDLE_ROOT)
	}
	for _, q := range d.qdiscs() {
		options := q.raw
		if options == nil && q.kind != "ingress" && q.kind != "clsact" {
			options = []byte{}
		}
		replies = append(replies, message(nl.TcMsg{Ifindex: int32(d.Index), Handle: q.handle, Parent: q.parent}, q.kind, options, &q.counted))
		if q.kind == "tbf" && q.inner == nil {
			own("bfifo", q.handle|1)
		}
	}
	return replies
}

// Count sets the counters of a qdisc or a class, which must exist.
func (k *Kernel) Count(device string, handle uint32, n Counters) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.named(device)
	if c := d.class(handle); c != nil {
		c.counted = n
		return
	}
	d.qdisc(handle).counted = n
}
