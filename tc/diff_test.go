package tc

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// model is a kernel as far as changes depend on each other: what it refuses, and what
// goes with what.
type model struct {
	t       *testing.T
	objects map[place]Object
	sizes   map[string]linkSizes
}

func newModel(t *testing.T) *model {
	return &model{t, map[place]Object{}, map[string]linkSizes{"eth0": {65536, 65536}}}
}

func (m *model) refuse(o op, why string) {
	m.t.Helper()
	m.t.Fatalf("%s %v on %s (parent %v): %s", o.verb, o.object, o.object.Device, o.object.Parent, why)
}

// do makes a change, or fails the test where the kernel would refuse it.
func (m *model) do(o op) {
	m.t.Helper()
	t := o.object
	_, there := m.objects[t.place()]
	switch {
	case t.Kind == "sizes":
		m.sizes[t.Device] = t.Params.(linkSizes)
	case o.verb == del:
		m.del(o)
	case o.verb == change:
		if !there {
			m.refuse(o, "it is not there")
		}
		m.set(o)
	case there && o.verb == add:
		m.refuse(o, "it is there")
	default:
		m.set(o)
	}
}

func (m *model) set(o op) {
	m.t.Helper()
	t := o.object
	switch {
	case t.Parent == rootParent:
		if o.verb == add && slices.ContainsFunc(m.all(), func(x Object) bool { return x.Device == t.Device && x.Parent == rootParent }) {
			m.refuse(o, "there is a root")
		}
		m.drop(t.Device)
	case t.Type == Class:
		if t.Parent != htbHandle && !m.has(Class, t.Device, t.Parent) {
			m.refuse(o, "no parent")
		}
		was, there := m.objects[t.place()]
		if there && was.Parent != t.Parent {
			m.refuse(o, "HTB moves no class")
		}
		if m.isParent(t) { // it keeps these where there are children
			c := t.Params.(htbClass)
			c.Prio, c.Quantum = 0, 0
			t.Params = c
		}
		for p, x := range m.objects { // a class with children has no queue
			if x.Type == Qdisc && x.Device == t.Device && x.Parent == t.Parent {
				delete(m.objects, p)
			}
		}
	case t.Type == Qdisc && t.Parent != ingressParent:
		if t.Parent.major() == htbHandle && (!m.has(Class, t.Device, t.Parent) || m.isParent(Object{Device: t.Device, Handle: t.Parent})) {
			m.refuse(o, "no class without children to be the queue of")
		}
		for p, x := range m.objects { // one takes the place of another
			if x.Type == Qdisc && x.Device == t.Device && x.Parent == t.Parent {
				delete(m.objects, p)
			}
		}
	case t.Type == Filter:
		key, _ := t.Params.(u32Key)
		if class, _ := leadsTo(t.Params); class != 0 && !m.has(Class, t.Device, class) {
			m.refuse(o, "no class to lead to")
		}
		if table := t.Handle.table(); t.Kind == "u32" && table != 0 && t.Handle&u32Places != 0 && !m.hasTable(t, table) || key.Link != 0 && !m.hasTable(t, key.Link) {
			m.refuse(o, "no table")
		}
		if key.Redirect != "" && !m.hasLink(key.Redirect) {
			m.refuse(o, "no such device")
		}
	}
	m.objects[t.place()] = t
}

