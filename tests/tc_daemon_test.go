package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"shaper/tests/trial"
)

// keptPolicy returns a policy with apply = true, which the daemon keeps in force in the kernel.
// Class acme has the rate.
func keptPolicy(rate string) string {
	return daemonSection + `
[class.uplink]
rate = "20mbit"
[class.acme]
parent = "uplink"
rate = "` + rate + `"
[class.other]
parent = "uplink"
rate = "1mbit"
ceil = "20mbit"
[listener.acme]
listen = "127.0.0.1:0"
upstream = "` + farEnd + `:7002"
class = "acme"
[listener.other]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "` + farEnd + `:7003"
class = "other"
[tc.wire]
class = "uplink"
apply = true
mark = true
`
}

// The daemon keeps its policy in force in the kernel: after a start, a reload and a set, after
// other programs change it, and after the device was down or removed. If the daemon dies, its
// objects stay, and the next daemon adopts them.
func TestKernelIsKeptByTheDaemon(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	near.run("ip link set lo up")
	p := startIn(near, t, raced(t), keptPolicy("2mbit"))
	near.checkInForce(p.config)
	if o := near.tc(p.config, "clear", "wire"); o.code != 0 || !strings.Contains(o.stderr, "warning: wire: a daemon runs that puts it back") {
		t.Errorf("clear: exit %d, want 0 and a warning: %s", o.code, o.stderr)
	}
	near.waitInForce(p.config, "what a command has cleared is back")
	checkCorrected(near, p)
	checkReloads(near, p)
	checkRemoved(near, p)
	checkAdopted(near, p)
}

// checkCorrected has other programs change what is in the kernel, and checks that the daemon corrects
// each change and has it in its history.
func checkCorrected(near *namespace, p *program) {
	near.t.Helper()
	near.run("tc qdisc del dev wire root")
	near.waitInForce(p.config, "the root is back")
	near.run("tc class change dev wire parent 5ca0:4365 classid 5ca0:36f0 htb rate 1mbit ceil 1mbit")
	near.waitInForce(p.config, "the class is as it was")
	near.run("tc filter add dev wire parent 5ca0: protocol ip pref 11 u32 match u32 0 0 flowid 5ca0:1")
	near.waitInForce(p.config, "the foreign filter in our tree is gone")
	near.run("ip link set wire gso_max_size 60000")
	near.waitInForce(p.config, "packets are no larger than the burst")
	near.run("ip link set wire down")
	near.run("ip link set wire up")
	near.waitInForce(p.config, "the policy is in force after the link was down")

	// A change of the device wakes the daemon before it is corrected.
	trial.Await(near.t, "the corrections are in the history", func() bool {
		return strings.Count(p.must("history"), "kernel corrected by watch") >= 4
	})
}

// checkReloads checks that a reload and a set reach the kernel. The daemon refuses a policy that it
// cannot apply, and keeps the one before.
func checkReloads(near *namespace, p *program) {
	near.t.Helper()
	p.write(keptPolicy("3mbit"))
	p.must("reload")
	near.checkInForce(p.config)
	p.must("set", "acme", "rate=4mbit")
	if out := near.output("tc class show dev wire"); !strings.Contains(out, "rate 4Mbit") {
		near.t.Errorf("set does not reach the kernel:\n%s", out)
	}

	p.must("reload")
	near.run("ip link add foreign type ifb")
	near.run("tc qdisc add dev foreign root handle 7: tbf rate 5mbit burst 5000 limit 10000")
	p.write(keptPolicy("5mbit") + "[tc.foreign]\nclass = \"acme\"\napply = true\n")
	if _, stderr, code := p.cli("reload"); code != 1 || !strings.Contains(stderr, "take_over") {
		near.t.Errorf("reload: exit %d, want 1 and take_over: %s", code, stderr)
	}
	p.write(keptPolicy("3mbit"))
	near.checkInForce(p.config)
}

// checkRemoved checks that the daemon removes its objects if a section loses apply = true, and applies
// them when it has that again. In between, commands change the kernel, and the daemon's history has
// that.
func checkRemoved(near *namespace, p *program) {
	near.t.Helper()
	p.write(strings.Replace(keptPolicy("3mbit"), "apply = true", "apply = false", 1))
	p.must("reload")
	near.checkClear()
	if o := near.tc(p.config, "clear"); o.code != 0 || o.stderr != "" {
		near.t.Errorf("clear: exit %d, want 0 and no warning: %s", o.code, o.stderr)
	}
	for what, change := range map[string]string{"apply": "+ tc wire: policy " + p.status().PolicyHash + ", ", "clear": "- tc wire: "} {
		near.mustTC(p.config, "apply")
		near.mustTC(p.config, "clear")
		if out := p.must("history"); !strings.Contains(out, "tc "+what+" by uid=0 pid=") || !strings.Contains(out, "\n   "+change) {
			near.t.Errorf("after tc %s the history is\n%s", what, out)
		}
	}
	near.checkClear()
	p.write(keptPolicy("3mbit"))
	p.must("reload")
	near.checkInForce(p.config)
}

