package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"shaper/policy"
	"shaper/tc"
	"shaper/tests/trial"
)

// policyFile writes a policy to a file in a new directory.
func policyFile(t *testing.T, text string) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp(binDir, "")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "shaper.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// outcome is the output and exit code of a command.
type outcome struct {
	stdout, stderr string
	code           int
}

// tc runs `shaper tc` in the namespace.
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

// mustTC runs a `shaper tc` that has to succeed, and returns its output.
func (n *namespace) mustTC(config string, args ...string) string {
	n.t.Helper()
	o := n.tc(config, args...)
	if o.code != 0 {
		n.t.Fatalf("shaper tc %v: exit %d\n%s%s", args, o.code, o.stdout, o.stderr)
	}
	return o.stdout
}

// output runs a shell script in the namespace, and returns what it prints.
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

// preview is what `shaper tc plan --json` prints of a device.
type preview struct {
	Device   string
	Commands []string
	Changes  []struct{ Op, Command string }
}

// preview returns the plan of a policy with one device.
func (n *namespace) preview(config string) (p preview) {
	n.t.Helper()
	var all []preview
	if err := json.Unmarshal([]byte(n.mustTC(config, "plan", "--json")), &all); err != nil || len(all) != 1 {
		n.t.Fatalf("plan --json gives %v, %v; want one device", all, err)
	}
	return all[0]
}

// differences returns how the kernel differs from the plan of a policy with one device. It asks as the command does,
// but in this process: tests ask often, and a start of the program takes longer than what it then does.
func (n *namespace) differences(config string) (d []tc.Step) {
	n.t.Helper()
	n.do(func() error {
		p, _, err := policy.Load(config)
		if err != nil {
			return err
		}
		if len(p.TC) != 1 {
			return fmt.Errorf("the policy has %d devices, want one", len(p.TC))
		}
		k, err := tc.Open()
		if err != nil {
			return err
		}
		defer k.Close()
		device, err := k.Device(p.TC[0].Device)
		if err != nil {
			return err
		}
		plan, err := tc.Plan(p, p.TC[0], device)
		if err != nil {
			return err
		}
		preview, err := k.Preview(device, plan, p.TC[0].TakeOver)
		d = preview.Changes
		return err
	})
	return d
}

// checkInForce checks that the kernel equals the plan of a policy.
func (n *namespace) checkInForce(config string) {
	n.t.Helper()
	if d := n.differences(config); len(d) > 0 {
		n.t.Fatalf("the kernel differs from the plan: %v", d)
	}
}

// waitInForce waits until the kernel equals the plan of a policy.
func (n *namespace) waitInForce(config, what string) {
	n.t.Helper()
	trial.Await(n.t, what, func() bool { return len(n.differences(config)) == 0 })
}

// checkClear checks that no object of shaper remains in the namespace.
func (n *namespace) checkClear() {
	n.t.Helper()
	out := n.output("tc qdisc show; tc filter show dev wire; ip -d link show")
	for _, ours := range []string{"5ca0", "5ca1", "ingress", "shaper", "gso_max_size 3028"} {
		if strings.Contains(out, ours) {
			n.t.Fatalf("%s remains:\n%s", ours, out)
		}
	}
}

// state returns the qdiscs, classes and filters of a device as tc(8) prints them, without counters.
func (n *namespace) state(device string) string {
	state := n.output(fmt.Sprintf("tc -d qdisc show dev %[1]s; tc -d class show dev %[1]s | sort; tc -d filter show dev %[1]s; tc -d filter show dev %[1]s parent ffff:", device))
	return regexp.MustCompile(`direct_packets_stat \d+`).ReplaceAllString(state, "direct_packets_stat")
}

// mixed is a policy that uses everything that a [tc.DEVICE] section can ask for.
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

// manyRules returns n rules. If n is large, the plan uses hash tables for them.
func manyRules(n int, class string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[rule]]\nsource = \"10.%d.%d.%d\"\nclass = %q\n", 100+i>>16, i>>8&0xff, i&0xff, class)
	}
	return b.String()
}

