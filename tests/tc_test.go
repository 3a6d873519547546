package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/policy"
	"shaper/tc"
)

// full has the tests of the kernel engine take as long as it is promised for.
var full = os.Getenv("SHAPER_FULL") != ""

// times returns how often a test repeats: fewer times unless all of them are asked for.
func times(few, all int) int {
	if full {
		return all
	}
	return few
}

// policyFile writes a policy into a directory of its own.
func policyFile(t *testing.T, text string) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp(bins, "")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "shaper.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// outcome is what a command has come to.
type outcome struct {
	stdout, stderr string
	code           int
}

// tc runs shaper tc inside.
func (n *namespace) tc(config string, args ...string) (o outcome) {
	n.t.Helper()
	n.do(func() error {
		var out, errs strings.Builder
		cmd := exec.Command(plain(), append([]string{"-c", config, "tc"}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		o = outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
		if errors.As(err, new(*exec.ExitError)) {
			return nil
		}
		return err
	})
	return o
}

// must is tc for what has to succeed.
func (n *namespace) mustTC(config string, args ...string) string {
	n.t.Helper()
	o := n.tc(config, args...)
	if o.code != 0 {
		n.t.Fatalf("shaper tc %v: %d\n%s%s", args, o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// output returns what a shell inside prints.
func (n *namespace) output(script string) (out string) {
	n.t.Helper()
	n.do(func() error {
		b, err := exec.Command("sh", "-c", script).CombinedOutput()
		if out = string(b); err != nil {
			return fmt.Errorf("%s: %w: %s", script, err, b)
		}
		return nil
	})
	return out
}

// preview is what tc plan --json prints of a device.
type preview struct {
	Device   string
	Commands []string
	Changes  []struct{ Op, Command string }
}

func (n *namespace) preview(config string) (p preview) {
	n.t.Helper()
	var all []preview
	if err := json.Unmarshal([]byte(n.mustTC(config, "plan", "--json")), &all); err != nil || len(all) != 1 {
		n.t.Fatal(all, err)
	}
	return all[0]
}

// holdsEqual holds that the kernel has what a policy comes to, and nothing else of ours.
func (n *namespace) holdsEqual(config string) {
	n.t.Helper()
	if p := n.preview(config); len(p.Changes) > 0 {
		n.t.Fatalf("the kernel differs from the plan: %v", p.Changes)
	}
}

// holdsClear holds that nothing of ours is left on a wire.
func (n *namespace) holdsClear() {
	n.t.Helper()
	out := n.output("tc qdisc show; tc filter show dev wire; ip -d link show")
	for _, ours := range []string{"5ca0", "5ca1", "ingress", "shaper", "gso_max_size 3028"} {
		if strings.Contains(out, ours) {
			n.t.Fatalf("%s is left:\n%s", ours, out)
		}
	}
}

// state returns the qdiscs, classes and filters of a device as tc(8) prints them, with
// what the kernel has counted left out.
func (n *namespace) state(device string) string {
	return n.output(fmt.Sprintf("tc -d qdisc show dev %[1]s; tc -d class show dev %[1]s | sort; tc -d filter show dev %[1]s; tc -d filter show dev %[1]s parent ffff:", device))
}

// mixed has everything that a section may ask for.
const mixed = `
[class.uplink]
rate = "10mbit"
[class.acme]
parent = "uplink"
rate = "3mbit"
ceil = "8mbit"
[class.otp]
parent = "acme"
rate = "1mbit"
ceil = "8mbit"
priority = 0
[class.bulk]
parent = "acme"
algorithm = "token"
rate = "1mbit"
ceil = "8mbit"
burst = "32KiB"
weight = 3
queue = "64KiB"
[class.slow]
parent = "uplink"
rate = "96bit"
[class.down]
algorithm = "token"
rate = "50mbit"
burst = "128KiB"
[tc.wire]
class = "uplink"
ingress = "down"
mark = true
[[rule]]
source = ["10.1.0.0/16", "fd00:1::/48"]
port = "8000-8010"
class = "otp"
[[rule]]
destination = "192.0.2.2"
protocol = "udp"
port = 5001
class = "bulk"
[[rule]]
destination = "fd00::2"
class = "acme"
`

// manyRules returns rules that come to tables.
func manyRules(n int, class string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[rule]]\nsource = \"10.%d.%d.%d\"\nclass = %q\n", 100+i>>16, i>>8&0xff, i&0xff, class)
	}
	return b.String()
}

// The commands that plan prints, run by hand elsewhere, come to the same state, and so
// does what shaper tc show says of it.
func TestKernelPlanIsWhatIsApplied(t *testing.T) {
	tool(t, "tc", "iproute2")
	for name, policy := range map[string]string{"mixed": mixed, "tables": mixed + manyRules(600, "otp"), "lone": "[class.a]\nrate = \"3mbit\"\n[tc.wire]\nclass = \"a\"\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, _ := wire(t)
			byHand, _ := wire(t)
			config := policyFile(t, policy)
			p := near.preview(config)
			if len(p.Changes) == 0 {
				t.Fatal("nothing to do on a fresh device")
			}
			byHand.output("set -e\n" + strings.Join(p.Commands, "\n"))
			near.mustTC(config, "apply")
			near.holdsEqual(config)
			byHand.holdsEqual(config)
			for _, device := range []string{"wire", mirrorOf(p)} {
				if device == "" {
					continue
				}
				if a, b := near.state(device), byHand.state(device); a != b {
					t.Errorf("%s: applied:\n%s\nby hand:\n%s", device, a, b)
				}
			}
			if out := near.mustTC(config, "apply"); !strings.Contains(out, "changed 0 ") {
				t.Errorf("applied again: %s", out)
			}
			for range 2 {
				near.mustTC(config, "clear")
				near.holdsClear()
			}
		})
	}
}