// checkAdopted kills the daemon, and checks that its objects stay and that the next one adopts them. It
// also shapes a new device of the same name.
func checkAdopted(near *namespace, p *program) {
	near.t.Helper()
	p.kill()
	near.checkInForce(p.config)
	p.write(keptPolicy("2mbit"))
	p.run()
	near.checkInForce(p.config)
	near.run("ip link del wire")
	near.run("ip link add wire type ifb")
	near.run("ip link set wire up")
	near.waitInForce(p.config, "a new device of this name is shaped")
}

// If the kernel refuses a reload for one device, the other devices stay as they were, even those
// that had no policy before.
func TestKernelReloadIsAllOrNothing(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	near.run("ip link set lo up")
	near.run("ip link add foreign type ifb")
	near.run("tc qdisc add dev foreign root handle 7: tbf rate 5mbit burst 5000 limit 10000")
	bare := strings.Replace(keptPolicy("2mbit"), "apply = true\nmark = true\n", "", 1)
	p := startIn(near, t, plain(), bare)
	foreign := "[tc.foreign]\nclass = \"acme\"\napply = true\n"
	p.write(keptPolicy("2mbit") + foreign)
	if _, stderr, code := p.cli("reload"); code != 1 || !strings.Contains(stderr, "take_over") {
		t.Errorf("reload: exit %d, want 1 and take_over: %s", code, stderr)
	}
	near.checkClear()
	p.write(keptPolicy("2mbit"))
	p.must("reload")
	near.run("ip link add more type ifb")
	p.write(keptPolicy("3mbit") + foreign + strings.ReplaceAll(foreign, "foreign", "more"))
	if _, _, code := p.cli("reload"); code != 1 {
		t.Errorf("reload: exit %d, want 1", code)
	}
	p.write(keptPolicy("2mbit"))
	near.checkInForce(p.config)
	if out := near.output("tc qdisc show dev more"); strings.Contains(out, "5ca") {
		t.Errorf("the refused policy leaves:\n%s", out)
	}
}

// The daemon repairs its objects even while other changes to the device go on.
func TestKernelIsKeptAmidNoise(t *testing.T) {
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	near.run("ip link set lo up")
	p := startIn(near, t, plain(), keptPolicy("2mbit"))
	near.output("tc qdisc del dev wire root; for i in $(seq 200); do ip link set wire alias a$i; sleep 0.005; tc qdisc show dev wire | grep -q 5ca0 && exit; done; echo no root qdisc >&2; exit 1")
	near.checkInForce(p.config)
}

// If more notifications come than the daemon's socket holds, some are lost (ENOBUFS). The daemon
// then compares everything, and continues to see changes.
func TestKernelNotificationsAreLost(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, _ := wire(t)
	near.run("ip link set lo up")
	p := startIn(near, t, plain(), keptPolicy("2mbit"))
	var batch strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&batch, "class change dev wire parent 5ca0:4365 classid 5ca0:36f0 htb rate %dkbit ceil 1mbit\n", 100+i%2)
	}
	file := policyFile(t, batch.String())
	p.signal(syscall.SIGSTOP)
	near.run("tc -batch %s", file)
	lost := near.output("cat /proc/net/netlink | awk '$2 == 0 { n += $9 } END { print n }'")
	p.signal(syscall.SIGCONT)
	if strings.TrimSpace(lost) == "0" {
		t.Error("no notification was lost, so there is nothing to test")
	}
	near.waitInForce(p.config, "the class is as it was")
	near.run("tc qdisc del dev wire root")
	near.waitInForce(p.config, "the root is back")
	if strings.Contains(p.log.String(), "no longer sees changes") {
		t.Errorf("%s", p.log)
	}
}

