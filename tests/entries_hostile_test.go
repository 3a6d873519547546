package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"shaper/tests/trial"
)

// odd are spellings of addresses that no entry may reach, with all names and all addresses allowed:
// of this host, of its networks and of what clouds have on the link.
var odd = []string{
	"127.0.0.1", "127.1", "127.0.1", "127.000.000.001", "127.0.0.01", "0177.0.0.1", "0177.0.0.01", "017700000001", "0x7f.0.0.1", "0x7f.1", "0x7f000001", "0X7F000001", "2130706433",
	"127.0.0.1.", "127.255.255.254", "0", "0.0.0.0", "00.0.0.0", "localhost", "LOCALHOST", "localhost.", "ip6-localhost",
	"::1", "[::1]", "0:0:0:0:0:0:0:1", "::", "::ffff:127.0.0.1", "::ffff:7f00:1", "0:0:0:0:0:ffff:127.0.0.1", "::127.0.0.1", "::7f00:1", "::1%lo", "::1%25lo",
	"64:ff9b::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "::ffff:0:127.0.0.1", "5f00::1", "2002:7f00:1::", "2002:7f00:0001::1", "2001:0:7f00:1::", "fe80::1", "fe80::1%lo", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1",
	"10.0.0.1", "10.1", "012.0.0.1", "0xa.1", "167772161", "172.16.0.1", "192.168.0.1", "192.168.1", "3232235521", "100.64.0.1", "100.100.100.200",
	"169.254.169.254", "169.254.43518", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "168.63.129.16", "198.18.0.1", "224.0.0.1", "255.255.255.255",
	"127.0.0.1\x00.example", "127.0.0.1/x", "x@127.0.0.1", "a b", "", ".", "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021",
	"rebind.example", "a.rebind.example", // the name server says 127.0.0.1
}

// However an address of this host, of its networks or of the link is written, and whatever name
// leads there, no entry goes there unless the policy names it.
func TestOddAddressesAreRefused(t *testing.T) {
	t.Parallel()
	dns := serveNames(t, "127.53.17.4", 1)
	dns.means(netip.MustParseAddr("127.0.0.1"))
	reached := make(chan struct{}, 1)
	_, port, _ := net.SplitHostPort(serve(t, func(c *net.TCPConn) {
		select {
		case reached <- struct{}{}:
		default:
		}
	}))
	p := start(t, asking(t, plain(), "127.53.17.4"), `[class.a]
rate = "1000 connections/s"
[listener.socks]
listen = "127.0.0.1:0"
mode = "socks5"
allow = ["*", "0.0.0.0/0", "::/0"]
class = "a"
[listener.web]
listen = "127.0.0.1:0"
mode = "connect"
allow = ["*", "0.0.0.0/0", "::/0"]
class = "a"
`)
	socksEntry, web := p.addr("socks"), p.addr("web")
	for _, host := range odd {
		c, code := socks(t, socksEntry, host, port)
		if c.Close(); code == 0 {
			t.Errorf("SOCKS leads to %q", host)
		}
		for _, form := range []string{"CONNECT %s:%s HTTP/1.1\r\n\r\n", "CONNECT [%s]:%s HTTP/1.1\r\n\r\n", "GET http://%s:%s/ HTTP/1.1\r\n\r\n"} {
			if got := answerTo(t, web, fmt.Sprintf(form, host, port)); got != "HTTP/1.1 400" && got != "HTTP/1.1 403" {
				t.Errorf(form+" is answered by %q", host, port, got)
			}
		}
	}
	select {
	case <-reached:
		t.Error("a client has reached this host")
	default:
	}
	if n := p.metric(`shaper_class_sent_connections_total{class="a",direction="upstream"}`); n != 0 {
		t.Errorf("shaper has dialled %v times", n)
	}
}

// answerTo sends a request and returns the beginning of the answer.
func answerTo(t *testing.T, addr, request string) string {
	t.Helper()
	c := dial(t, "", addr)
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, request)
	answer, _ := io.ReadAll(c)
	return string(answer[:min(len(answer), len("HTTP/1.1 403"))])
}

// nmap takes no entry for an open proxy, unless its policy lets everybody go where nmap tries to go:
// to port 80 of www.google.com, which is a server of this test.
func TestNoOpenProxy(t *testing.T) {
	t.Parallel()
	nmap := tool(t, "nmap", "nmap")
	const names, google = "127.53.17.7", "127.17.3.1"
	serveNames(t, names, 60).means(netip.MustParseAddr(google))
	l, err := net.Listen("tcp", google+":80")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Server", "gws") })}
	go web.Serve(l)
	t.Cleanup(func() { web.Close() })
	policy := "[class.a]\nrate = \"1000 connections/s\"\n"
	closed, users := `allow = "*.acme.example:80"`, fmt.Sprintf("allow = [\"*\", \"%s\"]\nusers = %q", google, usersFile(t))
	entries := []struct {
		name, mode, lines string
		open              bool
	}{
		{"socks", "socks5", closed, false}, {"web", "connect", closed, false},
		{"socks-club", "socks5", users, false}, {"web-club", "connect", users, false},
		{"socks-open", "socks5", fmt.Sprintf("allow = %q", google), true}, {"web-open", "connect", fmt.Sprintf("allow = %q", google), true},
	}
	for _, e := range entries {
		policy += fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:0\"\nmode = %q\nclass = \"a\"\n%s\n", e.name, e.mode, e.lines)
	}
	p := start(t, asking(t, plain(), names), policy)
	for _, e := range entries {
		_, port, _ := net.SplitHostPort(p.addr(e.name))
		out, err := exec.Command(nmap, "-n", "-Pn", "-sT", "--dns-servers", names, "-p", port, "--script", "+http-open-proxy,+socks-open-proxy", "127.0.0.1").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "/tcp open") || strings.Contains(string(out), "open-proxy:") != e.open {
			t.Errorf("nmap at %s: %v\n%s", e.name, err, out)
		}
	}
}

