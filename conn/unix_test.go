package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/upstream"
)

// unixConn is what these tests use of a *net.UnixConn; it resets nothing.
type unixConn struct{ *net.UnixConn }

func (unixConn) SetLinger(int) error { return nil }

// dialUnix connects to a unix socket "unix:NAME".
func dialUnix(t testing.TB, address string) unixConn {
	t.Helper()
	name, ok := policy.UnixName(address)
	if !ok {
		t.Fatalf("%s is no unix socket", address)
	}
	c, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return unixConn{c.(*net.UnixConn)}
}

// acceptsUnix is a listener of unix sockets, as handOver wants it.
type acceptsUnix struct{ net.Listener }

func (l acceptsUnix) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return unixConn{c.(*net.UnixConn)}, nil
}

// listenUnix returns an upstream at a unix socket, and a channel of its connections.
func listenUnix(t testing.TB, name string) (address string, conns <-chan tcpConn) {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	_, conns = handOver(t, acceptsUnix{l})
	return "unix:" + name, conns
}

// listenAt is the line of a listener's section for these addresses.
func listenAt(addresses ...string) string {
	return fmt.Sprintf(`listen = ["%s"]`, strings.Join(addresses, `", "`))
}

// Bytes pass between unix sockets, with and without a file, in both directions, until both end.
func TestUnixSockets(t *testing.T) {
	dir := trial.ShortDir(t)
	abstract := fmt.Sprintf("@shaper test %d", os.Getpid())
	for _, at := range []struct{ front, back string }{
		{filepath.Join(dir, "front"), filepath.Join(dir, "back")},
		{abstract + " front", abstract + " back"},
	} {
		t.Run(at.front, func(t *testing.T) {
			upstream, conns := listenUnix(t, at.back)
			r := run(t, forward(upstream, fast, listenAt("unix:"+at.front)))
			client := dialUnix(t, r.addr("l"))
			server := next(t, conns)
			big := string(noise(300_000))
			go client.Write([]byte(big))
			expect(t, server, big)
			send(t, server, "back")
			expect(t, client, "back")
			if all := r.Sessions(); len(all) != 1 || all[0].Client != "unix:"+at.front || all[0].Upstream != upstream || all[0].Destination != "" {
				t.Errorf("the sessions are %+v", all)
			}
			client.CloseWrite()
			expectEOF(t, server)
			send(t, server, "last words")
			server.CloseWrite()
			expect(t, client, "last words")
			expectEOF(t, client)
			r.awaitEnd(stats.OK, 1)
		})
	}
}

// TLS works over unix sockets, on both sides.
func TestTLSOverUnix(t *testing.T) {
	a, dir := newAuthority(t), trial.ShortDir(t)
	cert := a.issue("server")
	upstream, conns := listenUnix(t, filepath.Join(dir, "back"))
	r := run(t, forward(upstream, fast, listenAt("unix:"+filepath.Join(dir, "front")), cert.terminating(),
		fmt.Sprintf(`upstream_tls = { ca = %q, server_name = "localhost" }`, a.file)))
	client := tls.Client(dialUnix(t, r.addr("l")), &tls.Config{RootCAs: a.pool, ServerName: "localhost"})
	done := make(chan error, 1)
	go func() { done <- client.Handshake() }()
	server := tls.Server(next(t, conns), &tls.Config{Certificates: []tls.Certificate{cert.pair}})
	if err := errors.Join(<-done, server.Handshake()); err != nil {
		t.Fatal(err)
	}
	send(t, client, "question")
	expect(t, server, "question")
	send(t, server, "answer")
	expect(t, client, "answer")
	server.CloseWrite()
	expectEOF(t, client)
	client.CloseWrite()
	expectEOF(t, server)
	r.awaitEnd(stats.OK, 1)
}

// A client of a unix socket has no address, so no rule about an address or a port matches it.
// Those that name the listener do.
func TestRulesForUnixClients(t *testing.T) {
	at := "unix:" + filepath.Join(trial.ShortDir(t), "s")
	rules := "\n[[rule]]\nsource = [\"0.0.0.0/0\", \"::/0\"]\nclass = \"other\"\n[[rule]]\nsource_port = \"1-65535\"\nclass = \"other\"\n"
	text := class("other", fast) + class("mine", fast) + forward(policy.Echo, fast, listenAt(at, "127.0.0.1:0"))
	for want, rule := range map[string]string{"c": "", "mine": "[[rule]]\nlistener = \"l\"\nclass = \"mine\"\n"} {
		r := run(t, text+rules+rule)
		client := dialUnix(t, at)
		send(t, client, "x")
		expect(t, client, "x")
		if all := r.Sessions(); len(all) != 1 || all[0].Class != want {
			t.Errorf("with the rule %q the sessions are %+v, want class %s", rule, all, want)
		}
		r.Shutdown(expired)
	}
}

