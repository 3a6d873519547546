package tc

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"shaper/policy"
	"shaper/tc/tctest"
)

// rig is a kernel in memory, and a process that puts policies for eth0 into it.
type rig struct {
	*Kernel
	t    testing.TB
	fake *tctest.Kernel
	eth0 Device
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, fake: tctest.New("eth0")}
	r.restart()
	return r
}

// restart replaces the process by a new one, which knows only what it reads from the kernel.
func (r *rig) restart() {
	r.t.Helper()
	r.fake.Between = nil
	r.Kernel = On(r.fake)
	d, err := r.Device("eth0")
	if err != nil {
		r.t.Fatal(err)
	}
	d.Kinds = Kinds{} // as in the plans of the tests
	r.eth0 = d
}

// other returns another process that changes the same kernel.
func (r *rig) other() *rig { return &rig{On(r.fake), r.t, r.fake, r.eth0} }

func (r *rig) mustApply(plan []Object) (changes int) {
	r.t.Helper()
	changes, err := r.Apply(r.eth0, plan, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return changes
}

func (r *rig) mustClear() (changes int) {
	r.t.Helper()
	changes, err := r.Clear(r.eth0, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return changes
}

// must makes a change by hand.
func (r *rig) must(v verb, o Object) {
	r.t.Helper()
	s, err := r.read(r.eth0)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.link(o.Device); err != nil && o.Type != Link {
		r.t.Fatal(err)
	}
	if err := r.do(op{v, o}, s); err != nil {
		r.t.Fatal(err)
	}
}

// roots returns kind and handle of the root qdiscs on a device, without the kernel's
// default.
func (r *rig) roots(device string) (all []string) {
	r.t.Helper()
	if _, err := r.link(device); err != nil {
		r.t.Fatal(err)
	}
	qdiscs, err := r.dump(Qdisc, device, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range qdiscs {
		if m.handle != 0 && m.parent == rootParent {
			all = append(all, m.kind+" "+m.handle.String())
		}
	}
	return all
}

// lacks returns the changes that a plan still needs.
func (r *rig) lacks(plan []Object) (all []string) {
	r.t.Helper()
	p, err := r.Preview(r.eth0, plan, true)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, step := range p.Changes {
		all = append(all, step.Op+" "+step.Object)
	}
	return all
}

// holds fails the test unless the kernel has the whole plan and no filter leads nowhere.
func (r *rig) holds(plan []Object) {
	r.t.Helper()
	if lacks := r.lacks(plan); len(lacks) > 0 {
		r.t.Fatalf("the plan still needs: %v", lacks)
	}
	r.holdsNothingLoose()
}

// holdsNothingLoose fails the test if a filter leads nowhere.
func (r *rig) holdsNothingLoose() {
	r.t.Helper()
	if loose := r.fake.Loose(); len(loose) > 0 {
		r.t.Fatalf("these lead nowhere: %v", loose)
	}
}

// holdsClear fails the test unless all our objects are gone and the link has its sizes
// back.
func (r *rig) holdsClear() {
	r.t.Helper()
	r.holds(nil)
	s, err := r.read(r.eth0)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(s.ours) > 0 || s.sizes["eth0"] != (linkSizes{gsoUnlimited, gsoUnlimited}) {
		r.t.Fatalf("%v remain, the link has sizes %v", s.ours, s.sizes)
	}
	links, err := r.conn.LinkList()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, l := range links {
		if l.Type() == "ifb" {
			r.t.Fatalf("device %s remains", l.Attrs().Name)
		}
	}
}

// watch calls after with the number of each change that the process has made, from 1 on.
// What after returns is the kernel's answer.
func (r *rig) watch(after func(n int, q tctest.Request) error) {
	n := 0
	r.fake.Between = func(q tctest.Request, do func() error) error {
		err := do()
		if err == nil && q.IsChange() {
			n++
			err = after(n, q)
		}
		return err
	}
}

var errKilled = errors.New("killed")

// killAfter refuses all requests of the process after so many changes, as if it were dead.
func (r *rig) killAfter(changes int) {
	n := 0
	r.fake.Between = func(q tctest.Request, do func() error) error {
		if q.IsChange() {
			n++
		}
		if n > changes {
			return errKilled
		}
		return do()
	}
}

// mirror returns the name of the ifb of a rig.
func (r *rig) mirror() string { return r.eth0.mirror() }

// handles returns the names of the objects of a plan.
func handles(plan []Object) []string {
	var all []string
	for _, o := range plan {
		all = append(all, o.String())
	}
	return all
}

// find returns the object with a name.
func find(t testing.TB, plan []Object, name string) Object {
	t.Helper()
	i := slices.Index(handles(plan), name)
	if i < 0 {
		t.Fatalf("no %s in the plan %v", name, handles(plan))
	}
	return plan[i]
}

// theirs returns a foreign root qdisc.
func theirs(device string) Object {
	return Object{Type: Qdisc, Device: device, Handle: 9 << 16, Parent: rootParent, Kind: "pfifo", Params: fifo{100}}
}

// treePlan returns the plan of testdata/plan/tree.toml with some edits.
func treePlan(t testing.TB, edits ...string) []Object {
	t.Helper()
	return mustPlan(t, treeText(t, edits...), eth0)
}

func treeText(t testing.TB, edits ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/plan/tree.toml")
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(edits...).Replace(string(text))
}

// bothWays returns a plan that shapes what arrives at eth0 too.
func bothWays(t testing.TB) []Object {
	t.Helper()
	return treePlan(t, "class = \"uplink\"", "class = \"uplink\"\ningress = \"bulk\"\nmark = true")
}

// manyRules returns n rules of one class, each for one address.
func manyRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[rule]]\nclass = \"otp\"\nsource = \"10.9.%d.%d\"\n", i>>8, i&0xff)
	}
	return b.String()
}

// section returns a policy and its first section.
func section(t testing.TB, text string) (*policy.Policy, policy.TC) {
	t.Helper()
	p := mustLoad(t, text)
	return p, p.TC[0]
}

// state returns our objects in the kernel, by place.
func (r *rig) state() map[place]Object {
	r.t.Helper()
	s, err := r.read(r.eth0)
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[place]Object{}
	for _, o := range s.ours {
		all[o.place()] = o
	}
	return all
}

// holdsState fails the test unless the kernel has the same objects as before.
func (r *rig) holdsState(want map[place]Object) {
	r.t.Helper()
	if got := r.state(); !maps.Equal(got, want) {
		r.t.Fatalf("the kernel had %v, and has %v", want, got)
	}
	r.holdsNothingLoose()
}