func (m *model) del(o op) {
	m.t.Helper()
	t := o.object
	switch {
	case t.Parent == rootParent:
		m.drop(t.Device)
		return
	case t.Type == Class:
		if m.isParent(t) {
			m.refuse(o, "it has children")
		}
		for _, x := range m.all() {
			if class, _ := leadsTo(x.Params); x.Device == t.Device && class == t.Handle {
				m.refuse(o, "a filter leads to it")
			}
		}
		maps.DeleteFunc(m.objects, func(_ place, x Object) bool { return x.Type == Qdisc && x.Device == t.Device && x.Parent == t.Handle })
	case t.Type == Filter && t.Params == wholeList{}:
		for _, x := range m.all() {
			if x.Device == t.Device && x.Type == Filter && x.Pref == t.Pref {
				if x.Handle.table() != 0 {
					m.refuse(o, "its tables would be left behind")
				}
				delete(m.objects, x.place())
			}
		}
		return
	case t.Type == Filter && t.Handle.table() != 0:
		if !m.hasTable(t, t.Handle.table()) {
			m.refuse(o, "it is not there")
		}
		for _, x := range m.all() {
			if key, ok := x.Params.(u32Key); ok && x.Device == t.Device && key.Link == t.Handle.table() {
				m.refuse(o, "a link leads to it")
			}
		}
		maps.DeleteFunc(m.objects, func(_ place, x Object) bool {
			return x.Type == Filter && x.Device == t.Device && x.Pref == t.Pref && x.Handle.table() == t.Handle.table()
		})
		return
	case t.Type == Link:
		for _, x := range m.all() {
			if key, ok := x.Params.(u32Key); ok && key.Redirect == t.Device {
				m.refuse(o, "packets are moved to it")
			}
		}
		m.drop(t.Device)
	}
	if _, there := m.objects[t.place()]; !there {
		m.refuse(o, "it is not there")
	}
	delete(m.objects, t.place())
}

// drop takes away a root with all that is under it.
func (m *model) drop(device string) {
	maps.DeleteFunc(m.objects, func(_ place, x Object) bool {
		return x.Device == device && x.Type != Link && x.Parent != ingressParent && x.Parent != ingressHandle
	})
}

func (m *model) all() []Object { return slices.Collect(maps.Values(m.objects)) }

func (m *model) has(typ Type, device string, h Handle) bool {
	return slices.ContainsFunc(m.all(), func(x Object) bool { return x.Type == typ && x.Device == device && x.Handle == h })
}

func (m *model) hasTable(o Object, table uint32) bool {
	_, ok := m.objects[Object{Type: Filter, Device: o.Device, Handle: u32Node(table, 0, 0), Parent: o.Parent, Pref: o.Pref}.place()]
	return ok
}

func (m *model) hasLink(device string) bool {
	return slices.ContainsFunc(m.all(), func(x Object) bool { return x.Type == Link && x.Device == device })
}

func (m *model) isParent(o Object) bool {
	return slices.ContainsFunc(m.all(), func(x Object) bool { return x.Type == Class && x.Device == o.Device && x.Parent == o.Handle })
}

// read is the snapshot of a model, in no order.
func (m *model) read() *snapshot {
	s := fresh()
	s.sizes, s.ours = maps.Clone(m.sizes), m.all()
	for i, o := range s.ours {
		if o.Type == Filter && o.Kind == "u32" {
			s.tables[tableID{o.Device, o.Pref}] = 0x800
		}
		if c, ok := o.Params.(htbClass); ok && m.isParent(o) {
			c.Prio, c.Quantum = 0, 0
			s.ours[i].Params = c
		}
		if isNote(o) {
			s.ours = append(s.ours, Object{Type: Link, Device: o.Device, Kind: "sizes", Params: m.sizes[o.Device]})
		}
	}
	return s
}

// converge makes the model equal to a plan. It may stop after so many changes, as a
// process that is killed does.
func (m *model) converge(plan []Object, budget int) (changes int) {
	m.t.Helper()
	for range rounds {
		ops := diff(plan, m.read())
		if len(ops) == 0 {
			return changes
		}
		for _, o := range ops {
			if changes == budget {
				return changes
			}
			m.do(o)
			changes++
		}
	}
	m.t.Fatalf("still to do: %v", diff(plan, m.read()))
	return 0
}