// mirrorOf returns the ifb of a plan; "" for none.
func mirrorOf(p preview) string {
	for _, line := range p.Commands {
		if name, ok := strings.CutPrefix(line, "ip link add dev "); ok {
			name, _, _ = strings.Cut(name, " ")
			return name
		}
	}
	return ""
}

// counted is an object of tc show --json.
type counted struct {
	Type, Device, Kind, Handle, Parent, Class string
	Counters                                  struct{ Bytes, Packets, Dropped, Overlimits uint64 }
}

// What shaper tc show counts is what tc -s shows.
func TestKernelShowAgreesWithTC(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, far := wire(t)
	config := policyFile(t, mixed)
	near.mustTC(config, "apply")
	_, bulk := far.record(t, farEnd)
	port := bulk[strings.LastIndex(bulk, ":")+1:]
	config = policyFile(t, strings.ReplaceAll(mixed, "port = 5001", "port = "+port))
	near.mustTC(config, "apply")
	c := near.dialUDP(t, bulk, 0)
	for range 300 { // of 1,000 bytes: some find the queue of 64 KiB full
		c.Write(make([]byte, 1000))
	}
	waitFor(t, "the queue is empty", func() bool {
		return !regexp.MustCompile(`backlog [1-9]`).MatchString(near.output("tc -s class show dev wire"))
	})

	shown := map[string]counted{}
	all := near.shown(config)
	filters := 0
	for _, o := range all {
		shown[o.Type+" "+o.Device+" "+o.Handle] = o
		if o.Type == "filter" && o.Kind == "u32" && o.Device == "wire" && o.Parent != "ffff:" {
			filters++
		}
	}
	if n := strings.Count(near.output("tc filter show dev wire"), "flowid"); n != filters {
		t.Errorf("tc shows %d filters, shaper tc show %d", n, filters)
	}
	stat := regexp.MustCompile(`(qdisc|class) \S+ (\S+) .*\n Sent (\d+) bytes (\d+) pkt \(dropped (\d+), overlimits (\d+)`)
	matches := 0
	for _, m := range stat.FindAllStringSubmatch(near.output("tc -s qdisc show dev wire; tc -s class show dev wire"), -1) {
		o, ok := shown[m[1]+" wire "+m[2]]
		if got := fmt.Sprint(o.Counters.Bytes, o.Counters.Packets, o.Counters.Dropped, o.Counters.Overlimits); !ok || got != strings.Join(m[3:], " ") {
			t.Errorf("%s %s: tc counts %v, shaper %v", m[1], m[2], m[3:], got)
		}
		matches++
	}
	if b := all[slices.IndexFunc(all, func(o counted) bool { return o.Type == "class" && o.Class == "bulk" })].Counters; matches < 10 || b.Packets < 60 || b.Dropped == 0 {
		t.Errorf("%d objects; of bulk %+v", matches, b)
	}
}

