package tc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"shaper/tc/tctest"
)

// If the kernel refuses any step, the state before is restored.
func TestApplyUndoes(t *testing.T) {
	edits := []string{"[class.otp]\nparent = \"acme\"", "[class.otp]\nparent = \"uplink\"", "rate = \"2mbit\"", "rate = \"3mbit\""}
	for _, c := range []struct {
		name       string
		was        []Object
		every, few int
	}{
		{"both ways", bothWays(t), 7, 100},
		{"tables", treePlan(t, "[tc.eth0]", manyRules(longList)+"[tc.eth0]"), 23, 100},
	} {
		class := find(t, c.was, "class htb 5ca0:61c2")
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := treePlan(t, append(edits, "[tc.eth0]", manyRules(longList+1)+"[tc.eth0]")...)
				for step := 1; ; step += c.every {
					r := newRig(t)
					r.mustApply(c.was)
					r.spoilClass(class, func(p *nl.TcHtbCopt) { p.Rate.Overhead, p.Ceil.Mpu, p.Ceil.Linklayer = 9, 64, nl.LINKLAYER_ATM })
					was := r.state()
					refusals := r.refuseTwice(step)
					_, err := r.Apply(r.eth0, next, false)
					r.fake.Between = nil
					if *refusals == 0 {
						if step < c.few || err != nil {
							t.Errorf("after %d steps: %v", step, err)
						}
						return
					}
					if err == nil { // another way was possible
						r.holds(next)
						continue
					}
					if !errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), "restored") {
						t.Fatalf("step %d: %v", step, err)
					}
					r.holdsState(was)
				}
			})
		})
	}
}

// refuseTwice refuses the change with a number, and refuses it again at the second attempt.
func (r *rig) refuseTwice(step int) (refusals *int) {
	refusals = new(int)
	var refused tctest.Request
	n := 0
	is := func(q tctest.Request) bool {
		return q.Type == refused.Type && q.Device == refused.Device && q.Handle == refused.Handle && q.Parent == refused.Parent
	}
	r.fake.Between = func(q tctest.Request, do func() error) error {
		if !q.IsChange() {
			return do()
		}
		if n++; n == step || *refusals == 1 && is(q) {
			refused = q
			*refusals++
			return unix.EPERM
		}
		return do()
	}
	return refusals
}

// If the state before cannot be restored, the error says so.
func TestUndoFails(t *testing.T) {
	r := newRig(t)
	r.mustApply(treePlan(t))
	r.killAfter(2)
	_, err := r.Apply(r.eth0, nil, false)
	if !errors.Is(err, errKilled) || !strings.Contains(fmt.Sprint(err), "the state before could not be restored: tc: ") {
		t.Errorf("%v", err)
	}
}

// A foreign qdisc is an error, which says how to replace it. Nothing changes then.
func TestApplyRefusesForeign(t *testing.T) {
	clsact := Object{Type: Qdisc, Device: "eth0", Handle: ingressHandle, Parent: ingressParent, Kind: "clsact", Params: noParams{}}
	ingress := clsact
	ingress.Kind = "ingress"
	for _, c := range []struct {
		foreign Object
		want    string
	}{
		{theirs("eth0"), "tc: add qdisc htb 5ca0: on eth0: it has a qdisc that shaper did not make: qdisc pfifo 9: at root; take_over = true replaces it, tc qdisc del dev eth0 root deletes it"},
		{clsact, "tc: add qdisc ingress ffff: on eth0: it has a qdisc that shaper did not make: qdisc clsact ffff: at ingress; take_over = true replaces it, tc qdisc del dev eth0 ingress deletes it"},
		{ingress, "tc: add qdisc ingress ffff: on eth0: it has a qdisc that shaper did not make: qdisc ingress ffff: at ingress; take_over = true replaces it, tc qdisc del dev eth0 ingress deletes it"},
	} {
		plan := bothWays(t)
		r := newRig(t)
		r.must(add, c.foreign)
		changes, err := r.Apply(r.eth0, plan, false)
		if _, previewed := r.Preview(r.eth0, plan, false); changes != 0 || !errors.Is(err, ErrForeign) || err.Error() != c.want || previewed.Error() != c.want {
			t.Errorf("%d changes, error %v, preview %v", changes, err, previewed)
		}
		if len(r.state()) > 0 {
			t.Errorf("the kernel has %v", r.state())
		}
		if r.mustClear() != 0 {
			t.Error("Clear deletes a foreign qdisc")
		}
		if _, err := r.Apply(r.eth0, plan, true); err != nil {
			t.Fatal(err)
		}
		r.holds(plan)
		r.mustClear()
		r.holdsClear()
	}
}

