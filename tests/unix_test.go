package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// curl and socat reach shaper through unix sockets, and shaper reaches a server and socat, with and
// without a file. The socket has the mode of the policy, and is gone when the daemon is.
func TestUnixSocketsOfPeers(t *testing.T) {
	t.Parallel()
	socat := tool(t, "socat", "socat")
	dir, err := os.MkdirTemp(binDir, "")
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("unix", in("web.back"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.Method, r.URL, r.Host) })}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	abstract := fmt.Sprintf("shaper-test-%d", os.Getpid())
	cat := exec.Command(socat, "UNIX-LISTEN:"+in("cat.back")+",fork", "EXEC:cat")
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cat.Process.Kill(); cat.Wait() })
	trial.Await(t, "socat listens", func() bool { _, err := os.Stat(in("cat.back")); return err == nil })

	p := start(t, raced(t), fmt.Sprintf(`[class.web]
rate = "1000 messages/s"
[class.bytes]
rate = "800mbit"
[listener.web]
listen = "unix:%s"
unix = { mode = "0606" }
protocol = "http"
upstream = "unix:%s"
class = "web"
[listener.cat]
listen = ["unix:%s", "unix:@%s"]
upstream = "unix:%s"
class = "bytes"
`, in("web"), in("web.back"), in("cat"), abstract, in("cat.back")))
	if got := curl(t, "--unix-socket", in("web"), "http://api.example/path?q"); got != "GET /path?q api.example\n" {
		t.Errorf("curl gets %q", got)
	}
	if info, err := os.Stat(in("web")); err != nil || info.Mode().Perm() != 0o606 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	sent := string(noise(1, 100_000))
	for _, to := range []string{"UNIX-CONNECT:" + in("cat"), "ABSTRACT-CONNECT:" + abstract} {
		cmd := exec.Command(socat, "-t60", "-", to)
		cmd.Stdin = strings.NewReader(sent)
		if got, err := cmd.Output(); string(got) != sent || err != nil {
			t.Errorf("through %s, socat gets %d bytes of %d, %v", to, len(got), len(sent), err)
		}
	}
	if all := p.must("check", "--all"); !strings.Contains(all, `{ mode = "0606" }`) || !strings.Contains(all, "unix                0660") {
		t.Errorf("check prints\n%s", all)
	}
	p.kill()
	p.run() // over the sockets of the dead daemon
	idle, err := net.Dial("unix", in("web"))
	if err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "the session is open", func() bool { return len(p.sessions()) == 1 })
	p.stop()
	if n, err := io.Copy(io.Discard, idle); n > 0 || err != nil {
		t.Errorf("the connection ends with %d bytes, %v", n, err)
	}
	if _, err := os.Stat(in("web")); !os.IsNotExist(err) {
		t.Errorf("the socket of a daemon that has stopped: %v", err)
	}
}
