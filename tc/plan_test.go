package tc

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shaper/policy"
)

var update = flag.Bool("update", false, "write what plans come to into testdata")

// eth0 is a device on a kernel without optional kinds.
var eth0 = Device{Name: "eth0", Index: 2, MTU: 1500}

func mustLoad(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, _, err := policy.Parse("t.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mustPlan returns the plan of the first section of a policy.
func mustPlan(t testing.TB, text string, d Device) []Object {
	t.Helper()
	p := mustLoad(t, text)
	plan, err := Plan(p, p.TC[0], d)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// fresh returns the snapshot of a kernel without our objects.
func fresh() *snapshot {
	return &snapshot{sizes: map[string]linkSizes{"eth0": {65536, 65536}}, tables: map[tableID]uint32{}, counted: map[place]Counters{}}
}

// TestPlans compares the plan of each policy with the commands in the file beside it.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/plan/*.toml")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, file, strings.Join(commands(complete(mustPlan(t, string(text), eth0), fresh())), "\n")+"\n")
		})
	}
}

// TestPlanWithQueues plans for kernels with optional queues.
func TestPlanWithQueues(t *testing.T) {
	text, err := os.ReadFile("testdata/plan/tree.toml")
	if err != nil {
		t.Fatal(err)
	}
	for name, kinds := range map[string]Kinds{"fq_codel": {FQCodel: true, SFQ: true}, "sfq": {SFQ: true}} {
		d := eth0
		d.Kinds = kinds
		compare(t, "testdata/plan/tree-"+name+".toml", strings.Join(commands(complete(mustPlan(t, string(text), d), fresh())), "\n")+"\n")
	}
}

// TestPlanWithFlower plans for a kernel with flower. Long lists use u32 even so.
func TestPlanWithFlower(t *testing.T) {
	d := eth0
	d.Kinds.Flower = true
	text, err := os.ReadFile("testdata/plan/rules.toml")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "testdata/plan/rules-flower.toml", strings.Join(commands(complete(mustPlan(t, string(text), d), fresh())), "\n")+"\n")
	var many strings.Builder
	for i := range longList + 1 {
		fmt.Fprintf(&many, "[[rule]]\nclass = \"a\"\nsource = \"10.9.%d.%d\"\n", i>>8, i&0xff)
	}
	for _, o := range mustPlan(t, string(text)+many.String(), d) {
		if o.Kind == "flower" && o.Pref.Protocol == etherType(ipv4) {
			t.Fatalf("%v in a long list", o)
		}
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	beside := strings.TrimSuffix(file, ".toml") + ".txt"
	if *update {
		if err := os.WriteFile(beside, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(beside)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", beside, diff)
	}
}

// Plan returns an error if the device's frames are too long for a class.
func TestPlanRefuses(t *testing.T) {
	jumbo := Device{Name: "eth0", Index: 2, MTU: 9000}
	for _, c := range []struct{ class, want string }{
		{"algorithm = \"token\"\nrate = \"20mbit\"\nburst = \"16KiB\"",
			`class "a" cannot be put on eth0: its burst 16KiB is less than two of the device's frames, of 9014 bytes each; raise it, or lower the MTU`},
		{"rate = \"160bit\"", `class "a" cannot be put on eth0: at 20B/s it takes minutes to send two of the device's frames, of 9014 bytes each; raise it, or lower the MTU`},
	} {
		p := mustLoad(t, fmt.Sprintf("[class.a]\n%s\n[tc.eth0]\nclass = \"a\"\n", c.class))
		if _, err := Plan(p, p.TC[0], jumbo); err == nil || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
		if _, err := Plan(p, p.TC[0], eth0); err != nil {
			t.Error(err)
		}
	}
}

// The children of a class are assured of no more than the class itself, since HTB serves a
// class within its rate, whatever the limits above it.
func TestAssuredFitsInto(t *testing.T) {
	for _, text := range []string{"oversold", "tree", "rules"} {
		b, err := os.ReadFile("testdata/plan/" + text + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		sums, rates := map[Handle]uint64{}, map[Handle]uint64{}
		for _, o := range mustPlan(t, string(b), eth0) {
			if c, ok := o.Params.(htbClass); ok && !isNote(o) {
				sums[o.Parent] += c.Rate
				rates[o.Handle] = c.Rate
			}
		}
		for parent, sum := range sums {
			if rate, ok := rates[parent]; ok && sum > rate {
				t.Errorf("%s: the children of %v are assured of %d B/s, the class of %d", text, parent, sum, rate)
			}
		}
	}
}

// planOf returns the plan of a policy in testdata, edited.
func planOf(t *testing.T, name string, edit func(string) string) []Object {
	t.Helper()
	text, err := os.ReadFile("testdata/plan/" + name + ".toml")
	if err != nil {
		t.Fatal(err)
	}
	return mustPlan(t, edit(string(text)), eth0)
}