// A foreign tree with the handle of ours is not ours.
func TestHandleOfOursIsNotEnough(t *testing.T) {
	r := newRig(t)
	r.must(add, Object{Type: Qdisc, Device: "eth0", Handle: htbHandle, Parent: rootParent, Kind: "htb", Params: htbQdisc{Default: 7}})
	if _, err := r.Apply(r.eth0, treePlan(t), false); !errors.Is(err, ErrForeign) {
		t.Errorf("%v", err)
	}
}

// The kernel accepts a class with the handle of the qdisc. Classes made below the qdisc are
// then below that class. It is deleted like any other surplus class; if that fails, it is
// restored.
func TestClassWithTheNumberOfTheQdisc(t *testing.T) {
	plan := treePlan(t)
	odd, beneath := find(t, plan, "class htb 5ca0:4365"), find(t, plan, "class htb 5ca0:61c2")
	odd.Handle = htbHandle
	beneath.Handle, beneath.Parent = htbHandle|0xabc, htbHandle
	below := slices.Clone(plan) // as older versions made it: with the qdisc as the parent of top classes
	for i, o := range below {
		if o.Type == Class && o.Parent == rootParent {
			below[i].Parent = htbHandle
		}
	}
	for step := 1; ; step++ {
		r := newRig(t)
		r.must(add, plan[0])
		r.must(add, odd)
		r.must(add, beneath)
		r.mustApply(append([]Object{plan[0], odd, beneath}, below[1:]...))
		was := r.state()
		refusals := r.refuseTwice(step)
		_, err := r.Apply(r.eth0, plan, false)
		r.fake.Between = nil
		if *refusals > 0 && err != nil {
			r.holdsState(was)
		}
		r.mustApply(plan)
		r.holds(plan)
		r.mustClear()
		r.holdsClear()
		if *refusals == 0 {
			if step < 10 || err != nil {
				t.Errorf("after %d steps: %v", step, err)
			}
			return
		}
	}
}

// Filters of others beside ours at ingress stay, and so does their qdisc.
func TestSharedIngressStays(t *testing.T) {
	r := newRig(t)
	r.mustApply(bothWays(t))
	key := u32Key{}
	key.Selector.add(0, 0, 0)
	r.must(add, Object{Type: Filter, Device: "eth0", Handle: u32Node(0, 0, 1), Parent: ingressHandle, Kind: "u32", Pref: Pref{7, unix.ETH_P_IP}, Params: key})
	r.mustClear()
	remaining, err := r.dump(Filter, "eth0", ingressHandle)
	if err != nil || len(remaining) == 0 || slices.ContainsFunc(remaining, func(m message) bool { return m.pref() != Pref{7, unix.ETH_P_IP} }) {
		t.Errorf("%v, %v", remaining, err)
	}
}

