package tests

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// nginx runs nginx over TLS with one site for each name, until the test ends. Each site answers
// with its name. Requests for other names get status 421, as at many providers. nginx returns its
// port.
func nginx(t *testing.T, a *authority, names ...string) (port string) {
	t.Helper()
	program := tool(t, "nginx", "nginx-light")
	port = freePort(t)
	a.issue("site", "localhost", time.Time{})
	root := filepath.Join(a.dir, "root")
	if err := os.MkdirAll(filepath.Join(root, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	tls := fmt.Sprintf("listen 127.0.0.1:%s ssl; ssl_certificate %s; ssl_certificate_key %s;", port, a.path("site", "pem"), a.path("site", "key"))
	sites := fmt.Sprintf("server { %s server_name _; return 421 'no site has this name\\n'; }\n", strings.Replace(tls, " ssl;", " ssl default_server;", 1))
	for _, name := range names {
		sites += fmt.Sprintf("server { %s server_name %s; root %s; location = / { return 200 'this is %s, asked for $http_host\\n'; } location /folder/ { return 200 'folder of %s\\n'; } }\n",
			tls, name, root, name, name)
	}
	config := filepath.Join(a.dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; pid %s/pid; error_log stderr; worker_processes 1; user root;\nevents {}\nhttp { access_log off;\n%s}\n", a.dir, sites)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log := new(trial.Log)
	cmd := exec.Command(program, "-c", config)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
	trial.Await(t, "nginx listens", func() bool {
		if t.Failed() {
			t.Log(log)
		}
		return listens(port)
	})
	return port
}

// Programs send plain requests to shaper, with shaper's address as the host. The key host sets
// the Host field that a provider with many names gets over TLS.
func TestHostOfNginx(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	port := nginx(t, a, "localhost", "api.example")
	text := func(lines ...string) string {
		return fmt.Sprintf("[class.a]\nrate = \"1000 messages/s\"\n[listener.a]\nlisten = \"127.0.0.1:0\"\nprotocol = \"http\"\nupstream = \"localhost:%s\"\nclass = \"a\"\n%s\n%s\n",
			port, a.originating(""), strings.Join(lines, "\n"))
	}
	p := start(t, raced(t), text())
	for _, c := range []struct {
		line, want string
		args       []string
	}{
		{"", "this is localhost, asked for localhost:" + port, nil},
		{"", "this is localhost, asked for localhost:" + port, []string{"--http1.0"}},
		{"", "this is localhost, asked for localhost:" + port, []string{"--request-target", "http://" + p.addr("a") + "/"}},
		{`host = "upstream"`, "this is localhost, asked for localhost:" + port, nil},
		{`host = "api.example"`, "this is api.example, asked for api.example", nil},
		{`host = "client"`, "no site has this name", nil},
		{`host = "client"`, "this is api.example, asked for api.example", []string{"-H", "Host: api.example"}},
	} {
		p.write(text(c.line))
		p.must("reload")
		if got := curl(t, append(c.args, "http://"+p.addr("a")+"/")...); got != c.want+"\n" {
			t.Errorf("%s, curl %s gets %q, want %q", c.line, c.args, got, c.want)
		}
	}
	// nginx redirects to https and to the host that it was asked for. Shaper rewrites the redirect.
	p.write(text())
	p.must("reload")
	for _, version := range []string{"--http1.0", "--http1.1"} {
		if got := curl(t, "-L", version, "http://"+p.addr("a")+"/folder"); got != "folder of localhost\n" {
			t.Errorf("curl -L %s gets %q, want the folder", version, got)
		}
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 20 { // over one connection
		answer, err := client.Get("http://" + p.addr("a") + "/folder")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if host := answer.Request.URL.Host; answer.StatusCode != 200 || host != p.addr("a") {
			t.Fatalf("status %d from %s, want 200 from %s", answer.StatusCode, host, p.addr("a"))
		}
	}
}

// If the upstream is an address, shaper leaves the Host field of the client as it is.
func TestHostOfAnAddress(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	port := nginx(t, a, "127.0.0.1")
	p := start(t, raced(t), fmt.Sprintf("[class.a]\nrate = \"1000 messages/s\"\n[listener.a]\nlisten = \"127.0.0.1:0\"\nprotocol = \"http\"\nupstream = %q\nclass = \"a\"\nupstream_tls = { ca = %q, server_name = \"localhost\" }\n",
		net.JoinHostPort("127.0.0.1", port), a.file))
	if got, want := curl(t, "http://"+p.addr("a")+"/"), "this is 127.0.0.1, asked for "+p.addr("a")+"\n"; got != want {
		t.Errorf("curl gets %q, want %q", got, want)
	}
}
