package tests

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"shaper/tests/trial"
)

// recipe returns a policy of docs/entries.md, by its heading, that listens where the kernel wants.
// For each item of its list allow, it has another one.
func recipe(t *testing.T, heading string, instead ...string) string {
	t.Helper()
	_, section, found := strings.Cut(textOf(t, "../docs/entries.md"), "\n### "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n### ")
	block := regexp.MustCompile("(?s)```toml\n(.*?)```").FindStringSubmatch(section)
	if !found || block == nil {
		t.Fatalf("docs/entries.md has no policy below %q", heading)
	}
	text := regexp.MustCompile(`127\.0\.0\.1:[1-9]\d{3,}"\nmode`).ReplaceAllString(block[1], "127.0.0.1:0\"\nmode")
	for i := 0; i < len(instead); i += 2 {
		if !strings.Contains(text, instead[i]) {
			t.Fatalf("the policy below %q has no %s", heading, instead[i])
		}
		text = strings.ReplaceAll(text, instead[i], instead[i+1])
	}
	return text
}

// echoing starts a web server that says what it is asked for, and by which name. over is its TLS;
// without, it is plain.
func echoing(t *testing.T, tls bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.Method, r.URL, r.Header.Get("Proxy-Authorization"))
	}))
	if s.Start(); tls {
		s.Close()
		s = httptest.NewTLSServer(s.Config.Handler)
	}
	t.Cleanup(s.Close)
	return s
}

// at returns the host and port of a web server.
func at(s *httptest.Server) string { return s.Listener.Addr().String() }

// usersFile writes a file with the user ann, whose password is "secret".
func usersFile(t *testing.T) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(trial.Files(t, map[string]string{"users": "ann:" + string(hash) + "\n"}), "users")
}

// succeeds runs a program, whose output must be what is wanted.
func succeeds(t *testing.T, env []string, want, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%s %s: %v: %q, want %q\n%s", program, strings.Join(args, " "), err, out, want, &errs)
	}
}