// Whatever others change of our objects, Apply notices it and corrects it by one change.
func TestOthersChangesArePutRight(t *testing.T) {
	plan := bothWays(t)
	class, root := find(t, plan, "class htb 5ca0:61c2"), plan[0]
	tbf := planOf(t, "token", func(s string) string { return s })
	for name, c := range map[string]struct {
		plan  []Object
		spoil func(r *rig)
	}{
		"rate":       {plan, func(r *rig) { r.spoilClass(class, func(p *nl.TcHtbCopt) { p.Rate.Rate++ }) }},
		"overhead":   {plan, func(r *rig) { r.spoilClass(class, func(p *nl.TcHtbCopt) { p.Rate.Overhead = 100 }) }},
		"least size": {plan, func(r *rig) { r.spoilClass(class, func(p *nl.TcHtbCopt) { p.Ceil.Mpu = 1000 }) }},
		"link layer": {plan, func(r *rig) { r.spoilClass(class, func(p *nl.TcHtbCopt) { p.Rate.Linklayer = nl.LINKLAYER_ATM }) }},
		"peak rate":  {tbf, func(r *rig) { r.spoilTBF(tbf[0], func(q *nl.TcTbfQopt) { q.Peakrate.Rate = 1e6 }) }},
		"tbf overhead": {tbf, func(r *rig) {
			r.spoilTBF(tbf[0], func(q *nl.TcTbfQopt) { q.Rate.Overhead = 9 })
		}},
		"queue":    {plan, func(r *rig) { r.must(del, find(t, plan, "qdisc pfifo 61c2:")) }},
		"redirect": {plan, func(r *rig) { r.must(del, plan[len(plan)-1]) }},
		"ifb down": {plan, func(r *rig) {
			l, _ := r.link(r.mirror())
			if err := r.fake.LinkSetDown(l); err != nil {
				t.Fatal(err)
			}
		}},
		"sizes": {plan, func(r *rig) {
			l, _ := r.link("eth0")
			if err := r.conn.LinkSetGSOMaxSize(l, 9000); err != nil {
				t.Fatal(err)
			}
		}},
		"root": {plan, func(r *rig) { r.must(del, root) }},
		"ifb":  {plan, func(r *rig) { r.fake.Unplug(r.mirror()) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.t = t
			r.mustApply(c.plan)
			c.spoil(r)
			lacks := r.lacks(c.plan)
			if changes := r.mustApply(c.plan); changes != len(lacks) || len(lacks) == 0 || name != "root" && name != "ifb" && changes != 1 {
				t.Errorf("%d changes: %v", changes, lacks)
			}
			r.holds(c.plan)
			c.spoil(r)
			r.mustClear()
			if name != "root" { // with the root, the note of the sizes is gone
				r.holdsClear()
			}
		})
	}
}

// spoilClass sets parameters of a class that shaper never sets.
func (r *rig) spoilClass(o Object, spoil func(*nl.TcHtbCopt)) {
	r.t.Helper()
	b := parseAttrs(o.Params.options())[nl.TCA_HTB_PARMS]
	spoil(nl.DeserializeTcHtbCopt(b))
	o.Params = opaque{string(attr(nil, nl.TCA_HTB_PARMS, b))}
	r.must(change, o)
}

func (r *rig) spoilTBF(o Object, spoil func(*nl.TcTbfQopt)) {
	r.t.Helper()
	b := parseAttrs(o.Params.options())[nl.TCA_TBF_PARMS]
	spoil(nl.DeserializeTcTbfQopt(b))
	o.Params = opaque{string(attr(nil, nl.TCA_TBF_PARMS, b))}
	r.must(change, o)
}

// Apply succeeds although somebody deletes the root at any moment.
func TestOthersDeleteTheRootMeanwhile(t *testing.T) {
	plan := bothWays(t)
	synctest.Test(t, func(t *testing.T) {
		for step := 1; ; step++ {
			r := newRig(t)
			other, reached := r.other(), false
			r.watch(func(n int, q tctest.Request) error {
				if n == step && !reached {
					reached = true
					if slices.Contains(r.roots("eth0"), "htb 5ca0:") {
						other.must(del, plan[slices.IndexFunc(plan, func(o Object) bool { return o.Device == "eth0" && o.Parent == rootParent })])
					}
				}
				return nil
			})
			r.mustApply(plan)
			r.fake.Between = nil
			if r.holds(plan); !reached {
				return
			}
		}
	})
}

// Another shaper that applies the same policy at the same time does no harm.
func TestTwoShapersAtOnce(t *testing.T) {
	plan := bothWays(t)
	synctest.Test(t, func(t *testing.T) {
		for step := 1; ; step++ {
			r := newRig(t)
			other, reached := r.other(), false
			r.watch(func(n int, q tctest.Request) error {
				if n == step && !reached {
					reached = true
					other.mustApply(plan)
				}
				return nil
			})
			r.mustApply(plan)
			r.fake.Between = nil
			r.holds(plan)
			r.mustClear()
			if r.holdsClear(); !reached {
				return
			}
		}
	})
}

