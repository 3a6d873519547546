package tests

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// router is a network namespace between a client and a server, in which shaper intercepts what it
// would forward. It forwards nothing by itself.
type router struct {
	*program
	in, client, server *namespace
}

// The addresses behind a router.
var (
	clients = []string{"192.0.2.2", "2001:db8:1::2"}
	servers = []string{"203.0.113.2:7000", "[2001:db8:2::2]:7000"}
)

// intercepting is the policy of a router. It also takes what programs of the router send.
const intercepting = `
[class.slow]
rate = "4mbit"
[class.other]
rate = "100mbit"
[listener.x]
listen = ":15001"
mode = "transparent"
allow = ["203.0.113.0/24:7000", "[2001:db8:2::/64]:7000"]
deny = "203.0.113.3"
intercept = ["forwarded", "host"]
keep_source = true
class = "other"
[[rule]]
port = 7000
destination = "203.0.113.2"
class = "slow"
`

// newRouter returns a router without shaper, with rules of nftables of others.
func newRouter(t *testing.T) *router {
	t.Helper()
	tool(t, "ip", "iproute2")
	tool(t, "nft", "nftables")
	r := &router{in: newNamespace(t), client: newNamespace(t), server: newNamespace(t)}
	for i, end := range []*namespace{r.client, r.server} {
		r.in.run("ip link add far%d type veth peer name wire netns %s", i, end.path)
		for _, net := range [][2]string{{"192.0.2.", "203.0.113."}, {"2001:db8:1::", "2001:db8:2::"}} {
			r.in.run("ip addr add %s1/%d dev far%d nodad", net[i], bitsOf(net[i]), i)
			end.run("ip addr add %s2/%d dev wire nodad", net[i], bitsOf(net[i]))
		}
		r.in.run("ip link set far%d up", i)
		end.run("ip link set wire up")
		end.run("ip route add default via %s", []string{"192.0.2.1", "203.0.113.1"}[i])
		end.run("ip -6 route add default via %s", []string{"2001:db8:1::1", "2001:db8:2::1"}[i])
	}
	r.in.run("ip link set lo up")
	trial.Await(t, "the links are up", func() bool { return !strings.Contains(r.state(), "linkdown") }) // a worker of the kernel notes it
	r.in.output("nft add table inet other && nft add chain inet other c '{ type filter hook input priority 0; }' && nft add rule inet other c tcp dport 1 drop")
	return r
}

func bitsOf(net string) int {
	if strings.Contains(net, ":") {
		return 64
	}
	return 24
}

// nft runs `shaper nft` in the router.
func (r *router) nft(t *testing.T, what string) string {
	t.Helper()
	out, err := r.try(what)
	if err != nil {
		t.Fatalf("shaper nft %s: %v: %s", what, err, out)
	}
	return out
}

// try runs `shaper nft` in the router, which may fail. It returns what shaper prints on both streams.
func (r *router) try(what ...string) (out string, err error) {
	r.in.do(func() error {
		b, failed := exec.Command(plain(), append([]string{"-c", r.config, "nft"}, what...)...).CombinedOutput()
		out, err = string(b), failed
		return nil
	})
	return out, err
}

// state returns all that `shaper nft` may change. Link-local addresses come by themselves.
func (r *router) state() string {
	return r.in.output("nft list ruleset; for f in -4 -6; do ip $f rule; ip $f route show table all | grep -v -e fe80: -e ff00: | sort; done")
}

// serve listens at an address of the server. It tells each client the address from
// which it has come, and how many bytes it has sent.
func (r *router) serve(t *testing.T, at string) {
	t.Helper()
	r.server.do(func() error {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		serveOn(t, l, func(c *net.TCPConn) {
			n, _ := io.Copy(io.Discard, c)
			from, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			fmt.Fprintln(c, from, n)
		})
		return nil
	})
}

// send sends bytes from a namespace to an address, and returns what the server there says and how
// long it took.
func (n *namespace) send(t *testing.T, to string, bytes int) (says string, took time.Duration) {
	t.Helper()
	n.do(func() error {
		c, err := net.DialTimeout("tcp", to, patience)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		began := time.Now()
		if _, err := c.Write(make([]byte, bytes)); err != nil {
			return err
		}
		c.(*net.TCPConn).CloseWrite()
		b, err := io.ReadAll(c)
		says, took = string(b), time.Since(began)
		return err
	})
	return says, took
}

// A router intercepts connections: client and server see each other's addresses, and the class of
// the policy shapes what passes. The rules of nftables and the routes are as before when they are
// removed, and applying them twice changes nothing. The script of plan does the same.
func TestTransparent(t *testing.T) {
	t.Parallel()
	r := newRouter(t)
	before := r.state()
	r.program = startIn(r.in, t, plain(), intercepting)
	for _, at := range servers {
		r.serve(t, at)
	}
	r.nft(t, "apply")
	if out := r.must("history"); !strings.Contains(out, "nft apply by uid=0 pid=") || !strings.Contains(out, "+ nft inet shaper: the rules of policy "+r.status().PolicyHash) {
		t.Errorf("the history is\n%s", out)
	}
	applied := r.state()
	for i, at := range servers {
		const bytes = 500_000
		says, took := r.client.send(t, at, bytes)
		if want := fmt.Sprintln(clients[i], bytes); says != want {
			t.Errorf("the server at %s says %q, want %q", at, says, want)
		}
		if least := 900 * time.Millisecond; i == 0 && took < least { // 4 Mbit/s are 500,000 bytes/s
			t.Errorf("the connection to %s took %v, want at least %v", at, took, least)
		}
		if says, _ := r.in.send(t, at, 1000); !strings.HasSuffix(says, " 1000\n") {
			t.Errorf("to a program of the router the server at %s says %q", at, says)
		}
	}
	r.refuses(t)
	r.passesBy(t)

	cleared := r.clearsWhatItHasApplied(t, before, applied)
	if !strings.Contains(cleared, `"nft clear" by="uid=0 pid=`) || !strings.Contains(cleared, `op=- what=nft name="inet shaper" before="the table and its routing" after=""`) {
		t.Errorf("without a daemon, clear does not log what it has changed: %s", cleared)
	}
}