// randomPolicy returns a tree of classes on the wire, and rules for them.
func randomPolicy(r *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[class.root]\nrate = \"%dmbit\"\nheadroom = \"%d%%\"\n", 50+r.IntN(50), r.IntN(4))
	names, limits, depths := []string{"root"}, []int{50_000}, []int{1}
	for i := range 1 + r.IntN(12) {
		at := r.IntN(len(names))
		if depths[at] > 5 {
			at = 0
		}
		ceil := 100 + r.IntN(limits[at]-99)
		name := fmt.Sprintf("c%d", r.IntN(40))
		if slices.Contains(names, name) {
			continue
		}
		fmt.Fprintf(&b, "[class.%s]\nparent = %q\nrate = \"%dkbit\"\nceil = \"%dkbit\"\npriority = %d\nweight = %d\nqueue = \"%d %s\"\n",
			name, names[at], 1+r.IntN(ceil), ceil, r.IntN(8), 1+r.IntN(20), 1+r.IntN(2000), []string{"KiB", "packets"}[r.IntN(2)])
		if i%3 == 0 {
			fmt.Fprintf(&b, "algorithm = \"token\"\nburst = \"%dKiB\"\n", 3+r.IntN(100))
		}
		names, limits, depths = append(names, name), append(limits, ceil), append(depths, depths[at]+1)
	}
	if len(names) == 1 {
		b.WriteString("[class.only]\nparent = \"root\"\nrate = \"1mbit\"\n")
	}
	fmt.Fprintf(&b, "[tc.wire]\nclass = \"root\"\nmark = %v\n", r.IntN(2) == 0)
	rules := r.IntN(20)
	if r.IntN(8) == 0 {
		rules = 300
	}
	for range rules {
		class := names[r.IntN(len(names))]
		fmt.Fprintf(&b, "[[rule]]\nclass = %q\nsource = [\"10.%d.%d.%d\", \"fd00:%x::/32\"]\n", class, r.IntN(4), r.IntN(256), r.IntN(256), r.IntN(65536))
		if from := 1 + r.IntN(60000); r.IntN(2) == 0 {
			fmt.Fprintf(&b, "port = \"%d-%d\"\n", from, from+r.IntN(20))
		}
		if r.IntN(3) == 0 {
			b.WriteString("protocol = \"udp\"\n")
		}
	}
	return b.String()
}

// Whatever policy follows on whatever other, the kernel comes to equal the plan, and a
// flow that none of the rules is about loses nothing.
func TestKernelFollowsRandomPolicies(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, far := wire(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	near.mustTC(policyFile(t, randomPolicy(r)), "apply")

	recorder, addr := far.record(t, farEnd)
	c := near.dialUDP(t, addr, 0)
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		tick, n := time.NewTicker(2*time.Millisecond), 0
		defer tick.Stop()
		for {
			select {
			case <-stop:
				sent <- n
				return
			case <-tick.C:
				if _, err := c.Write(make([]byte, 100)); err == nil {
					n++
				}
			}
		}
	}()
	for i := range times(60, 1000) {
		policy := randomPolicy(r)
		config := policyFile(t, policy)
		if o := near.tc(config, "apply"); o.code != 0 {
			t.Fatalf("policy %d: %s\n%s", i, o.stderr, policy)
		}
		if p := near.preview(config); len(p.Changes) > 0 {
			t.Fatalf("policy %d: the kernel lacks %v\n%s", i, p.Changes, policy)
		}
	}
	close(stop)
	n := <-sent
	waitFor(t, "all datagrams have arrived", func() bool { return len(recorder.all()) >= n })
	t.Logf("%d datagrams, none lost", n)
	near.mustTC(policyFile(t, randomPolicy(r)), "clear")
	near.holdsClear()
}

// A class without children has a qdisc of another kind than a tree: the root changes,
// and the state comes out right all the same. So it does for other devices' sections.
func TestKernelChangesShape(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	lone := "[class.a]\nrate = \"3mbit\"\n[tc.wire]\nclass = \"a\"\n"
	inBytes := "[class.a]\nrate = \"3mbit\"\nqueue = \"64KiB\"\n[tc.wire]\nclass = \"a\"\n"
	moved := strings.ReplaceAll(strings.ReplaceAll(mixed, `class = "uplink"`, `class = "acme"`), "ingress = \"down\"\n", "")
	leaf := strings.ReplaceAll(mixed, "[class.otp]\nparent = \"acme\"", "[class.otp]\nparent = \"uplink\"")
	for _, policy := range []string{lone, mixed, inBytes, lone, mixed, moved, mixed, leaf, mixed + manyRules(600, "otp"), mixed + manyRules(601, "bulk"), mixed + manyRules(601, "otp"), lone} {
		config := policyFile(t, policy)
		near.mustTC(config, "apply")
		near.holdsEqual(config)
	}
	near.mustTC(policyFile(t, lone), "clear")
	near.holdsClear()
}