// If somebody undoes each change at once, Apply fails, and does not loop forever.
func TestRestless(t *testing.T) {
	plan := treePlan(t)
	class := find(t, plan, "class htb 5ca0:61c2")
	r := newRig(t)
	r.mustApply(plan)
	other := class
	params := class.Params.(htbClass)
	params.Rate++
	other.Params = params
	them := r.other()
	them.must(change, other)
	n, busy := 0, false
	r.watch(func(int, tctest.Request) error {
		if busy {
			return nil
		}
		n++
		busy = true
		them.must(change, other)
		busy = false
		return nil
	})
	_, err := r.Apply(r.eth0, plan, false)
	if !errors.Is(err, errRestless) || !strings.HasPrefix(err.Error(), "tc: change class htb 5ca0:61c2 on eth0: it still differs from the plan after the change; something else is changing it at the same time") {
		t.Errorf("%v", err)
	}
	if n > 2*rounds {
		t.Errorf("%d changes", n)
	}
}

// A u32 table stays in use for some time after the last link to it is gone. Apply waits for
// that, but not forever.
func TestTablesAreWaitedFor(t *testing.T) {
	long := treePlan(t, "[tc.eth0]", manyRules(longList+1)+"[tc.eth0]")
	for grace, ok := range map[time.Duration]bool{0: true, 5 * time.Millisecond: true, time.Second: true, 4 * time.Second: true, time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.mustApply(long)
			r.fake.Grace = grace
			began := time.Now()
			_, err := r.Apply(r.eth0, treePlan(t), false)
			took := time.Since(began)
			if ok && (err != nil || took < grace || took > 2*grace+time.Millisecond) {
				t.Errorf("%v: after %v: %v", grace, took, err)
			}
			if !ok && (!errors.Is(err, unix.EBUSY) || took > 20*time.Second) {
				t.Errorf("%v: after %v: %v", grace, took, err)
			}
		})
	}
}

// If an answer is lost, the kernel may have made the change or not. Apply finds out.
func TestLostAnswers(t *testing.T) {
	plan := bothWays(t)
	for every := 3; every < 40; every++ {
		r := newRig(t)
		n := 0
		r.fake.Between = func(q tctest.Request, do func() error) error {
			err := do()
			if n++; n%every == 0 && q.Type != unix.RTM_GETLINK && q.Type < unix.RTM_GETTFILTER && q.Handle != 0 {
				return unix.ENOBUFS
			}
			return err
		}
		_, err := r.Apply(r.eth0, plan, false)
		r.fake.Between = nil
		if err == nil {
			r.holds(plan)
		} else if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, errRestless) {
			t.Fatalf("every %d: %v", every, err)
		} else if every > 10 {
			t.Errorf("every %d: %v", every, err)
		}
	}
}

// An interrupted dump is read again, ten times at most.
func TestInterruptedDumps(t *testing.T) {
	for failures, want := range map[int]error{0: nil, 1: nil, 9: nil, 10: nl.ErrDumpInterrupted} {
		for _, cause := range []error{nl.ErrDumpInterrupted, unix.ENOBUFS} {
			r := newRig(t)
			remaining := failures
			r.fake.Between = func(q tctest.Request, do func() error) error {
				if q.Type == unix.RTM_GETQDISC && remaining > 0 {
					remaining--
					return cause
				}
				return do()
			}
			_, err := r.Apply(r.eth0, nil, false)
			if (want == nil) != (err == nil) || want != nil && !errors.Is(err, cause) {
				t.Errorf("%d failures: %v", failures, err)
			}
		}
	}
}

// If a read fails, Apply fails and changes nothing.
func TestReadFails(t *testing.T) {
	plan := bothWays(t)
	for typ, want := range map[uint16]string{
		unix.RTM_GETLINK:    "tc: read link on ",
		unix.RTM_GETQDISC:   "tc: read qdisc on ",
		unix.RTM_GETTCLASS:  "tc: read class on ",
		unix.RTM_GETTFILTER: "tc: read filter on ",
	} {
		r := newRig(t)
		r.mustApply(plan)
		p, s := section(t, treeText(t))
		r.fake.Between = func(q tctest.Request, do func() error) error {
			if q.IsChange() {
				t.Errorf("a change is requested: %v", q)
			}
			if q.Type == typ {
				return unix.EIO
			}
			return do()
		}
		_, applied := r.Apply(r.eth0, plan, false)
		_, cleared := r.Clear(r.eth0, plan)
		_, shown := r.Show(r.eth0, p, s)
		_, previewed := r.Preview(r.eth0, plan, false)
		for _, err := range []error{applied, cleared, shown, previewed} {
			if !errors.Is(err, unix.EIO) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v", err)
			}
		}
	}
}