// The commands that plan prints, run by hand, give the same state as apply.
func TestKernelPlanIsWhatIsApplied(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	for name, policy := range map[string]string{"mixed": mixed, "tables": mixed + manyRules(600, "otp"), "lone": "[class.a]\nrate = \"3mbit\"\n[tc.wire]\nclass = \"a\"\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, _ := wire(t)
			byHand, _ := wire(t)
			config := policyFile(t, policy)
			p := near.preview(config)
			if len(p.Changes) == 0 {
				t.Fatal("the plan for a new device has no changes")
			}
			byHand.output("set -e\n" + strings.Join(p.Commands, "\n"))
			applied := near.tc(config, "apply")
			if made := "\"tc apply\" by=\"uid=0 pid="; applied.code != 0 || !strings.Contains(applied.stderr, made) || !strings.Contains(applied.stderr, "op=+ what=tc name=wire before=\"\" after=\"policy ") {
				t.Fatalf("without a daemon, apply does not log what it has changed: %+v", applied)
			}
			near.checkInForce(config)
			byHand.checkInForce(config)
			for _, device := range []string{"wire", mirrorOf(p)} {
				if device == "" {
					continue
				}
				if a, b := near.state(device), byHand.state(device); a != b {
					t.Errorf("%s: after apply:\n%s\nby hand:\n%s", device, a, b)
				}
			}
			if out := near.mustTC(config, "apply"); !strings.Contains(out, "changed 0 ") {
				t.Errorf("a second apply makes changes: %s", out)
			}
			for range 2 {
				near.mustTC(config, "clear")
				near.checkClear()
			}
		})
	}
}

// mirrorOf returns the name of the ifb in a plan, or "".
func mirrorOf(p preview) string {
	for _, line := range p.Commands {
		if name, ok := strings.CutPrefix(line, "ip link add dev "); ok {
			name, _, _ = strings.Cut(name, " ")
			return name
		}
	}
	return ""
}

// counted is an object in the output of `shaper tc show --json`.
type counted struct {
	Type, Device, Kind, Handle, Parent, Class string
	Counters                                  struct{ Bytes, Packets, Dropped, Overlimits uint64 }
}

// `shaper tc show` shows the counters that `tc -s` shows.
func TestKernelShowAgreesWithTC(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, far := wire(t)
	config := policyFile(t, mixed)
	near.mustTC(config, "apply")
	_, bulk := far.record(t, farEnd)
	port := bulk[strings.LastIndex(bulk, ":")+1:]
	config = policyFile(t, strings.ReplaceAll(mixed, "port = 5001", "port = "+port))
	near.mustTC(config, "apply")
	c := near.dialUDP(t, bulk, 0)
	for range 300 { // 300 kB: some find the queue of 64 KiB full
		c.Write(make([]byte, 1000))
	}
	trial.Await(t, "the queue is empty", func() bool {
		return !regexp.MustCompile(`backlog [1-9]`).MatchString(near.output("tc -s class show dev wire"))
	})

	// The kernel may send packets at any time, so read both between two equal outputs of tc.
	counts, all := "", []counted(nil)
	trial.Await(t, "the counters stand still", func() bool {
		counts = near.output("tc -s qdisc show dev wire; tc -s class show dev wire")
		all = near.shown(config)
		return near.output("tc -s qdisc show dev wire; tc -s class show dev wire") == counts
	})
	shown := map[string]counted{}
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
	for _, m := range stat.FindAllStringSubmatch(counts, -1) {
		o, ok := shown[m[1]+" wire "+m[2]]
		if got := fmt.Sprint(o.Counters.Bytes, o.Counters.Packets, o.Counters.Dropped, o.Counters.Overlimits); !ok || got != strings.Join(m[3:], " ") {
			t.Errorf("%s %s: tc counts %v, shaper %v", m[1], m[2], m[3:], got)
		}
		matches++
	}
	if b := all[slices.IndexFunc(all, func(o counted) bool { return o.Type == "class" && o.Class == "bulk" })].Counters; matches < 10 || b.Packets < 60 || b.Dropped == 0 {
		t.Errorf("%d objects match, want at least 10; class bulk counts %+v, want drops and at least 60 packets", matches, b)
	}
}