// A new rate takes effect on a flow that goes on, in place.
func TestKernelRateChangesUnderTheFlow(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, far := wire(t)
	policy := func(rate string) string {
		return policyFile(t, "[class.a]\nrate = \"20mbit\"\n[class.b]\nparent = \"a\"\nrate = \""+rate+"\"\nqueue = \"16KiB\"\n[tc.wire]\nclass = \"a\"\n[[rule]]\nclass = \"b\"\nprotocol = \"udp\"\n")
	}
	near.mustTC(policy("1mbit"), "apply")
	recorder, addr := far.record(t, farEnd)
	c := near.dialUDP(t, addr, 0)
	go pace(c, 1000, 2000) // 16 Mbit/s of payload
	for _, mbit := range []float64{1, 8, 2, 12} {
		near.mustTC(policy(fmt.Sprintf("%gmbit", mbit)), "apply")
		attempts(t, func() error {
			time.Sleep(200 * time.Millisecond) // what waited goes
			from := time.Now()
			time.Sleep(500 * time.Millisecond)
			to := time.Now()
			got := float64(recorder.between(from, to)) * 1042 / 1000 * 8 / to.Sub(from).Seconds()
			if got < 0.93*mbit*1e6 || got > 1.07*mbit*1e6 {
				return fmt.Errorf("%.0f bit/s at %g Mbit/s", got, mbit)
			}
			return nil
		})
	}
}

// What others have made is not touched, unless the policy says so.
func TestKernelRefusesForeignQdiscs(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	config := policyFile(t, mixed)
	near.run("tc qdisc add dev wire root handle 7: tbf rate 5mbit burst 5000 limit 10000")
	before := near.state("wire")
	o := near.tc(config, "apply")
	for _, want := range []string{"tc: add qdisc htb 5ca0: on wire", "qdisc tbf 7:", "take_over = true"} {
		if o.code != 1 || !strings.Contains(o.stderr, want) {
			t.Errorf("exit %d, without %q: %s", o.code, want, o.stderr)
		}
	}
	if o := near.tc(config, "plan"); o.code != 1 {
		t.Error("plan:", o)
	}
	near.mustTC(config, "clear")
	if after := near.state("wire"); after != before {
		t.Errorf("was:\n%s\nis:\n%s", before, after)
	}
	taking := policyFile(t, strings.ReplaceAll(mixed, "[tc.wire]", "[tc.wire]\ntake_over = true"))
	near.mustTC(taking, "apply")
	near.holdsEqual(taking)
	near.mustTC(taking, "clear")
	near.holdsClear()
	near.run("tc qdisc add dev wire clsact")
	if o := near.tc(config, "apply"); o.code != 1 || !strings.Contains(o.stderr, "clsact") {
		t.Errorf("%d %s", o.code, o.stderr)
	}
	if out := near.output("tc qdisc show dev wire"); strings.Contains(out, "5ca0") {
		t.Errorf("half of it was applied:\n%s", out)
	}
}

// The kernel refuses something in the middle: what there was is put back, and the error
// names operation, device and object, with the kernel's own words.
func TestKernelErrorsUndo(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	near.mustTC(policyFile(t, mixed), "apply")
	state := near.state("wire")
	p, _, err := policy.Load(policyFile(t, strings.ReplaceAll(mixed, "ceil = \"8mbit\"", "ceil = \"7mbit\"")+manyRules(400, "otp")))
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []tc.Type{tc.Qdisc, tc.Filter} {
		near.do(func() error {
			k, err := tc.Open()
			if err != nil {
				return err
			}
			defer k.Close()
			d, err := k.Device("wire")
			if err != nil {
				return err
			}
			plan, err := tc.Plan(p, p.TC[0], d)
			if err != nil {
				return err
			}
			last := 0
			for i, o := range plan {
				if o.Type == typ && o.Device == "wire" {
					last = i
				}
			}
			plan[last].Kind = "nonsense"
			_, err = k.Apply(d, plan, false)
			if refused := (*tc.Error)(nil); !errors.As(err, &refused) || refused.Device != "wire" || refused.Kernel == "" || !strings.Contains(err.Error(), "nonsense") {
				t.Errorf("%v", err)
			}
			t.Log(err)
			return nil
		})
		if after := near.state("wire"); stateOf(after) != stateOf(state) {
			t.Errorf("was:\n%s\nis:\n%s", state, after)
		}
	}
}

