package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// umlScript is the init process of user-mode Linux. Its root is this machine's, read-only. Each
// part of its output begins with a line "== NAME". Part "log" has what the programs wrote to
// standard error.
const umlScript = `#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmpfs /mnt
exec 2>/mnt/log
mkdir -p /mnt/lib && ln -s /usr/lib/uml/modules /mnt/lib/modules
for m in veth ifb sch_htb sch_tbf sch_fq_codel sch_sfq sch_ingress cls_u32 cls_flower cls_bpf act_mirred; do modprobe -d /mnt $m; done
cd DIR
say() { echo "== $1"; }
tc() { /usr/sbin/tc "$@"; }
ip link set lo up
ip link add wire type veth peer name far && ip link set wire up && ip link set far up
ip addr add 192.0.2.1/30 dev wire && ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:01 dev wire
S="./shaper -c uml.toml tc"
say plan; $S plan --json
say apply; $S apply; $S apply
say lacks; $S plan --json
for i in 1 2 3 4 5; do echo hello > /dev/udp/192.0.2.2/5001; done
say show; $S show --json
say state; tc qdisc show dev wire; tc class show dev wire | sort; tc filter show dev wire
say reroute; ./shaper -c other.toml tc apply; ./shaper -c other.toml tc plan --json
say many; ./shaper -c many.toml tc apply; ./shaper -c many.toml tc plan --json
say lone; ./shaper -c lone.toml tc apply; ./shaper -c lone.toml tc plan --json; tc qdisc show dev wire
say clear; $S clear; tc qdisc show; ip -d link show dev wire
ip link del wire; ip link add wire type veth peer name far && ip link set wire up && ip link set far up
say hand; BYHAND
tc qdisc show dev wire; tc class show dev wire | sort; tc filter show dev wire
say log; cat /mnt/log
say end
halt -f
`

// In a kernel that has fq_codel and flower, plan uses them for leaves and filters. Apply, show and
// clear work there as well.
func TestUserModeLinux(t *testing.T) {
	if !trial.Full {
		t.Skip("runs at full size only: make uml")
	}
	linux := tool(t, "linux.uml", "user-mode-linux")
	tool(t, "modprobe", "kmod")
	dir, err := os.MkdirTemp(binDir, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"uml.toml":   mixed,
		"other.toml": strings.Replace(mixed, "class = \"bulk\"\n[[rule]]", "class = \"otp\"\n[[rule]]", 1),
		"many.toml":  mixed + manyRules(600, "otp"),
		"lone.toml":  "[class.a]\nrate = \"3mbit\"\n[tc.wire]\nclass = \"a\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(plain(), filepath.Join(dir, "shaper")); err != nil {
		t.Fatal(err)
	}
	first := bootUML(t, linux, dir, "true")
	var plan []preview
	unmarshal(t, first["plan"], &plan)
	commands := strings.Join(plan[0].Commands, "\n")
	for _, want := range []string{"fq_codel limit 1000", "flower ip_proto udp dst_ip 192.0.2.2/32 dst_port 5001 classid", "flower ip_proto tcp src_ip fd00:1::/48 dst_port 8000-8010"} {
		if !strings.Contains(commands, want) {
			t.Errorf("the plan has no %q:\n%s", want, commands)
		}
	}
	if !strings.Contains(first["apply"], "changed 0 of") || strings.Count(first["apply"], "changed") != 2 {
		t.Errorf("the second apply makes changes: %s", first["apply"])
	}
	for _, part := range []string{"lacks", "reroute", "many", "lone"} {
		if text := first[part]; !strings.Contains(text, `"changes": []`) {
			t.Errorf("%s: the kernel differs from the plan: %s", part, text)
		}
	}
	var shown []counted
	unmarshal(t, first["show"], &shown)
	packets := map[string]uint64{}
	for _, o := range shown {
		if o.Type == "class" {
			packets[o.Class] += o.Counters.Packets
		}
	}
	if packets["bulk"] != 5 {
		t.Errorf("class bulk counts %d of 5 datagrams: %v", packets["bulk"], packets)
	}
	if !strings.Contains(first["lone"], "fq_codel") {
		t.Errorf("lone: no fq_codel: %s", first["lone"])
	}
	for _, ours := range []string{"5ca", "shaper", "gso_max_size 3028"} {
		if strings.Contains(first["clear"], ours) {
			t.Errorf("%s remains: %s", ours, first["clear"])
		}
	}
	second := bootUML(t, linux, dir, commands)
	if second["hand"] != first["state"] {
		t.Errorf("after apply:\n%s\nby hand:\n%s", first["state"], second["hand"])
	}
}

// unmarshal decodes JSON, or fails the test.
func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// bootUML boots user-mode Linux with umlScript, and returns its output by parts. ByHand are the
// commands of part "hand".
func bootUML(t *testing.T, linux, dir, byHand string) map[string]string {
	t.Helper()
	script := filepath.Join(dir, "init")
	text := strings.ReplaceAll(strings.ReplaceAll(umlScript, "DIR", dir), "BYHAND", byHand)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := umlCommand(linux, "mem=256M", "rootfstype=hostfs", "rootflags=/", "ro", "init="+script, "con=null", "con0=null,fd:1", "quiet")
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	stop.Stop()
	found := parts(out.String())
	if _, whole := found["end"]; !whole {
		t.Fatal(fmt.Errorf("user-mode Linux ended early: %w\n%s", err, &out))
	}
	t.Logf("log:\n%s", found["log"])
	return found
}

// parts returns the parts of an output by name. Each begins with a line "== NAME".
func parts(output string) map[string]string {
	found, name := map[string]string{}, ""
	for line := range strings.Lines(strings.ReplaceAll(output, "\r\n", "\n")) {
		if part, ok := strings.CutPrefix(line, "== "); ok {
			name = strings.TrimSpace(part)
			line = ""
		}
		found[name] += line
	}
	return found
}