// The metrics of the kernel's counters have the names of the proxy's, and the label engine="tc".
func TestKernelCountersAreMetrics(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	tool(t, "curl", "curl")
	near, far := wire(t)
	near.run("ip link set lo up")
	p := startIn(near, t, plain(), keptPolicy("2mbit"))
	recorder, addr := far.record(t, farEnd)
	p.write(strings.Replace(keptPolicy("2mbit"), farEnd+":7003", addr, 1))
	p.must("reload")
	c := near.dialUDP(t, p.addr("other"), 0)
	for range 10 {
		c.Write(make([]byte, 1000))
	}
	trial.Await(t, "ten datagrams have arrived", func() bool { return len(recorder.all()) == 10 })
	var metrics string
	trial.Await(t, "the kernel's counters are read: if its part is being changed, what was read before is shown", func() bool {
		metrics = near.output("curl -s http://" + p.status().HTTP + "/metrics")
		return !strings.Contains(metrics, `shaper_class_sent_packets_total{class="other",direction="upstream",engine="tc"} 0`)
	})
	for _, want := range []string{
		`shaper_class_sent_bytes_total{class="other",direction="upstream",engine="tc"} 10420`, // 10 frames of 14 + 20 + 8 + 1,000 bytes; their mark selects the class
		`shaper_class_sent_packets_total{class="other",direction="upstream",engine="tc"} 10`,
		`shaper_class_sent_bytes_total{class="other",direction="upstream"} 10000`,
		`shaper_class_dropped_total{class="acme",engine="tc",reason="queue_full"} 0`,
		`shaper_class_rate{class="acme",engine="tc",unit="bytes"} 250000`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics does not show %s", want)
		}
	}
	if t.Failed() {
		t.Log(regexp.MustCompile(`(?m)^shaper_class_sent.*engine="tc".*$`).FindAllString(metrics, -1))
	}
}

// The proxy marks its packets with their class, from the first segment of a TCP connection on.
// After a reload, an open connection has the mark of its new class.
func TestKernelSeesMarks(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	near, far := wire(t)
	near.run("ip link set lo up")
	far.do(func() error {
		l, err := net.Listen("tcp", farEnd+":7002")
		if err != nil {
			return err
		}
		serveOn(t, l, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
		return nil
	})
	p := startIn(near, t, plain(), keptPolicy("2mbit"))
	var c net.Conn
	near.do(func() (err error) {
		c, err = net.Dial("tcp", p.addr("acme"))
		return err
	})
	defer c.Close()
	sent := func(class string) uint64 {
		var packets uint64
		for _, o := range near.shown(p.config) {
			if o.Type == "class" && o.Class == class {
				packets += o.Counters.Packets
			}
		}
		return packets
	}
	c.Write([]byte("one"))
	trial.Await(t, "acme has sent", func() bool { return sent("acme") >= 3 }) // SYN, ACK, data
	p.write(strings.Replace(strings.Replace(keptPolicy("2mbit"), "[class.acme]", "[class.anew]", 1), "class = \"acme\"", "class = \"anew\"", 1))
	p.must("reload")
	before := sent("anew")
	c.Write([]byte("two"))
	trial.Await(t, "the open connection sends in its new class", func() bool { return sent("anew") > before })
	if n := sent("uplink/"); n != 0 {
		t.Errorf("%d packets were not marked", n)
	}
}

// shown returns what `shaper tc show --json` prints.
func (n *namespace) shown(config string) (all []counted) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(n.mustTC(config, "show", "--json")), &all); err != nil {
		n.t.Fatal(err)
	}
	return all
}

// Without CAP_NET_ADMIN the proxy runs, and the log says that the kernel part is off.
func TestKernelIsOffWithoutTheCapability(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skipUnlessCI(t, "the test needs root, to run the daemon as another user")
	}
	dir, err := os.MkdirTemp(binDir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	config := dir + "/shaper.toml"
	policy := strings.ReplaceAll(keptPolicy("2mbit"), farEnd+":7002", "echo:")
	if err := os.WriteFile(config, []byte(policy), 0o644); err != nil {
		t.Fatal(err)
	}
	log := new(trial.Log)
	cmd := exec.Command(plain(), "-c", config, "run")
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(syscall.SIGTERM)
	trial.Await(t, "the daemon is ready", func() bool { return strings.Contains(log.String(), "msg=control") })
	if !strings.Contains(log.String(), "THE KERNEL PART IS OFF") || !strings.Contains(log.String(), "CAP_NET_ADMIN") {
		t.Errorf("the log does not say that the kernel part is off:\n%s", log)
	}
	m := regexp.MustCompile(`listener=acme protocol=tcp addresses=(\S+)`).FindStringSubmatch(log.String())
	c := dial(t, "", m[1])
	defer c.Close()
	if n := echo(t, c, 1000); n != 1000 {
		t.Errorf("%d bytes came back, want 1000", n)
	}
}
