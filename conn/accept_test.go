package conn

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

// If max_sessions are open, connections wait in the kernel. A session that ends lets the next
// one in. So does a reload that allows more, at once.
func TestMaxSessions(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, fast, "max_sessions = 2"))
	first, firstUpstream := r.open(conns)
	r.open(conns)
	third := r.dial("l")
	send(t, third, "third")
	fourth := r.dial("l")
	send(t, fourth, "fourth")
	if n := len(r.Sessions()); n != 2 || len(conns) != 0 {
		t.Errorf("%d sessions, want 2", n)
	}
	first.Close()
	firstUpstream.Close()
	expect(t, next(t, conns), "third")
	if n := r.service("l").stats.Open.Load(); n > 3 {
		t.Errorf("%d sessions", n)
	}
	r.reload(forward(addr, fast, "max_sessions = 4"))
	expect(t, next(t, conns), "fourth")
}

// Each socket of a listener can use all of the listener's sessions.
func TestMaxSessionsOfTwoSockets(t *testing.T) {
	r := run(t, forward(policy.Echo, fast, "max_sessions = 1", `listen = ["127.0.0.1:0", "127.0.0.2:0"]`))
	for _, addr := range r.Listeners()[0].Addresses {
		c := dialTCP(t, addr)
		send(t, c, "x")
		expect(t, c, "x")
		c.Close()
	}
	// Of two that come at once, one waits for the other to end.
	one, two := dialTCP(t, r.Listeners()[0].Addresses[0]), dialTCP(t, r.Listeners()[0].Addresses[1])
	send(t, one, "1")
	send(t, two, "2")
	served := func(c tcpConn) bool {
		return slices.ContainsFunc(r.Sessions(), func(s Session) bool { return s.Client == c.LocalAddr().String() })
	}
	trial.Await(t, "one of them has a session", func() bool { return served(one) || served(two) })
	if served(one) {
		expect(t, one, "1")
		one.Close()
		expect(t, two, "2")
	} else {
		expect(t, two, "2")
		two.Close()
		expect(t, one, "1")
	}
	if n := r.service("l").stats.Open.Load(); n > 1 {
		t.Errorf("%d sessions at once", n)
	}
}

// A listener at its limit can be retargeted and closed.
func TestReloadAtTheLimit(t *testing.T) {
	addr, conns := listen(t)
	port := freePort(t)
	at := `listen = "127.0.0.1:` + port + `"`
	r := bare(t)
	r.reload(forward(addr, fast, "max_sessions = 1", at))
	r.open(conns)
	waiting := r.dial("l")
	send(t, waiting, "x")
	r.reload(class("c", fast) + listener("m", "tcp", policy.Echo, "c", at))
	expect(t, waiting, "x")
	r.reload(class("c", fast) + listener("n", "tcp", policy.Echo, "c"))
	if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
		c.Close()
		t.Error("the removed listener still accepts")
	}
}

// Without descriptors, accept neither stops nor spins. The test runs in a process of its own,
// since the limit is that of the process.
func TestNoDescriptors(t *testing.T) {
	const inside = "SHAPER_TEST_NO_DESCRIPTORS"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNoDescriptors$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if _, why, found := strings.Cut(string(out), trial.NotJudged); found { // so that command tally counts it
			why, _, _ = strings.Cut(why, "\n")
			t.Run("time", func(t *testing.T) { t.Skip(trial.NotJudged + why) })
		}
		return
	}
	r := run(t, class("c", fast)+listener("l", "tcp", policy.Discard, "c"))
	var clients []func() error
	for range 50 {
		clients = append(clients, dialable(t, r.addr("l")))
	}
	restore := exhaust(t)
	for _, connect := range clients { // each is an event, but does not cause another attempt
		if err := connect(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	errors := &r.service("l").stats.AcceptErrors
	trial.Await(t, "accept fails", func() bool { return errors.Load() > 0 })

	used, count := cpu(t), errors.Load()
	time.Sleep(time.Second)
	if used := cpu(t) - used; used > 20*time.Millisecond {
		t.Errorf("it used %v of a second", used)
	}
	if n := errors.Load() - count; n < 1 || n > 20 {
		t.Errorf("%d errors in a second", n)
	}

	restore()
	watch, start := trial.Begin(), time.Now()
	trial.Await(t, "the connections are accepted", func() bool { return r.service("l").stats.Open.Load() == 50 })
	watch.Below(t, "recovering", time.Since(start), time.Second)
}

// dialable prepares a socket that connects without another descriptor.
func dialable(t *testing.T, addr string) (connect func() error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		return unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())})
	}
}

// exhaust takes all descriptors that are free.
func exhaust(t *testing.T) (restore func()) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = 3 // fewer than are open, so that none can be opened
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}
}

func cpu(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A class that counts connections paces them, and refuses those for which it has no room.
func TestConnectionsAreClassified(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", "10 connections/s", `queue = "2 connections"`)+listener("l", "tcp", addr, "c"))
	start := time.Now()
	for range 3 {
		r.dial("l")
	}
	for range 3 {
		next(t, conns)
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("three connections took %v, want at least 200ms", took)
	}
	if n := r.sent("c", stats.Upstream).Connections.Load(); n != 3 {
		t.Errorf("%d are counted", n)
	}
	for range 10 {
		c, err := net.Dial("tcp", r.addr("l"))
		if err == nil {
			defer c.Close()
		}
	}
	trial.Await(t, "some are refused", func() bool { return r.service("l").stats.Ended[stats.Overflow].Load() >= 6 })
	if n := r.shaper.Class("c").Stats.Refused[stats.QueueFull].Items.Load(); n < 6 {
		t.Errorf("the class counts %d as refused", n)
	}
}

// A client that resets takes its connection out of the queue of the class.
func TestResetBeforeTheDial(t *testing.T) {
	r := run(t, class("c", "0 connections/s")+listener("l", "tcp", policy.Echo, "c"))
	client := r.dial("l")
	trial.Await(t, "it waits", func() bool { return r.shaper.Class("c").Backlog().Items == 1 })
	reset(client)
	r.awaitEnd(stats.Aborted, 1)
	if n := r.shaper.Class("c").Backlog().Items; n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// Busiest returns the sessions in which most waits first, then the latest, and says how many are open.
func TestBusiest(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, strings.Replace(forward(addr, "1 messages/min"), `"tcp"`, `"lines"`, 1))
	var clients []net.Conn
	for range 4 {
		c, _ := r.open(conns)
		clients = append(clients, c)
	}
	want := func(n int, want ...uint64) {
		t.Helper()
		var ids []uint64
		of, open := r.Busiest(n)
		for _, one := range of {
			ids = append(ids, one.ID)
		}
		if !slices.Equal(ids, want) || open != 4 {
			t.Errorf("of %d sessions, the busiest %d are %v, want %v", open, n, ids, want)
		}
	}
	want(10, 4, 3, 2, 1)
	send(t, clients[0], "one leaves\n"+strings.Repeat("x", 99)+"\n")
	send(t, clients[2], strings.Repeat("x", 200)+"\n")
	trial.Await(t, "two lines wait", func() bool {
		of, _ := r.Busiest(4)
		return of[0].Waiting > 0 && of[1].Waiting > 0
	})
	want(3, 3, 1, 4)
	want(0)
}