// clearsWhatItHasApplied applies the rules again, which changes nothing, clears them, which leaves what
// there was before, and does the same with the script of plan. It returns what the first clear prints.
func (r *router) clearsWhatItHasApplied(t *testing.T, before, applied string) (cleared string) {
	t.Helper()
	r.nft(t, "apply")
	if again := r.state(); again != applied {
		t.Errorf("a second apply changes\n%s\nto\n%s", applied, again)
	}
	cleared = r.nft(t, "clear")
	if after := r.state(); after != before {
		t.Errorf("before there was\n%s\nand now there is\n%s", before, after)
	}
	script := r.nft(t, "plan")
	r.in.output("set -e\n" + script + script)
	if byHand := r.state(); byHand != applied {
		t.Errorf("apply makes\n%s\nand the script of plan\n%s", applied, byHand)
	}
	r.nft(t, "clear")
	return cleared
}

// With --json, apply and clear say whether they have changed the kernel.
func TestTransparentSaysWhatItChanged(t *testing.T) {
	t.Parallel()
	r := &router{in: newNamespace(t), program: &program{config: policyFile(t, daemonSection+intercepting)}}
	r.in.run("ip link set lo up")
	for _, c := range []struct {
		what    string
		changed bool
	}{{"plan", false}, {"clear", false}, {"apply", true}, {"apply", true}, {"clear", true}, {"clear", false}} {
		out, err := r.try(c.what, "--json")
		if says := fmt.Sprintf(`"changed": %t`, c.changed); err != nil || c.what != "plan" && !strings.Contains(out, says) {
			t.Errorf("shaper nft %s --json: %v, want %s\n%s", c.what, err, says, out)
		}
	}
}

// A table of others that has the name of ours stays as it is.
func TestTransparentLeavesTablesOfOthers(t *testing.T) {
	t.Parallel()
	tool(t, "nft", "nftables")
	r := &router{in: newNamespace(t), program: &program{config: policyFile(t, daemonSection+intercepting)}}
	r.in.run("ip link set lo up")
	r.in.output("nft 'table inet shaper { chain input { type filter hook input priority 0; tcp dport 1 drop; }; }'")
	before := r.state()
	for _, what := range []string{"apply", "clear"} {
		if out, err := r.try(what); err == nil || !strings.Contains(out, "inet shaper") || !strings.Contains(out, "others have made it") {
			t.Errorf("with a table of others, shaper nft %s: %v\n%s", what, err, out)
		}
		if after := r.state(); after != before {
			t.Errorf("before shaper nft %s there was\n%s\nand now there is\n%s", what, before, after)
		}
	}
}

// passesBy checks that the router forwards what the policy does not allow, even to the port of its
// listener, and all if shaper does not run.
func (r *router) passesBy(t *testing.T) {
	t.Helper()
	r.in.output("sysctl -qw net.ipv4.ip_forward=1")
	other := "203.0.113.2:15001"
	r.serve(t, other)
	if says, _ := r.client.send(t, other, 1000); says != "192.0.2.2 1000\n" {
		t.Errorf("the server at %s says %q", other, says)
	}
	if strings.Contains(r.log.String(), other) {
		t.Errorf("shaper has seen the connection:\n%s", r.log)
	}
	r.stop()
	if says, took := r.client.send(t, servers[0], 500_000); says != "192.0.2.2 500000\n" {
		t.Errorf("without shaper, the server at %s says %q after %v", servers[0], says, took)
	}
}

// refuses checks that the router refuses who connects to the listener itself.
func (r *router) refuses(t *testing.T) {
	t.Helper()
	r.client.do(func() error {
		c, err := net.DialTimeout("tcp", "192.0.2.1:15001", patience)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); n > 0 || os.IsTimeout(err) {
			t.Errorf("a client of the listener itself reads %d bytes, %v", n, err)
		}
		return nil
	})
	trial.Await(t, "the log says why", func() bool { return strings.Contains(r.log.String(), "it has connected to the listener itself") })
}

// Without the capability, a policy with a transparent listener is refused, and the error says what
// is needed.
func TestTransparentNeedsCapability(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skipUnlessCI(t, "the test needs root, to run the program as another user")
	}
	config := policyFile(t, daemonSection+strings.Replace(intercepting, ":15001", ":"+freePort(t), 1))
	if err := os.Chmod(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(plain(), "-c", config, "run")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "listener.x.mode") || !strings.Contains(string(out), "CAP_NET_ADMIN") {
		t.Errorf("without the capability: %v\n%s", err, out)
	}
}
