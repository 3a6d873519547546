package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"shaper/tests/trial"
)

// background runs a program with a configuration file until the test ends, and waits until it
// listens on a port of 127.0.0.1.
func background(t *testing.T, port, text, program string, args ...string) {
	t.Helper()
	dir, err := os.MkdirTemp(binDir, "")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "conf")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log := new(trial.Log)
	cmd := exec.Command(program, append(args, config)...)
	cmd.Stderr = log
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	trial.Await(t, program+" listens", func() bool { return listens(port) })
}

// proxied is a policy between proxies that speak the PROXY protocol. The listeners in1 and in2
// lead to HAProxy and to nginx.
const proxied = `[class.told]
rate = "800mbit"
[class.real]
rate = "800mbit"
[listener.in1]
listen = "127.0.0.1:%[1]s"
upstream = "127.0.0.1:%[3]s"
accept_proxy = "127.0.0.1"
send_proxy = "v1"
class = "real"
[listener.in2]
listen = "127.0.0.1:%[2]s"
upstream = "127.0.0.1:%[4]s"
accept_proxy = "127.0.0.1"
send_proxy = "v2"
class = "real"
[[rule]]
source = "127.0.0.77"
class = "told"
`

// HAProxy and nginx tell shaper the address of a client, and shaper tells it HAProxy and nginx, in
// both versions. Rules see it. curl tells its own. Without a header, nobody gets in from a network
// of accept_proxy, and from any other network a header is only bytes.
func TestProxyProtocolOfPeers(t *testing.T) {
	t.Parallel()
	haproxy, nginx := tool(t, "haproxy", "haproxy"), tool(t, "nginx", "nginx-light libnginx-mod-stream")
	const module = "/usr/lib/nginx/modules/ngx_stream_module.so"
	if _, err := os.Stat(module); err != nil {
		skipUnlessCI(t, "nginx has no stream module: apt-get install libnginx-mod-stream")
	}
	in1, in2 := freePort(t), freePort(t)
	toHAProxy, toNginx := freePort(t), freePort(t)
	v1, v2, fromNginx := freePort(t), freePort(t), freePort(t)
	background(t, toHAProxy, fmt.Sprintf(`defaults
  timeout connect 10s
  timeout client 1m
  timeout server 1m
frontend receives
  mode http
  bind 127.0.0.1:%s accept-proxy
  http-request return status 200 content-type text/plain lf-string "haproxy %%[src]\n"
listen v1
  mode tcp
  bind 127.0.0.1:%s
  server shaper 127.0.0.1:%s send-proxy
listen v2
  mode tcp
  bind 127.0.0.1:%s
  server shaper 127.0.0.1:%s send-proxy-v2
`, toHAProxy, v1, in2, v2, in1), haproxy, "-db", "-f")
	background(t, toNginx, fmt.Sprintf(`daemon off; pid pid; error_log stderr; worker_processes 1; user root;
load_module %s;
events {}
http { access_log off; server { listen 127.0.0.1:%s proxy_protocol; location / { default_type text/plain; return 200 "nginx $proxy_protocol_addr\n"; } } }
stream { server { listen 127.0.0.1:%s; proxy_pass 127.0.0.1:%s; proxy_protocol on; } }
`, module, toNginx, fromNginx, in1), nginx, "-p", ".", "-c")
	p := start(t, raced(t), fmt.Sprintf(proxied, in1, in2, toHAProxy, toNginx))
	for _, c := range []struct{ to, want string }{
		{v1, "nginx 127.0.0.77"},
		{v2, "haproxy 127.0.0.77"},
		{fromNginx, "haproxy 127.0.0.77"},
	} {
		before := p.class("told").Sent["upstream"].Bytes
		if got := curl(t, "--interface", "127.0.0.77", "http://127.0.0.1:"+c.to+"/"); got != c.want+"\n" {
			t.Errorf("through port %s the upstream sees %q, want %q", c.to, got, c.want)
		}
		if p.class("told").Sent["upstream"].Bytes == before {
			t.Errorf("through port %s the rule does not see the address that is told", c.to)
		}
	}
	if got := curl(t, "--haproxy-protocol", "http://127.0.0.1:"+in2+"/"); got != "nginx 127.0.0.1\n" {
		t.Errorf("curl is told on as %q", got)
	}
	if out, err := exec.Command("curl", "-sS", "--max-time", "10", "http://127.0.0.1:"+in2+"/").CombinedOutput(); err == nil {
		t.Errorf("without a header curl gets %s", out)
	}
	if out, err := exec.Command("curl", "-sSf", "--max-time", "10", "--interface", "127.0.0.78", "--haproxy-protocol", "http://127.0.0.1:"+in2+"/").CombinedOutput(); err == nil {
		t.Errorf("with a header from elsewhere curl gets %s", out)
	}
	if got := p.metric(`shaper_sessions_total{listener="in2",result="bad_proxy"}`); got != 1 {
		t.Errorf("%v sessions had no header, want 1", got)
	}
}