// curl reaches what the policy allows, by names and addresses, plain and by TLS, with the right
// login only. It learns why it is refused.
func TestCurlThroughEntries(t *testing.T) {
	t.Parallel()
	curl := tool(t, "curl", "curl")
	web, secure := echoing(t, false), echoing(t, true)
	users := usersFile(t)
	text := recipe(t, "One listener for several providers", `"*.acme.example:443"`, fmt.Sprintf("%q, %q, %q", at(web), at(secure), "gone.invalid:80"))
	p := start(t, raced(t), text+fmt.Sprintf(`
[listener.members]
listen = "127.0.0.1:0"
mode = "socks5"
allow = %[1]q
users = %[2]q
class = "providers"
[listener.web]
listen = "127.0.0.1:0"
mode = "connect"
allow = [%[1]q, %[3]q]
class = "providers"
[listener.club]
listen = "127.0.0.1:0"
mode = "connect"
allow = [%[1]q, %[3]q]
users = %[2]q
class = "providers"
`, at(web), users, at(secure)))
	out, members, proxy, club := p.addr("out"), p.addr("members"), "http://"+p.addr("web"), "http://"+p.addr("club")
	plainURL, secureURL := "http://"+at(web)+"/path", "https://"+at(secure)+"/path"
	for _, args := range [][]string{
		{"--socks5", out, plainURL}, {"--socks5-hostname", out, plainURL}, {"--socks5", out, "-k", secureURL}, {"--socks5", members, "--proxy-user", "ann:secret", plainURL},
		{"-x", proxy, plainURL}, {"-x", proxy, "-k", secureURL}, {"-x", proxy, "--proxytunnel", plainURL}, {"-x", proxy, "-0", plainURL}, {"-x", proxy, plainURL, plainURL},
		{"-x", club, "--proxy-user", "ann:secret", plainURL}, {"-x", club, "--proxy-user", "ann:secret", "-k", secureURL},
	} {
		succeeds(t, nil, "GET /path \n", curl, append([]string{"-sS", "--max-time", "10"}, args...)...)
	}
	other := "http://127.0.0.2:" + strings.Split(at(web), ":")[1]
	for _, c := range []struct {
		says string
		args []string
	}{
		{"(2)", []string{"--socks5", out, other}}, {"(2)", []string{"--socks5-hostname", out, "http://localhost:1"}}, {"(2)", []string{"--socks5", out, "http://169.254.169.254/"}},
		{"(4)", []string{"--socks5-hostname", out, "http://gone.invalid/"}},
		{"403", []string{"-x", proxy, "-f", other}}, {"403", []string{"-x", proxy, "--proxytunnel", other}}, {"403", []string{"-x", proxy, "-f", "http://localhost:1"}},
		{"", []string{"--socks5", members, plainURL}}, {"", []string{"--socks5", members, "--proxy-user", "ann:wrong", plainURL}},
		{"407", []string{"-x", club, "-f", plainURL}}, {"407", []string{"-x", club, "-f", "--proxy-user", "eve:secret", plainURL}}, {"407", []string{"-x", club, "--proxytunnel", plainURL}},
	} {
		got, err := exec.Command(curl, append([]string{"-sS", "--max-time", "10"}, c.args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(got), c.says) {
			t.Errorf("curl %s: %v: %s, want %s", c.args, err, got, c.says)
		}
	}
	if n := p.metric(`shaper_sessions_total{listener="members",result="denied"}`); n != 2 {
		t.Errorf("%v sessions of members are denied", n)
	}
	if strings.Contains(p.log.String(), "secret") || strings.Contains(p.log.String(), "ann") {
		t.Errorf("the log has a name or a password:\n%s", p.log)
	}
}

// Each user has a budget of his own.
func TestBudgetsOfUsers(t *testing.T) {
	t.Parallel()
	secure := echoing(t, true)
	p := start(t, plain(), recipe(t, "A budget for each user", `"*:443"`, fmt.Sprintf("%q", at(secure)), `"users"`, fmt.Sprintf("%q", usersFile(t))))
	succeeds(t, nil, "GET /x \n", tool(t, "curl", "curl"), "-sS", "--max-time", "10", "-k", "-x", "http://"+p.addr("web"), "--proxy-user", "ann:secret", "https://"+at(secure)+"/x")
	for user, class := range map[string]string{"ann": `class user, the bucket of user "ann"`, "ops-1": "class ops: rule 1"} {
		if out := p.must("explain", "127.0.0.1", "--user", user); !strings.Contains(out, class) {
			t.Errorf("of %s, shaper explain says\n%s", user, out)
		}
	}
	for class, some := range map[string]bool{"user": true, "ops": false} {
		if n := p.metric(fmt.Sprintf(`shaper_class_sent_bytes_total{class=%q,direction="upstream"}`, class)); (n > 0) != some {
			t.Errorf("class %s has sent %v bytes", class, n)
		}
	}
}

// curl, which knows nothing of the entry, reaches the server that its ClientHello names, and has the
// class of that name. A name that leads to a special address is refused by TLS.
func TestCurlThroughSNI(t *testing.T) {
	t.Parallel()
	curl, port := tool(t, "curl", "curl"), freePort(t)
	dns := serveNames(t, "127.53.17.5", 1)
	dns.means(netip.MustParseAddr("127.53.17.6"))
	l, err := net.Listen("tcp", "127.53.17.6:"+port)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.TLS.ServerName, r.URL) }))
	web.Listener.Close()
	web.Listener = l
	web.StartTLS()
	t.Cleanup(web.Close)
	other := freePort(t)
	p := start(t, asking(t, raced(t), "127.53.17.5"), strings.Replace(recipe(t, "TLS of a program that knows no proxies", `"*.acme.example:443"`, `"127.53.17.6"`), "127.0.0.1:443", "127.0.0.1:"+port, 1)+
		fmt.Sprintf("[listener.shut]\nlisten = \"127.0.0.1:%s\"\nmode = \"sni\"\nallow = \"*\"\nclass = \"tls\"\n", other))
	for _, name := range []string{"api.acme.example", "bulk.acme.example"} {
		succeeds(t, nil, name+" /path\n", curl, "-sS", "-k", "--max-time", "10", "--resolve", name+":"+port+":127.0.0.1", "https://"+name+":"+port+"/path")
	}
	for class, want := range map[string]float64{"tls": 1, "bulk": 1} {
		if n := p.metric(fmt.Sprintf(`shaper_class_sent_connections_total{class=%q,direction="upstream"}`, class)); n != want {
			t.Errorf("class %s has sent %v connections, want %v", class, n, want)
		}
	}
	out, err := exec.Command(curl, "-sS", "-k", "--max-time", "10", "--resolve", "api.acme.example:"+other+":127.0.0.1", "https://api.acme.example:"+other+"/").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unrecognized name") {
		t.Errorf("a name that leads to loopback: %v, %s", err, out)
	}
}