// A reload keeps the socket and its sessions, changes its mode, and removes the file when the
// listener is gone.
func TestReloadOfUnixSockets(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "s")
	with := func(mode string) string {
		return forward(policy.Echo, fast, listenAt("unix:"+path, "127.0.0.1:0"), fmt.Sprintf("unix = { mode = %q }", mode))
	}
	r := run(t, with("0600"))
	client := dialUnix(t, "unix:"+path)
	send(t, client, "x")
	expect(t, client, "x")
	before, _ := os.Stat(path)
	if got := before.Mode().Perm(); got != 0o600 {
		t.Errorf("the mode is %o", got)
	}
	r.reload(with("0666"))
	now, err := os.Stat(path)
	if err != nil || !os.SameFile(before, now) || now.Mode().Perm() != 0o666 {
		t.Errorf("after the reload the file is %v, %v", now, err)
	}
	send(t, client, "y")
	expect(t, client, "y")
	r.reload(forward(policy.Echo, fast))
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a listener that is gone: %v", err)
	}
	send(t, client, "z")
	expect(t, client, "z")
}

// A reload binds a unix socket again whose file somebody has removed. Sessions of the old socket go
// on, and a file that another process has put there stays.
func TestReloadBringsAnUnlinkedSocketBack(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "s")
	text := forward(policy.Echo, fast, listenAt("unix:"+path))
	r := run(t, text)
	old := dialUnix(t, "unix:"+path)
	echo := func(c unixConn) {
		t.Helper()
		send(t, c, "hello")
		expect(t, c, "hello")
	}
	echo(old)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r.reload(text)
	echo(dialUnix(t, "unix:"+path))
	echo(old)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.reload(text)
	if got, err := os.ReadFile(path); string(got) != "other" {
		t.Errorf("the file of another process is %q, %v", got, err)
	}
	echo(old)
}

// A policy whose socket cannot be bound changes nothing, and leaves no file.
func TestUnixSocketIsTaken(t *testing.T) {
	dir := trial.ShortDir(t)
	taken, free := filepath.Join(dir, "taken"), filepath.Join(dir, "free")
	listenUnix(t, taken)
	r := run(t, forward(policy.Echo, fast))
	_, err := r.prepare(forward(policy.Echo, fast, listenAt("unix:"+free, "unix:"+taken), `unix = { user = "no-such-user" }`))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("listener.l.listen: %s: another program (pid %d) listens there", taken, os.Getpid())) ||
		!strings.Contains(err.Error(), "listener.l.unix.user: user: unknown user no-such-user") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(free); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the other socket is there: %v", err)
	}
	dialUnix(t, "unix:"+taken)
}

// An upstream that is a unix socket of ours is refused, whatever its spelling.
func TestUnixLoop(t *testing.T) {
	dir := trial.ShortDir(t)
	path, link := filepath.Join(dir, "s"), filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	r := run(t, forward("unix:"+link, fast, listenAt("unix:"+path)))
	expectEOF(t, dialUnix(t, "unix:"+path))
	r.awaitEnd(stats.DialFailed, 1)
	if !strings.Contains(r.log.String(), upstream.ErrLoop.Error()) {
		t.Error("the log does not say why")
	}
}

// A session tries the next upstream if the file of a unix socket is not there, or if nobody
// listens.
func TestUnixFailover(t *testing.T) {
	dir := trial.ShortDir(t)
	missing, dead := "unix:"+filepath.Join(dir, "missing"), filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	dead = "unix:" + dead
	living, conns := listenUnix(t, filepath.Join(dir, "living"))
	r := run(t, class("c", fast)+fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nupstream = [%q, %q, %q]\nclass = \"c\"\n", missing, dead, living))
	client := r.dial("l")
	send(t, client, "x")
	expect(t, next(t, conns), "x")
	for _, upstream := range []string{missing, dead} {
		if got := r.failures(upstream)[stats.NotServed]; got != 1 {
			t.Errorf("%s has failed %d times", upstream, got)
		}
	}
	if all := r.Sessions(); len(all) != 1 || all[0].UpstreamNumber != 3 {
		t.Errorf("the sessions are %+v", all)
	}
}

// A session waits for room in the backlog of its upstream.
func TestBusyUnixUpstream(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "s")
	l, err := sock.Kernel{}.ListenUnix(path, sock.Access{Mode: 0o600, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for full := false; !full; {
		e, err := sock.Kernel{}.DialUnix(path)
		if full = errors.Is(err, unix.EAGAIN); !full {
			defer e.Close()
		}
	}
	r := run(t, forward("unix:"+path, fast))
	client := r.dial("l")
	send(t, client, "x")
	r.awaitStage(connecting)
	e, _, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r.awaitStage(relaying)
}

// A unix socket that systemd has passed is used, and stays when the listener is gone.
func TestPassedUnixSocket(t *testing.T) {
	path := filepath.Join(trial.ShortDir(t), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	passed, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	l.Close()
	r := bare(t)
	r.inherited = Inherited{"front": {passed}}
	r.reload(forward(policy.Echo, fast, listenAt("systemd:front")))
	if got := r.addr("l"); got != "unix:"+path {
		t.Errorf("it listens at %s", got)
	}
	client := dialUnix(t, "unix:"+path)
	send(t, client, "x")
	expect(t, client, "x")
	r.reload(forward(policy.Echo, fast))
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file of systemd: %v", err)
	}
	r.reload(forward(policy.Echo, fast, listenAt("systemd:front")))
	again := dialUnix(t, "unix:"+path)
	send(t, again, "x")
	expect(t, again, "x")
}
