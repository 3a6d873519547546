package tc

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shaper/tc/tctest"
	"shaper/tests/trial"
)

// plans are the plans of the policies in testdata, and of variants that are hard to reach
// from them.
func plans(t *testing.T) (all [][]Object) {
	for _, name := range []string{"tree", "rules", "leaky", "token", "oversold"} {
		all = append(all, planOf(t, name, func(s string) string { return s }))
	}
	tree := func(edits ...string) []Object {
		return planOf(t, "tree", strings.NewReplacer(edits...).Replace)
	}
	many := manyRules(longList + 50) // enough for tables
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
		tree("[tc.eth0]", many+"[tc.eth0]"),
		tree("[tc.eth0]", "[[rule]]\nclass = \"bulk\"\nport = 53\n"+many+"[tc.eth0]"),
		nil)
}

// Apply leads from any plan to any other, even from a change half done; a second Apply does
// nothing. At no moment does a filter lead nowhere, and foreign objects stay.
func TestAnyPlanFollowsAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // waits take no time
		all := plans(t)
		random := rand.New(rand.NewPCG(1, 2))
		r := newRig(t)
		r.fake.Grace = 3 * time.Millisecond
		r.fake.Plug("eth1", "veth")
		r.must(add, theirs("eth1"))
		for i := range trial.Size(150, 5_000) {
			r.restart()
			plan := all[random.IntN(len(all))]
			if random.IntN(3) == 0 {
				r.killAfter(random.IntN(40))
				r.Apply(r.eth0, plan, false)
				r.restart()
				continue
			}
			r.watch(func(_ int, q tctest.Request) error {
				if loose := r.fake.Loose(); len(loose) > 0 {
					t.Fatalf("%d: after %v, these lead nowhere: %v", i, q, loose)
				}
				return nil
			})
			r.mustApply(plan)
			r.fake.Between = nil
			if again := r.mustApply(plan); again != 0 {
				t.Fatalf("%d: a second Apply makes %d changes", i, again)
			}
			if r.holds(plan); plan == nil {
				r.holdsClear()
			}
		}
		if got := r.roots("eth1"); !slices.Equal(got, []string{"pfifo 9:"}) {
			t.Errorf("the foreign root qdisc is now %v", got)
		}
	})
}

// If a process is killed after any change, the next one makes the kernel equal to its plan,
// or clears it, by reading the kernel alone.
func TestKillAtEachStep(t *testing.T) {
	moved := treePlan(t, "[class.otp]\nparent = \"acme\"", "[class.otp]\nparent = \"uplink\"")
	lone := planOf(t, "token", func(s string) string { return s })
	for _, c := range []struct {
		name     string
		from, to []Object
	}{
		{"the first", nil, bothWays(t)},
		{"clear", bothWays(t), nil},
		{"other parents", bothWays(t), moved},
		{"another root", lone, moved},
		{"the root again", moved, lone},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for step := 0; ; step++ {
					r := newRig(t)
					r.fake.Grace = time.Millisecond
					r.mustApply(c.from)
					r.killAfter(step)
					_, err := r.Apply(r.eth0, c.to, false)
					r.restart()
					before := r.lacks(c.to)
					if r.mustApply(c.to); err == nil && len(before) > 0 {
						t.Fatalf("the process was not killed; the kernel has %v", before)
					}
					r.holds(c.to)
					r.mustClear()
					r.holdsClear()
					if err == nil {
						if step < 4 {
							t.Errorf("only %d steps", step)
						}
						return
					}
				}
			})
		})
	}
}

// Small differences are changed in place.
func TestChangesAreSmall(t *testing.T) {
	for _, c := range []struct {
		name string
		plan []Object
		want []string
	}{
		{"a rate", treePlan(t, "rate = \"2mbit\"", "rate = \"3mbit\""), []string{"change class htb 5ca0:1f52"}},
		{"a queue", treePlan(t, "queue = \"100 packets\"", "queue = \"101 packets\""), []string{"change qdisc pfifo 1f52:"}},
		{"where a rule leads", treePlan(t, "source = \"10.1.0.0/16\"\nclass = \"otp\"", "source = \"10.1.0.0/16\"\nclass = \"bulk\""), []string{"change filter u32 pref 10 ::1 of 5ca0:"}},
		{"a class more", treePlan(t, "[tc.eth0]", "[class.more]\nparent = \"uplink\"\nrate = \"1mbit\"\n[tc.eth0]"), []string{"add class htb 5ca0:173f", "replace qdisc pfifo 173f:"}},
		{"a rule more", treePlan(t, "[tc.eth0]", "[[rule]]\nclass = \"bulk\"\nsource = \"10.2.0.0/16\"\n[tc.eth0]"), []string{
			"add filter u32 pref 11 ::1 of 5ca0:", "add filter u32 pref 11 ::2 of 5ca0:", "add filter u32 pref 11 ::3 of 5ca0:", "delete filter u32 pref 10 :: of 5ca0:"}},
	} {
		r := newRig(t)
		r.mustApply(treePlan(t))
		if got := r.lacks(c.plan); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
		if changes := r.mustApply(c.plan); changes != len(c.want) {
			t.Errorf("%s: %d changes", c.name, changes)
		}
	}
}

// If somebody deletes our root, and the note of the sizes with it, Apply does not note our
// own limit as the sizes before.
func TestSizesSurviveTheRoot(t *testing.T) {
	plan := treePlan(t)
	r := newRig(t)
	limited := func() {
		t.Helper()
		l, err := r.link("eth0")
		if err != nil || l.Attrs().GSOMaxSize != 3028 || l.Attrs().GSOIPv4MaxSize != 3028 {
			t.Fatalf("the link has %+v, %v", l, err)
		}
	}
	r.mustApply(plan)
	limited()
	r.must(del, plan[0])
	r.mustApply(plan)
	limited()
	r.mustClear()
	r.holdsClear()
}