// nc, ssh and proxychains4 reach a server through SOCKS and CONNECT.
func TestPeersThroughEntries(t *testing.T) {
	t.Parallel()
	nc, chains := tool(t, "nc", "netcat-openbsd"), tool(t, "proxychains4", "proxychains4")
	ssh, sshd := tool(t, "ssh", "openssh-client"), tool(t, "/usr/sbin/sshd", "openssh-server")
	port, keys := sshServer(t, sshd)
	web := echoing(t, false)
	p := start(t, raced(t), recipe(t, "ssh through an entry", `"*.example:22"`, fmt.Sprintf("%q, %q", "127.0.0.1:"+port, at(web)))+
		fmt.Sprintf("[listener.web]\nlisten = \"127.0.0.1:0\"\nmode = \"connect\"\nallow = [%q, %q]\nclass = \"ssh\"\n", "127.0.0.1:"+port, at(web)))
	host, webPort, _ := net.SplitHostPort(at(web))
	for version, entry := range map[string]string{"5": p.addr("socks"), "connect": p.addr("web")} {
		cmd := exec.Command(nc, "-X", version, "-x", entry, host, webPort)
		cmd.Stdin = strings.NewReader("GET /nc HTTP/1.0\r\n\r\n")
		if out, err := cmd.Output(); !strings.HasSuffix(string(out), "GET /nc \n") {
			t.Errorf("nc -X %s gets %q, %v", version, out, err)
		}
		succeeds(t, nil, "by ssh\n", ssh, "-F", "none", "-p", port, "-i", filepath.Join(keys, "id"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile="+filepath.Join(keys, "known"),
			"-o", "StrictHostKeyChecking=accept-new", "-o", fmt.Sprintf("ProxyCommand=%s -X %s -x %s %%h %%p", nc, version, entry), "127.0.0.1", "echo by ssh")
	}
	_, socksPort, _ := net.SplitHostPort(p.addr("socks"))
	dir := trial.Files(t, map[string]string{"proxychains.conf": "strict_chain\nproxy_dns\n[ProxyList]\nsocks5 127.0.0.1 " + socksPort + "\n"})
	succeeds(t, nil, "GET /chained \n", chains, "-q", "-f", filepath.Join(dir, "proxychains.conf"), tool(t, "curl", "curl"), "-sS", "--max-time", "10", "http://"+at(web)+"/chained")
}

// sshServer runs sshd on a port of 127.0.0.1 for the user of the test. dir has the key "id".
func sshServer(t *testing.T, sshd string) (port, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"host", "id"} {
		if out, err := exec.Command(tool(t, "ssh-keygen", "openssh-client"), "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	if os.Getuid() == 0 {
		os.MkdirAll("/run/sshd", 0o755) // for the separation of privileges
	}
	port = freePort(t)
	background(t, port, fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n",
		port, filepath.Join(dir, "host"), filepath.Join(dir, "id.pub")), sshd, "-D", "-e", "-f")
	return port, dir
}