// stateOf leaves out of a state which of two lists the filters are in, and what number
// their table has there.
func stateOf(state string) string {
	state = regexp.MustCompile(`pref [12][01] `).ReplaceAllString(state, "")
	return regexp.MustCompile(`(fh|ht|index) (80[0-9a-f]|[12])`).ReplaceAllString(state, "$1")
}

// Without the capability the commands say how to get it.
func TestKernelNeedsTheCapability(t *testing.T) {
	if os.Getuid() != 0 {
		missing(t, "root, to give it up")
	}
	config := policyFile(t, mixed)
	if err := os.Chmod(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"plan", "apply", "show", "clear"} {
		cmd := exec.Command(plain(), "-c", config, "tc", what)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 77 || !strings.Contains(string(out), "CAP_NET_ADMIN") || !strings.Contains(string(out), "setcap") {
			t.Errorf("tc %s: %d: %s", what, code, out)
		}
	}
}

// A start after kill -9 at any moment puts everything right, and clear leaves nothing.
func TestKernelSurvivesKill(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	near.run("ip link add other type ifb")
	near.run("tc qdisc add dev other root handle 9: tbf rate 5mbit burst 5000 limit 10000")
	foreign := near.state("other")
	big := strings.Replace(mixed, "queue = \"64KiB\"", "queue = \"64 packets\"", 1) + manyRules(700, "otp")
	small := strings.Replace(strings.Replace(mixed, "[class.otp]\nparent = \"acme\"", "[class.otp]\nparent = \"uplink\"", 1), "ingress = \"down\"\n", "", 1) + manyRules(500, "bulk")
	lone := "[class.a]\nrate = \"3mbit\"\n[tc.wire]\nclass = \"a\"\n"
	configs := []string{policyFile(t, big), policyFile(t, small), policyFile(t, lone)}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	killed := 0
	for i := 0; killed < times(15, 200); i++ {
		what := []string{"apply", "apply", "apply", "clear"}[r.IntN(4)]
		near.do(func() error {
			cmd := exec.Command(plain(), "-c", configs[r.IntN(3)], "tc", what)
			if err := cmd.Start(); err != nil {
				return err
			}
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			cmd.Process.Kill()
			cmd.Wait()
			if !cmd.ProcessState.Exited() {
				killed++
			}
			return nil
		})
		config := configs[r.IntN(3)]
		if i%5 != 4 {
			near.mustTC(config, "apply")
			near.holdsEqual(config)
		}
		if i%5 >= 3 {
			near.mustTC(config, "clear")
			near.holdsClear()
		}
	}
	if after := near.state("other"); after != foreign {
		t.Errorf("a foreign qdisc was:\n%s\nis:\n%s", foreign, after)
	}
	t.Logf("killed %d times in the midst of it", killed)
}

// 10,000 rules are in force within 5 s, and a packet is not classified much slower.
func TestKernelManyRules(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, far := wire(t)
	classes := "[class.root]\nrate = \"10gbit\"\n[class.a]\nparent = \"root\"\nrate = \"5gbit\"\nceil = \"10gbit\"\n[tc.wire]\nclass = \"root\"\n"
	_, addr := far.record(t, farEnd)
	c := near.dialUDP(t, addr, 0)
	cost := map[int]time.Duration{}
	for _, n := range []int{1, 10, 1000, 10000} {
		config := policyFile(t, classes+manyRules(n, "a"))
		began := time.Now()
		near.mustTC(config, "apply")
		took := time.Since(began)
		if n == 10000 && took > 5*time.Second {
			t.Errorf("%d rules took %v", n, took)
		}
		near.holdsEqual(config)
		cost[n] = sendingTime(c)
		t.Logf("%5d rules: applied in %v; a datagram that none matches takes %v", n, took.Round(time.Millisecond), cost[n])
	}
	if cost[10000] > 3*cost[10]+5*time.Microsecond {
		t.Errorf("with 10,000 rules a datagram takes %v, with 10 %v", cost[10000], cost[10])
	}
}

// sendingTime returns how long a datagram takes to be sent: the shortest of several
// means.
func sendingTime(c net.Conn) (shortest time.Duration) {
	const datagrams = 3000
	for range 5 {
		began := time.Now()
		for range datagrams {
			c.Write([]byte("x"))
		}
		if took := time.Since(began) / datagrams; shortest == 0 || took < shortest {
			shortest = took
		}
	}
	return shortest
}