// plans are those of the policies in testdata, and of some that differ from them in what
// is hard.
func plans(t *testing.T) (all [][]Object) {
	for _, name := range []string{"tree", "rules", "leaky", "token", "oversold"} {
		all = append(all, planOf(t, name, func(s string) string { return s }))
	}
	tree := func(edits ...string) []Object {
		return planOf(t, "tree", strings.NewReplacer(edits...).Replace)
	}
	var many strings.Builder
	for i := range trial.Size(200, 10_000) {
		fmt.Fprintf(&many, "[[rule]]\nclass = \"otp\"\nsource = \"10.9.%d.%d\"\n", i>>8, i&0xff)
	}
	flowers := func(name string) []Object {
		text, err := os.ReadFile("testdata/plan/" + name + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		return mustPlan(t, string(text), Device{Name: "eth0", Index: 2, MTU: 1500, Kinds: Kinds{true, true, true}})
	}
	return append(all, flowers("rules"), flowers("tree"),
		tree("[class.otp]\nparent = \"acme\"", "[class.otp]\nparent = \"uplink\""),
		tree("class = \"uplink\"", "class = \"acme\""),
		tree("class = \"otp\"", "class = \"bulk\""),
		tree("class = \"uplink\"", "class = \"uplink\"\ningress = \"bulk\"\nmark = true"),
		tree("queue = \"64KiB\"", "queue = \"64 packets\"", "rate = \"10mbit\"", "rate = \"900mbit\""),
		tree("[tc.eth0]", many.String()+"[tc.eth0]"),
		tree("[tc.eth0]", "[[rule]]\nclass = \"bulk\"\nport = 53\n"+many.String()+"[tc.eth0]"),
		nil)
}

// From any plan to any other, even from the midst of one, each change is one that the
// kernel takes, and it comes to equal the plan; then nothing is to be done.
func TestAnyPlanFollowsAnyOther(t *testing.T) {
	all := plans(t)
	r := rand.New(rand.NewPCG(1, 2))
	m := newModel(t)
	for i := range trial.Size(200, 10_000) {
		plan := all[r.IntN(len(all))]
		if r.IntN(3) == 0 {
			m.converge(plan, r.IntN(40))
			continue
		}
		m.converge(plan, -1)
		if again := m.converge(plan, -1); again != 0 {
			t.Fatalf("%d: %d changes more", i, again)
		}
		if plan == nil && (len(m.objects) > 0 || m.sizes["eth0"] != linkSizes{65536, 65536}) {
			t.Fatalf("%d: %v are left, the link has %v", i, m.all(), m.sizes)
		}
	}
}

// What little differs is changed in place.
func TestChangesAreSmall(t *testing.T) {
	tree := func(edits ...string) []Object { return planOf(t, "tree", strings.NewReplacer(edits...).Replace) }
	for _, c := range []struct {
		name string
		plan []Object
		want []string
	}{
		{"a rate", tree("rate = \"2mbit\"", "rate = \"3mbit\""), []string{"change class htb 5ca0:1f52"}},
		{"a queue", tree("queue = \"100 packets\"", "queue = \"101 packets\""), []string{"change qdisc pfifo 1f52:"}},
		{"where a rule leads", tree("source = \"10.1.0.0/16\"\nclass = \"otp\"", "source = \"10.1.0.0/16\"\nclass = \"bulk\""), []string{"change filter u32 pref 10 ::1 of 5ca0:"}},
		{"a class more", tree("[tc.eth0]", "[class.more]\nparent = \"uplink\"\nrate = \"1mbit\"\n[tc.eth0]"), []string{"add class htb 5ca0:173f", "replace qdisc pfifo 173f:"}},
		{"a rule more", tree("[tc.eth0]", "[[rule]]\nclass = \"bulk\"\nsource = \"10.2.0.0/16\"\n[tc.eth0]"), []string{
			"add filter u32 pref 11 ::1 of 5ca0:", "add filter u32 pref 11 ::2 of 5ca0:", "add filter u32 pref 11 ::3 of 5ca0:", "delete filter u32 pref 10 :: of 5ca0:"}},
	} {
		m := newModel(t)
		m.converge(tree(), -1)
		var got []string
		for _, o := range diff(c.plan, m.read()) {
			got = append(got, string(o.verb)+" "+o.object.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// Who deletes our root deletes the note of what the link had; ours is not taken for that.
func TestSizesSurviveTheRoot(t *testing.T) {
	tree := planOf(t, "tree", func(s string) string { return s })
	m := newModel(t)
	m.converge(tree, -1)
	m.drop("eth0")
	m.converge(tree, -1)
	m.converge(nil, -1)
	if m.sizes["eth0"] != (linkSizes{65536, 65536}) {
		t.Errorf("the link has %v", m.sizes["eth0"])
	}
}