// git and npm, behind the variables that they know, reach their servers through an entry.
func TestGitAndNpmThroughEntry(t *testing.T) {
	t.Parallel()
	git := tool(t, "git", "git")
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "work"}, {"-C", "work", "-c", "user.name=a", "-c", "user.email=a@example", "commit", "-q", "--allow-empty", "-m", "through an entry"},
		{"clone", "-q", "--bare", "work", "repo.git"}, {"-C", "repo.git", "update-server-info"},
	} {
		cmd := exec.Command(git, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	files := http.NewServeMux()
	files.Handle("/", http.FileServer(http.Dir(dir)))
	files.HandleFunc("/thing", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"name":"thing","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"thing","version":"1.2.3"}}}`)
	})
	web := httptest.NewTLSServer(files)
	t.Cleanup(web.Close)
	p := start(t, raced(t), recipe(t, "git and npm behind one limit", `"github.com:443"`, fmt.Sprintf("%q", at(web))))
	proxy, url := "http://"+p.addr("web"), "https://"+at(web)
	env := []string{"HTTPS_PROXY=" + proxy, "https_proxy=" + proxy, "NO_PROXY=", "no_proxy=", "GIT_SSL_NO_VERIFY=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=" + dir, "NPM_CONFIG_UPDATE_NOTIFIER=false"}
	succeeds(t, env, "", git, "clone", "-q", url+"/repo.git", filepath.Join(dir, "copy"))
	succeeds(t, env, "through an entry", git, "-C", filepath.Join(dir, "copy"), "log", "--format=%s")
	before := p.metric(`shaper_class_sent_connections_total{class="code",direction="upstream"}`)
	if before < 1 {
		t.Errorf("git has made %v connections", before)
	}
	if npm, err := exec.LookPath("npm"); err == nil {
		succeeds(t, env, "1.2.3", npm, "view", "thing", "version", "--registry", url+"/", "--strict-ssl=false", "--fetch-retries=0")
		if n := p.metric(`shaper_class_sent_connections_total{class="code",direction="upstream"}`); n <= before {
			t.Errorf("npm has made %v connections", n-before)
		}
	}
}

// A program that sends plain HTTP through its proxy has a limit in messages, and one that binds by
// SMPP through SOCKS too, for each provider.
func TestMessagesThroughEntries(t *testing.T) {
	t.Parallel()
	web := echoing(t, false)
	p := start(t, raced(t), recipe(t, "Requests of a program that knows proxies", `"api.acme.example:80"`, fmt.Sprintf("%q", at(web))))
	began := time.Now()
	for range 3 {
		succeeds(t, []string{"http_proxy=http://" + p.addr("web")}, "GET /m \n", tool(t, "curl", "curl"), "-sS", "--max-time", "10", "http://"+at(web)+"/m")
	}
	if took := time.Since(began); took < 2*time.Second/5 { // 5 messages/s
		t.Errorf("three requests took %v", took)
	}
	if n := p.metric(`shaper_class_sent_messages_total{class="api",direction="upstream"}`); n != 3 {
		t.Errorf("%v messages", n)
	}

	provider := newProvider(t, func(moment) uint32 { return 0 })
	p = start(t, raced(t), recipe(t, "SMPP binds to several providers", `"*.acme.example:2775"`, fmt.Sprintf("%q", provider.addr)))
	host, port, _ := net.SplitHostPort(provider.addr)
	c, code := socks(t, p.addr("sms"), host, port)
	if code != 0 {
		t.Fatalf("the entry answers %d", code)
	}
	e := &esmeConn{t: t, TCPConn: c, sequence: 1}
	e.write(bindPDU("esme"))
	e.read()
	e.submit("otp", 2)
	e.read()
	e.read()
	if n := p.metric(`shaper_class_sent_messages_total{class="sms",direction="upstream"}`); n != 2 {
		t.Errorf("%v messages", n)
	}
}

// socks asks an entry for a host and port by SOCKS 5. code is that of the reply, or of the entry that
// has hung up: 0xff.
func socks(t *testing.T, entry, host, port string) (c *net.TCPConn, code byte) {
	t.Helper()
	c = dial(t, "", entry)
	c.SetDeadline(time.Now().Add(patience))
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	request := append([]byte("\x05\x01\x00\x05\x01\x00\x03"), byte(len(host)))
	request = append(append(request, host...), byte(n>>8), byte(n))
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 12)
	if _, err := io.ReadFull(c, reply); err != nil {
		return c, 0xff
	}
	return c, reply[3]
}
