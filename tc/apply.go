package tc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrForeign is the cause of an error if a device has qdiscs that others have made.
var ErrForeign = errors.New("it has a qdisc that shaper did not make")

// rounds is how often converge compares the kernel with a plan. Mostly the second
// comparison finds the two equal. More rounds are for changes that are possible only after
// another object has gone, and for others who change the same device, such as another
// shaper.
const rounds = 10

// Apply makes the kernel equal to a plan for a device, by the smallest change in
// place. It returns how many objects it has changed: 0 if the kernel was equal already.
// On an error it restores what there was of ours. If others have made a qdisc where the plan
// has one, Apply returns ErrForeign, unless takeOver allows it to replace that qdisc; nothing
// restores that.
func (k *Kernel) Apply(d Device, plan []Object, takeOver bool) (changes int, err error) {
	before, err := k.readFor(d, plan, takeOver)
	if err != nil {
		return 0, err
	}
	was := before.plan()
	if changes, err = k.converge(d, plan, before); err == nil || errors.Is(err, ErrNoDevice) {
		return changes, err
	}
	if _, undo := k.converge(d, was, nil); undo != nil {
		return changes, errors.Join(err, fmt.Errorf("the state before could not be restored: %w", undo))
	}
	return changes, err
}

// Clear deletes everything that any plan has put on a device, and returns how many
// objects it has deleted or reset. The plan, which may be nil, tells it which packet sizes
// we have set on links; it needs that only if the note of the sizes before is gone.
func (k *Kernel) Clear(d Device, plan []Object) (changes int, err error) {
	s, err := k.read(d)
	if err != nil {
		return 0, err
	}
	limited := s.resets(plan)
	if changes, err = k.converge(d, nil, s); err != nil {
		return changes, err
	}
	for _, o := range limited {
		if err := k.do(op{change, o}, s); err != nil {
			return changes, err
		}
		changes++
	}
	return changes, nil
}

// resets returns the changes that reset the packet sizes of links. It is for links that
// still have the sizes of a plan although somebody has deleted our root, and the note with
// it.
func (s *snapshot) resets(plan []Object) (all []Object) {
	for _, o := range plan {
		limit, ok := o.Params.(linkSizes)
		if ok && s.sizes[o.Device] == limit && !slices.ContainsFunc(s.ours, func(o Object) bool { return isNote(o) }) {
			o.Params = s.before(o.Device, limit)
			all = append(all, o)
		}
	}
	return all
}

// converge changes the kernel until it is equal to a plan. s is a fresh snapshot, or nil.
// If the kernel refuses a change, the reason may be what others have done meanwhile. So
// converge takes a new snapshot, and fails only if the kernel refuses the same change
// twice.
func (k *Kernel) converge(d Device, plan []Object, s *snapshot) (changes int, err error) {
	var ops []op
	var failed op
	for range rounds {
		if s == nil {
			if s, err = k.read(d); err != nil {
				return changes, err
			}
		}
		ops = diff(plan, s)
		if len(ops) == 0 {
			return changes, nil
		}
		for _, o := range ops {
			if err = k.do(o, s); err == nil {
				changes++
				continue
			}
			if o == failed && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: only the answer is lost
				return changes, err
			}
			failed = o
			break
		}
		s = nil
	}
	if err != nil {
		return changes, err
	}
	last := ops[len(ops)-1]
	return changes, &Error{Op: string(last.verb), Device: last.object.Device, Object: last.object.String(), Err: errRestless}
}

var errRestless = errors.New("it still differs from the plan after the change; something else is changing it at the same time")