// If the device goes at any step, the error is ErrNoDevice, and nothing is restored. The
// device may come back with another index.
func TestDeviceGoes(t *testing.T) {
	plan := bothWays(t)
	for step := 1; ; step++ {
		r := newRig(t)
		reached := false
		r.watch(func(n int, q tctest.Request) error {
			if n == step {
				reached = true
				r.fake.Unplug("eth0")
			}
			return nil
		})
		_, err := r.Apply(r.eth0, plan, false)
		if !reached {
			return
		}
		if !errors.Is(err, ErrNoDevice) || err.Error() != "tc: read link on eth0: there is no such network device" {
			t.Fatalf("step %d: %v", step, err)
		}
		r.fake.Between = nil
		index := r.fake.Plug("eth0", "veth")
		if _, err := r.Sweep(); err != nil {
			t.Fatal(err)
		}
		r.restart()
		if r.eth0.Index != index {
			t.Fatalf("index %d, not %d", r.eth0.Index, index)
		}
		r.holdsClear()
		again := mustPlan(t, treeText(t, "class = \"uplink\"", "class = \"uplink\"\ningress = \"bulk\""), r.eth0)
		r.mustApply(again)
		r.holds(again)
	}
}

func TestNoDevice(t *testing.T) {
	r := newRig(t)
	d := Device{Name: "eth7", Index: 7}
	_, none := r.Device("eth7")
	_, applied := r.Apply(d, nil, false)
	_, cleared := r.Clear(d, nil)
	for _, err := range []error{none, applied, cleared} {
		if !errors.Is(err, ErrNoDevice) || err.Error() != "tc: read link on eth7: there is no such network device" {
			t.Errorf("%v", err)
		}
	}
}

// A foreign device with the name of our ifb is not ours.
func TestNameOfOurMirror(t *testing.T) {
	r := newRig(t)
	r.fake.Plug(r.mirror(), "veth")
	_, err := r.Apply(r.eth0, bothWays(t), false)
	if !errors.Is(err, unix.EEXIST) || !strings.HasPrefix(err.Error(), "tc: add ifb on shaper2: file exists") {
		t.Errorf("%v", err)
	}
	r.mustClear()
	if _, err := r.link("shaper2"); err != nil {
		t.Error(err)
	}
}

// If the note is gone, Clear knows from the plan which sizes are ours. A process that has
// read the note knows the sizes before.
func TestClearWithoutTheNote(t *testing.T) {
	plan := treePlan(t)
	for _, had := range []int{gsoUnlimited, 32768} {
		r := newRig(t)
		l, err := r.link("eth0")
		if err != nil || r.conn.LinkSetGSOMaxSize(l, had) != nil {
			t.Fatal(err)
		}
		r.mustApply(plan)
		r.holds(plan) // reads the note
		r.must(del, plan[0])
		if _, err := r.Clear(r.eth0, plan); err != nil {
			t.Fatal(err)
		}
		if l, err = r.link("eth0"); err != nil || l.Attrs().GSOMaxSize != uint32(had) {
			t.Errorf("the size is %d, want %d; %v", l.Attrs().GSOMaxSize, had, err)
		}
	}
}

// Errors name the operation, the object, the device, and the kernel's message.
func TestErrors(t *testing.T) {
	if refused("read", "", "links", nil) != nil {
		t.Error("no error becomes an error")
	}
	for want, err := range map[string]error{
		"tc: add class htb 1:2 on eth0: invalid argument (kernel: too deep)": refused("add", "eth0", "class htb 1:2", fmt.Errorf("%w: too deep", unix.EINVAL)),
		"tc: read links: input/output error":                                 refused("read", "", "links", unix.EIO),
		"tc: read links: odd":                                                refused("read", "", "links", errors.New("odd")),
	} {
		if err.Error() != want || errors.Unwrap(err) == nil {
			t.Errorf("%v", err)
		}
	}
}
