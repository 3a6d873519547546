package tests

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// randomPolicy returns a policy with a random tree of classes for the device wire, and rules.
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

// Whatever policy replaces another, the kernel then equals the plan. A flow that no rule matches
// loses no datagram.
func TestKernelFollowsRandomPolicies(t *testing.T) {
	t.Parallel()
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
	for i := range trial.Size(25, 1000) {
		policy := randomPolicy(r)
		config := policyFile(t, policy)
		if o := near.tc(config, "apply"); o.code != 0 {
			t.Fatalf("policy %d: %s\n%s", i, o.stderr, policy)
		}
		if d := near.differences(config); len(d) > 0 {
			t.Fatalf("policy %d: the kernel differs from the plan: %v\n%s", i, d, policy)
		}
	}
	close(stop)
	n := <-sent
	trial.Await(t, "all datagrams have arrived", func() bool { return len(recorder.all()) >= n })
	t.Logf("%d datagrams, none lost", n)
	trial.Figure(t, "random policies; datagrams, none lost", "%d; %d", trial.Size(25, 1000), n)
	near.mustTC(policyFile(t, randomPolicy(r)), "clear")
	near.checkClear()
}

// The kernel follows policies that need another kind of root qdisc, other classes, or other tables
// of filters. A class without children has another root qdisc than a tree.
func TestKernelChangesShape(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	lone := "[class.a]\nrate = \"3mbit\"\n[tc.wire]\nclass = \"a\"\n"
	inBytes := "[class.a]\nrate = \"3mbit\"\nqueue = \"64KiB\"\n[tc.wire]\nclass = \"a\"\n"
	moved := strings.ReplaceAll(strings.ReplaceAll(mixed, `class = "uplink"`, `class = "acme"`), "ingress = \"down\"\n", "")
	leaf := strings.ReplaceAll(mixed, "[class.otp]\nparent = \"acme\"", "[class.otp]\nparent = \"uplink\"")
	for _, policy := range []string{lone, mixed, inBytes, lone, mixed, moved, mixed, leaf, mixed + manyRules(600, "otp"), mixed + manyRules(601, "bulk"), mixed + manyRules(601, "otp"), lone} {
		config := policyFile(t, policy)
		near.mustTC(config, "apply")
		near.checkInForce(config)
	}
	near.mustTC(policyFile(t, lone), "clear")
	near.checkClear()
}

// A new rate takes effect on a flow without interrupting it.
func TestKernelRateChangesUnderTheFlow(t *testing.T) {
	t.Parallel()
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
		trial.Judge(t, 5*time.Millisecond, func() *trial.Miss {
			time.Sleep(200 * time.Millisecond) // the queue of the old rate empties
			from := time.Now()
			time.Sleep(500 * time.Millisecond)
			to := time.Now()
			got := float64(recorder.between(from, to)) * 1042 / 1000 * 8 / to.Sub(from).Seconds()
			if got > 1.07*mbit*1e6 {
				t.Errorf("%.0f bit/s at a rate of %g Mbit/s", got, mbit)
			}
			return trial.Least(got, 0.93*mbit*1e6, 0.1*mbit*1e6, "%.0f bit/s at a rate of %g Mbit/s", got, mbit)
		})
	}
}

// If apply or clear is killed at any moment, the next apply puts everything right, and the next
// clear removes everything. Foreign qdiscs stay as they are.
func TestKernelSurvivesKill(t *testing.T) {
	t.Parallel()
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
	for i := 0; killed < trial.Size(10, 200); i++ {
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
			near.checkInForce(config)
		}
		if i%5 >= 3 {
			near.mustTC(config, "clear")
			near.checkClear()
		}
	}
	if after := near.state("other"); after != foreign {
		t.Errorf("a foreign qdisc was:\n%s\nand is:\n%s", foreign, after)
	}
	t.Logf("killed %d times during a change", killed)
	trial.Figure(t, "killed during a change", "%d times", killed)
}

// 10,000 rules are in force within 5 s. They make classifying a packet at most three times as
// slow as ten rules do.
func TestKernelManyRules(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, far := wire(t)
	classes := "[class.root]\nrate = \"10gbit\"\n[class.a]\nparent = \"root\"\nrate = \"5gbit\"\nceil = \"10gbit\"\n[tc.wire]\nclass = \"root\"\n"
	_, addr := far.record(t, farEnd)
	c := near.dialUDP(t, addr, 0)
	cost := map[int]time.Duration{}
	for _, n := range []int{1, 10, 1000, 10000} {
		config := policyFile(t, classes+manyRules(n, "a"))
		watch, began := trial.Begin(), time.Now()
		near.mustTC(config, "apply")
		took := time.Since(began)
		watch.Below(t, fmt.Sprintf("%d rules", n), took, 5*time.Second)
		near.checkInForce(config)
		cost[n] = sendingTime(c)
		t.Logf("%5d rules: applied in %v; a datagram that no rule matches takes %v", n, took.Round(time.Millisecond), cost[n])
		trial.Figure(t, fmt.Sprintf("%d rules: applied in; a datagram takes", n), "%v; %v", took.Round(time.Millisecond), cost[n])
	}
	if cost[10000] > 3*cost[10]+5*time.Microsecond {
		t.Errorf("with 10,000 rules a datagram takes %v, with 10 %v", cost[10000], cost[10])
	}
}

// sendingTime returns how long it takes to send a datagram. It returns the smallest of many means,
// each over a time so short that other programs rarely disturb it.
func sendingTime(c net.Conn) (shortest time.Duration) {
	const datagrams = 300
	for range 50 {
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