// After a device is removed, clear finds and removes its ifb.
func TestKernelClearsAfterTheDevice(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	config := policyFile(t, mixed)
	near.mustTC(config, "apply")
	near.run("ip link del wire")
	if out := near.output("ip link show"); !strings.Contains(out, "shaper") {
		t.Fatalf("there is no ifb:\n%s", out)
	}
	if o := near.tc(config, "apply"); o.code != 1 || !strings.Contains(o.stderr, "tc: read link on wire: there is no such network device") {
		t.Errorf("apply: exit %d, want 1 and the reason: %s", o.code, o.stderr)
	}
	for range 2 {
		near.mustTC(config, "clear")
	}
	if out := near.output("ip link show"); strings.Contains(out, "shaper") {
		t.Errorf("the ifb remains:\n%s", out)
	}
}

// Shaper refuses to replace foreign qdiscs, unless the policy says take_over = true.
func TestKernelRefusesForeignQdiscs(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	config := policyFile(t, mixed)
	near.run("tc qdisc add dev wire root handle 7: tbf rate 5mbit burst 5000 limit 10000")
	before := near.state("wire")
	o := near.tc(config, "apply")
	for _, want := range []string{"tc: add qdisc htb 5ca0: on wire", "qdisc tbf 7:", "take_over = true"} {
		if o.code != 1 || !strings.Contains(o.stderr, want) {
			t.Errorf("exit %d, want 1 and %q: %s", o.code, want, o.stderr)
		}
	}
	if o := near.tc(config, "plan"); o.code != 1 {
		t.Errorf("plan: exit %d, want 1: %s", o.code, o.stderr)
	}
	near.mustTC(config, "clear")
	if after := near.state("wire"); after != before {
		t.Errorf("the state was:\n%s\nand is:\n%s", before, after)
	}
	taking := policyFile(t, strings.ReplaceAll(mixed, "[tc.wire]", "[tc.wire]\ntake_over = true"))
	near.mustTC(taking, "apply")
	near.checkInForce(taking)
	near.mustTC(taking, "clear")
	near.checkClear()
	near.run("tc qdisc add dev wire clsact")
	if o := near.tc(config, "apply"); o.code != 1 || !strings.Contains(o.stderr, "clsact") {
		t.Errorf("apply: exit %d, want 1 and the reason: %s", o.code, o.stderr)
	}
	if out := near.output("tc qdisc show dev wire"); strings.Contains(out, "5ca0") {
		t.Errorf("a part of the policy was applied:\n%s", out)
	}
}

// If the kernel refuses an object in the middle of a plan, apply restores the state before. The
// error names the operation, the device and the object, and contains the kernel's message.
func TestKernelErrorsUndo(t *testing.T) {
	t.Parallel()
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
				t.Errorf("apply returns %v, want a tc.Error about wire and nonsense", err)
			}
			t.Log(err)
			return nil
		})
		if after := near.state("wire"); stateOf(after) != stateOf(state) {
			t.Errorf("the state was:\n%s\nand is:\n%s", state, after)
		}
	}
}

// stateOf removes from a state what may differ after an undo: in which of two lists the filters
// are, and the numbers of their tables.
func stateOf(state string) string {
	state = regexp.MustCompile(`pref [12][01] `).ReplaceAllString(state, "")
	return regexp.MustCompile(`(fh|ht|index) (80[0-9a-f]|[12])`).ReplaceAllString(state, "$1")
}

// Without CAP_NET_ADMIN the commands fail and say how to get it.
func TestKernelNeedsTheCapability(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skipUnlessCI(t, "the test needs root, to run commands as another user")
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
			t.Errorf("tc %s: exit %d, want 77: %s", what, code, out)
		}
	}
}