// Clients that are silent, slow, or never end their request are bounded in time and in bytes, and
// hold up nobody else.
func TestSlowClientsOfEntries(t *testing.T) {
	t.Parallel()
	web := echoing(t, false)
	p := start(t, plain(), fmt.Sprintf(`[class.a]
rate = "1000 connections/s"
[listener.socks]
listen = "127.0.0.1:0"
mode = "socks5"
allow = %[1]q
connect_timeout = "1s"
class = "a"
[listener.web]
listen = "127.0.0.1:0"
mode = "connect"
allow = %[1]q
connect_timeout = "1s"
class = "a"
`, at(web)))
	each := trial.Size(10, 50)
	hung := 0
	var conns []*net.TCPConn
	for name, said := range map[string][]string{"socks": {"", "\x05", "\x05\x01\x00\x05\x01\x00\x03\xff"}, "web": {"", "CONNECT", "GET http://x/ HTTP/1.1\r\n"}} {
		for _, text := range said {
			for range each {
				c := dial(t, "", p.addr(name))
				io.WriteString(c, text)
				conns = append(conns, c)
				hung++
			}
		}
	}
	if c, code := socks(t, p.addr("socks"), "127.0.0.1", strings.Split(at(web), ":")[1]); code != 0 {
		t.Errorf("beside them, SOCKS answers %d", code)
	} else {
		c.Close()
	}
	endless := answerTo(t, p.addr("web"), "GET http://x/ HTTP/1.1\r\n"+strings.Repeat("A: b\r\n", 2000))
	if endless != "HTTP/1.1 431" {
		t.Errorf("a request without an end is answered by %q", endless)
	}
	for _, c := range conns {
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatal("a silent client is not sent away")
		}
	}
	trial.Await(t, "all sessions have ended", func() bool { return len(p.sessions()) == 0 })
	denied := p.metric(`shaper_sessions_total{listener="socks",result="denied"}`) + p.metric(`shaper_sessions_total{listener="web",result="denied"}`)
	if denied != float64(hung+1) {
		t.Errorf("%v sessions are denied, want %d", denied, hung+1)
	}
}

// A reload that takes an allowed destination or a user away leaves open sessions alone, and holds
// for the next ones. One that cannot be read changes nothing.
func TestEntriesReload(t *testing.T) {
	t.Parallel()
	server := serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
	host, port, _ := net.SplitHostPort(server)
	policy := func(allow, more string) string {
		return fmt.Sprintf("[class.a]\nrate = \"8gbit\"\n[listener.l]\nlisten = \"127.0.0.1:0\"\nmode = \"socks5\"\nallow = %q\nclass = \"a\"\n%s", allow, more)
	}
	p := start(t, raced(t), policy(server, ""))
	c, code := socks(t, p.addr("l"), host, port)
	if code != 0 {
		t.Fatalf("the entry answers %d", code)
	}
	says := func(text string) {
		t.Helper()
		io.WriteString(c, text)
		got := make([]byte, len(text))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
			t.Errorf("%q comes back as %q, %v", text, got, err)
		}
	}
	says("before")
	for _, command := range []string{"sessions", "upstreams"} {
		if out := p.must(command); !strings.Contains(out, map[string]string{"sessions": server, "upstreams": "(chosen)"}[command]) {
			t.Errorf("shaper %s prints\n%s", command, out)
		}
	}
	p.write(policy(server, "users = \"nowhere\"\n"))
	if _, errs, code := p.cli("reload"); code == 0 || !strings.Contains(errs, "listener.l.users") || !strings.Contains(errs, "htpasswd") {
		t.Errorf("reload of a policy without its users: %d, %s", code, errs)
	}
	says("still")
	p.write(policy("203.0.113.1", ""))
	p.must("reload")
	says("after")
	if other, code := socks(t, p.addr("l"), host, port); code != 2 {
		t.Errorf("after the reload, the entry answers %d", code)
	} else {
		other.Close()
	}
	p.write(policy(server, fmt.Sprintf("users = %q\n", usersFile(t))))
	p.must("reload")
	says("at last")
	if other, code := socks(t, p.addr("l"), host, port); code != 0xff {
		t.Errorf("without a login, the entry answers %d", code)
	} else {
		other.Close()
	}
}
