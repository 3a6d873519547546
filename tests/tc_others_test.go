package tests

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"shaper/policy"
	"shaper/tc"
	"shaper/tests/trial"
)

// If several processes apply one policy at the same time, all succeed, and the kernel equals the
// plan. An object that another process has just made is no error.
func TestKernelTakesSeveralAtOnce(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	config := policyFile(t, mixed)
	p, _, err := policy.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(k *tc.Kernel) error {
		d, err := k.Device("wire")
		if err != nil {
			return err
		}
		plan, err := tc.Plan(p, p.TC[0], d)
		if err != nil {
			return err
		}
		_, err = k.Apply(d, plan, false)
		return err
	}
	for range trial.Size(5, 50) {
		var kernels []*tc.Kernel // opened in the namespace, where their sockets stay
		near.do(func() error {
			for range 6 {
				k, err := tc.Open()
				if err != nil {
					return err
				}
				t.Cleanup(k.Close)
				kernels = append(kernels, k)
			}
			return nil
		})
		var all sync.WaitGroup
		for _, k := range kernels {
			all.Go(func() {
				if err := apply(k); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		near.checkInForce(config)
		near.mustTC(config, "clear")
		near.checkClear()
		if t.Failed() {
			return
		}
	}
}

// If other programs change objects of shaper, plan shows the difference, and apply repairs it in
// place.
func TestKernelSeesWhatOthersChange(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	config := policyFile(t, mixed)
	near.mustTC(config, "apply")
	ifb := mirrorOf(near.preview(config))
	class := regexp.MustCompile(`tc class add (dev wire parent \S+ classid 5ca0:1 .*)\n`).FindStringSubmatch(strings.Join(near.preview(config).Commands, "\n"))[1]
	root := regexp.MustCompile(`tc qdisc add (dev shaper\d+ root .*)\n`).FindStringSubmatch(strings.Join(near.preview(config).Commands, "\n"))[1]
	state := near.state("wire")
	for _, change := range []string{
		"tc class change " + class + " overhead 100",
		"tc class change " + class + " mpu 1000",
		"tc class change " + class + " linklayer atm",
		"tc qdisc change " + root + " overhead 100",
		"tc qdisc change " + root + " peakrate 90mbit mtu 3000",
		"tc filter del dev wire parent ffff: protocol all pref 23712",
		"ip link set " + ifb + " down", // all incoming packets are lost
	} {
		near.output(change)
		if p := near.preview(config); len(p.Changes) == 0 {
			t.Errorf("plan shows no difference after: %s", change)
		}
		if out := near.mustTC(config, "apply"); !strings.Contains(out, "changed 1 ") {
			t.Errorf("after %s, apply does not report one change: %s", change, out)
		}
		near.checkInForce(config)
	}
	near.run("tc qdisc del dev wire root") // the note of the old gso_max_size is lost with it
	near.mustTC(config, "clear")
	near.checkClear()
	near.mustTC(config, "apply")
	near.mustTC(policyFile(t, "nonsense"), "clear", "wire") // clear with a device needs no policy
	near.checkClear()
	near.mustTC(config, "apply")
	for _, then := range []string{"apply", "clear"} { // without the ifb all incoming packets are dropped
		near.output("ip link del " + ifb)
		near.mustTC(config, then)
		if then == "apply" {
			near.checkInForce(config)
		}
	}
	near.checkClear()
	near.mustTC(config, "apply")
	if after := near.state("wire"); after != state {
		t.Errorf("the state was:\n%s\nand is:\n%s", state, after)
	}
	if out := near.output("ip link show " + ifb); !strings.Contains(out, ",UP") {
		t.Errorf("the ifb is down: %s", out)
	}
}

// A foreign device that has the name of shaper's ifb is left alone, and apply fails.
func TestKernelLeavesDevicesOfOurName(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	index := strings.TrimSpace(near.output("ip -o link show wire | cut -d: -f1"))
	name := fmt.Sprint("shaper", index)
	near.run("ip link add %s type veth peer name other", name)
	config := policyFile(t, mixed)
	if o := near.tc(config, "apply"); o.code != 1 || !strings.Contains(o.stderr, "add ifb on "+name+": file exists") {
		t.Errorf("apply: exit %d, want 1 and \"file exists\": %s", o.code, o.stderr)
	}
	near.mustTC(config, "clear")
	if out := near.output("ip link show; tc qdisc show"); !strings.Contains(out, name+"@") || strings.Contains(out, "5ca0") {
		t.Errorf("the foreign device is gone, or objects of shaper remain:\n%s", out)
	}
}