// readFor takes a snapshot. It returns an error if a plan would replace what others have
// made. It looks twice, since what another shaper is making looks foreign until its ifb
// is there.
func (k *Kernel) readFor(d Device, plan []Object, takeOver bool) (s *snapshot, err error) {
	for range 2 {
		if s, err = k.read(d); err != nil {
			return nil, err
		}
		if err = s.refuse(plan, takeOver); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// refuse returns an error if a plan would replace what others have made.
func (s *snapshot) refuse(plan []Object, takeOver bool) error {
	if takeOver {
		return nil
	}
	for _, f := range s.foreign {
		for _, o := range plan {
			if o.Device == f.Device && o.Parent == f.Parent && o.Type == Qdisc {
				return &Error{Op: "add", Device: f.Device, Object: o.String(),
					Err: fmt.Errorf("%w: %s at %s; take_over = true replaces it, tc qdisc del dev %s %s deletes it", ErrForeign, f, f.Parent, f.Device, f.Parent)}
			}
		}
	}
	return nil
}

// do makes one change.
func (k *Kernel) do(o op, s *snapshot) error {
	var err error
	switch {
	case o.object.Type == Link:
		err = k.setLink(o)
	default:
		err = k.sendPatiently(o, s)
	}
	if o.verb == del && isGone(err) {
		err = nil
	}
	return refused(string(o.verb), o.object.Device, o.object.String(), err)
}

// sendPatiently sends a change. If the change deletes a u32 table that is still in use, it
// tries again for eight seconds: the kernel frees the links to a table only after a grace period
// of RCU, which takes some milliseconds, and seconds if other programs keep all processors busy.
func (k *Kernel) sendPatiently(o op, s *snapshot) error {
	_, isTable := o.object.Params.(u32Table)
	for wait := time.Millisecond; ; wait *= 2 {
		err := k.send(o, s)
		if !isTable || o.verb != del || !errors.Is(err, unix.EBUSY) || wait > 4*time.Second {
			return err
		}
		time.Sleep(wait)
	}
}

// flags are the netlink flags of a request, by verb.
var flags = map[verb]int{
	add:     unix.NLM_F_CREATE | unix.NLM_F_EXCL,
	replace: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
}

// protos are the message types that set and delete an object.
var protos = map[Type][2]int{
	Qdisc:  {unix.RTM_NEWQDISC, unix.RTM_DELQDISC},
	Class:  {unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS},
	Filter: {unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER},
}

// send sends one change of a qdisc, a class or a filter, and waits for the answer.
func (k *Kernel) send(o op, s *snapshot) error {
	t := o.object
	msg := &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(k.indexes[t.Device]), Handle: uint32(t.Handle), Parent: uint32(t.Parent)}
	proto := protos[t.Type][0]
	if o.verb == del {
		proto = protos[t.Type][1]
	}
	params := t.Params
	if t.Type == Filter {
		msg.Info = uint32(t.Pref.Priority)<<16 | uint32(nl.Swap16(t.Pref.Protocol))
		if table := s.tables[tableID{t.Device, t.Pref}]; t.Handle != 0 && t.Handle.table() == 0 && o.verb != add {
			msg.Handle = uint32(t.Handle.inTable(table))
		}
		if key, ok := params.(u32Key); ok && key.Redirect != "" {
			key.redirect = uint32(k.indexes[key.Redirect])
			params = key
		}
	}
	r := request(proto, unix.NLM_F_ACK|flags[o.verb], msg)
	r.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(t.Kind)))
	if o.verb != del {
		if options := params.options(); options != nil {
			r.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, append(options, bucketOf(t)...)))
		}
	}
	_, err := k.conn.Execute(r)
	return err
}

// bucketOf returns the attribute that places a u32 filter in a bucket of a table. It
// returns nil for a filter of the root table, and for other kinds.
func bucketOf(t Object) []byte {
	if _, ok := t.Params.(u32Key); !ok || t.Handle.table() == 0 {
		return nil
	}
	return attr32(nil, nl.TCA_U32_HASH, uint32(t.Handle)&^u32Places)
}

// setLink adds, changes or deletes a link.
func (k *Kernel) setLink(o op) error {
	name := o.object.Device
	link := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name, Index: k.indexes[name]}}
	switch {
	case o.verb == del:
		return k.conn.LinkDel(link)
	case o.verb == add:
		link.TxQLen = -1
		if err := k.conn.LinkAdd(link); err != nil {
			return err
		}
		if _, err := k.link(name); err != nil {
			return err
		}
		return k.conn.LinkSetUp(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name, Index: k.indexes[name]}})
	case o.object.Kind == "ifb":
		return k.conn.LinkSetUp(link)
	}
	sizes := o.object.Params.(linkSizes)
	if err := k.conn.LinkSetGSOMaxSize(link, int(sizes.GSO)); err != nil {
		return err
	}
	return k.conn.LinkSetGSOIPv4MaxSize(link, int(sizes.GSO4))
}
