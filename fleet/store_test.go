package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"shaper/fleet/fleettest"
)

// A caller takes slots of a class from a Store.
type caller struct {
	t     *testing.T
	store *Store
	class *Class
	seq   int64
}

func newCaller(t *testing.T, conf Config, class *Class) *caller {
	if conf.Deadline == 0 {
		conf.Deadline = 10 * time.Second // the machine may be busy
	}
	store, err := NewStore(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &caller{t: t, store: store, class: class}
}

func (c *caller) call(op Op, wanted int64) *Call {
	c.seq++
	return &Call{Op: op, Class: c.class, Member: "m", Seq: c.seq, Number: c.seq, Wanted: wanted, Need: 1, Grace: time.Minute}
}

// server returns the connection that the last call used.
func (c *caller) server() *conn { return c.store.idle[len(c.store.idle)-1] }

// take takes units, and asks again when the store says so.
func (c *caller) take(wanted int64) Reply {
	c.t.Helper()
	for {
		r, err := c.store.Do(context.Background(), c.call(Take, wanted))
		if err != nil {
			c.t.Fatal(err)
		}
		if r.Units > 0 {
			return r
		}
		time.Sleep(r.Till.Sub(r.Now))
	}
}

// TestScriptOnRedis compares the script with the model on a real server, whose clock cannot be set.
func TestScriptOnRedis(t *testing.T) {
	t.Parallel()
	srv := fleettest.StartRedis(t)
	for _, class := range testClasses(t) {
		c := newCaller(t, Config{Addresses: []string{srv.Addr}, Prefix: "t:"}, class)
		var model Model
		for i := range 200 {
			call := c.call(Take, 1+int64(i)%(2*class.Lease()))
			if class.Bounds != nil {
				from, to := class.Bounds(time.Now())
				call.From, call.To = Stamp(from.UnixMicro()), Stamp(to.UnixMicro())
			}
			got, err := c.store.Do(context.Background(), call)
			if err != nil {
				t.Fatal(err)
			}
			if got.Took <= 0 || got.Took > time.Since(time.UnixMicro(int64(got.Now))) {
				t.Fatalf("%s, call %d: Redis has computed for %v", class.Name, i, got.Took)
			}
			got.Took = 0 // the model computes in no time
			model.ID = c.server().id
			if want := model.Do(got.Now, call); got != want {
				t.Fatalf("%s, call %d: Redis answers %+v\nthe model %+v", class.Name, i, got, want)
			}
		}
	}
}

// TestSlotsAreExact takes slots of a rate that is no whole microseconds.
func TestSlotsAreExact(t *testing.T) {
	t.Parallel()
	class := &Class{Name: "exact", Rate: mustRate(t, "30000 messages/s"), Late: time.Millisecond}
	c := newCaller(t, Config{Addresses: []string{fleettest.StartRedis(t).Addr}}, class)
	first := c.take(1000)
	next, n := first, first.Units
	for range 100 {
		next = c.take(1000)
		if at := first.First + Stamp(n*1_000_000/30_000); next.First < at {
			t.Fatalf("slot %d is at %d, want %d at the earliest", n, next.First, at)
		} else if next.First > at { // the class was idle: the machine is busy
			first, n = next, 0
		}
		n += next.Units
	}
}

func TestStoreSurvives(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	fences := func(t *testing.T, c *caller, before Reply) {
		t.Helper()
		after := c.take(1)
		if least := after.Now.Add(-standardTerms.transit); after.First < least || after.First <= before.First {
			t.Errorf("the first slot after the loss is at %d, after one at %d", after.First, before.First)
		}
	}
	for name, lose := range map[string]func(*fleettest.Redis){
		"SCRIPT FLUSH": func(s *fleettest.Redis) { s.Do("SCRIPT", "FLUSH") },
		"FLUSHALL":     func(s *fleettest.Redis) { s.Do("FLUSHALL") },
		"kill -9":      func(s *fleettest.Redis) { s.Kill(); s.Start() },
	} {
		t.Run(name, func(t *testing.T) {
			srv := fleettest.StartRedis(t)
			c := newCaller(t, Config{Addresses: []string{srv.Addr}}, class)
			before := c.take(10)
			lose(srv)
			asked := c.call(Take, 1)
			r, err := c.store.Do(context.Background(), asked)
			if err != nil {
				t.Fatal(err)
			}
			if fenced := r.Units == 0 && r.Recover > r.Now; fenced != (name != "SCRIPT FLUSH") {
				t.Errorf("the answer after it is %+v", r)
			}
			fences(t, c, before)
		})
	}
}

// TestStoreRefuses lists what a call fails with, so that a member goes on without the store. A ping fails, too: else
// the member would go back to that store at once, and lose what its share has given it.
func TestStoreRefuses(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	for _, c := range []struct {
		name  string
		spoil func(*fleettest.Redis)
		want  string
	}{
		{"read-only", func(s *fleettest.Redis) { s.Do("REPLICAOF", "127.0.0.1", 1) }, "READONLY"},
		{"wrong type", func(s *fleettest.Redis) { s.Do("SET", "{a}", "x") }, "WRONGTYPE"},
		{"password", func(s *fleettest.Redis) { s.Do("CONFIG", "SET", "requirepass", "secret") }, "NOAUTH"},
		{"full", func(s *fleettest.Redis) { s.Do("CONFIG", "SET", "maxmemory", 1) }, "OOM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := fleettest.StartRedis(t)
			c.spoil(srv)
			store := newCaller(t, Config{Addresses: []string{srv.Addr}}, class).store
			for _, op := range []Op{Beat, Ping} {
				_, err := store.Do(context.Background(), &Call{Op: op, Class: class, Member: "m", Seq: 1})
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("a %s returns %v, want %s", op, err, c.want)
				}
			}
		})
	}
}

// TestStoreOfServersThatAreNoCluster has two servers, as somebody writes "for safety": each member would use another one. Nor is such a
// server used that stands among the nodes of a cluster.
func TestStoreOfServersThatAreNoCluster(t *testing.T) {
	t.Parallel()
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	alone, other, node := fleettest.StartRedis(t), fleettest.StartRedis(t), fleettest.StartCluster(t, 1, false)[0]
	for _, addrs := range [][]string{{alone.Addr, other.Addr}, {alone.Addr, node.Addr}} {
		c := newCaller(t, Config{Addresses: addrs}, class)
		for range 20 { // each call finds one of them by chance
			_, err := c.store.Do(context.Background(), c.call(Beat, 0))
			switch text := fmt.Sprint(err); {
			case err == nil && c.server().addr != node.Addr:
				t.Fatalf("of %v, %s is used", addrs, c.server().addr)
			case err != nil && !strings.HasSuffix(text, " is no node of a cluster, and several addresses without sentinel are those of a cluster"):
				t.Fatalf("a beat returns %v", err)
			}
			c.store.Close()
		}
	}
}

// An error of a sentinel names it, and says that it gets no password: the policy may have one, which is for the server. Another sentinel,
// which is gone, does not hide the error.
func TestStoreNamesTheSentinel(t *testing.T) {
	srv := fleettest.StartRedis(t)
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	c := newCaller(t, Config{Addresses: []string{srv.Addr, "127.0.0.1:" + fleettest.FreePort(t)}, Sentinel: "main", Deadline: 5 * time.Second}, class)
	for range 20 { // each call begins with one of them by chance
		_, err := c.store.Do(context.Background(), c.call(Ping, 0))
		if want := "fleet: ping: asking the sentinel " + srv.Addr + " without a password: ERR unknown command"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Fatalf("a ping returns %v, want %s", err, want)
		}
	}
}

// TestStoreWithDeadNodes finds the one node of a cluster that is there, in the same call. If none is there, the call fails.
func TestStoreWithDeadNodes(t *testing.T) {
	t.Parallel()
	node := fleettest.StartCluster(t, 1, false)[0]
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	c := newCaller(t, Config{Addresses: []string{"127.0.0.1:" + fleettest.FreePort(t), node.Addr, "127.0.0.1:" + fleettest.FreePort(t)}}, class)
	for range 20 { // each call begins with one of them by chance
		if _, err := c.store.Do(context.Background(), c.call(Beat, 0)); err != nil {
			t.Fatal(err)
		}
		c.store.Close()
	}
	node.Kill()
	if _, err := c.store.Do(context.Background(), c.call(Beat, 0)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a beat without any node returns %v", err)
	}
}

func TestStoreDeadline(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	srv := fleettest.StartRedis(t)
	c := newCaller(t, Config{Addresses: []string{srv.Addr}, Deadline: 100 * time.Millisecond}, class)
	srv.Signal(syscall.SIGSTOP)
	defer srv.Signal(syscall.SIGCONT)
	begun := time.Now()
	_, err := c.store.Do(context.Background(), c.call(Beat, 0))
	if err == nil {
		t.Fatal("a stopped server answers")
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the call took %v: %v", took, err)
	}
}

func TestStorePassword(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	srv := fleettest.StartRedis(t)
	srv.Do("ACL", "SETUSER", "shaper", "on", ">secret", "~p:*", "+evalsha", "+eval", "+info", "+time", "+wait", "+ping", "+hget", "+hset", "+hmget", "+hdel", "+hkeys", "+hlen", "+hincrby", "+zadd", "+zrem", "+zrange", "+zrangebyscore", "+zcard", "+zcount", "+zrank", "+zscore", "+zincrby", "+zremrangebyrank", "+pexpire")
	c := newCaller(t, Config{Addresses: []string{srv.Addr}, Username: "shaper", Password: "secret", Prefix: "p:"}, class)
	if r := c.take(5); r.Units == 0 {
		t.Error("nothing was granted")
	}
}

// TestStoreWithReplica finds the master through sentinels, and holds that a grant is used only if a replica has it. If none
// answers, a ping fails, too.
func TestStoreWithReplica(t *testing.T) {
	t.Parallel()
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	master, replica := fleettest.StartRedis(t), fleettest.StartRedis(t)
	replica.Follow(master)
	c := newCaller(t, Config{Addresses: fleettest.StartSentinels(t, master, ""), Sentinel: "main"}, class)
	if c.take(5); c.server().replicas != 1 {
		t.Errorf("the store sees %d replicas, want 1", c.server().replicas)
	}
	replica.Signal(syscall.SIGSTOP)
	conf := *c.store.conf.Load()
	conf.Deadline, c.server().deadline = time.Second, time.Second
	c.store.conf.Store(&conf)
	for _, op := range []Op{Take, Ping} {
		_, err := c.store.Do(context.Background(), c.call(op, 1))
		if err == nil || !strings.Contains(err.Error(), "no replica") && !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(errors.Unwrap(err)) {
			t.Errorf("without a replica a %s returns %v", op, err)
		}
	}
}

// TestStoreThatClosesIdleConnections has a server that closes all connections while no call uses them. The next call does not fail:
// it goes again, and gets one grant. A server that is gone fails it.
func TestStoreThatClosesIdleConnections(t *testing.T) {
	t.Parallel()
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	server := fleettest.StartRedis(t)
	c := newCaller(t, Config{Addresses: []string{server.Addr}}, class)
	for range 3 {
		c.take(5)
		server.Do("CLIENT", "KILL", "TYPE", "normal")
	}
	c.take(5)
	server.Kill()
	if r, err := c.store.Do(context.Background(), c.call(Take, 5)); err == nil {
		t.Errorf("a server that is gone grants %d units", r.Units)
	}
}

// TestMoveGoesAgain has the store carry a Move out, and close the connection, which was idle before, instead of answering. The Move goes
// again, and slots move once.
func TestMoveGoesAgain(t *testing.T) {
	t.Parallel()
	quick := standardTerms
	quick.recovery = 0 // a store that has lost what it knew moves no slots
	class := &Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond, terms: &quick}
	var closes atomic.Bool
	addr := proxy(t, fleettest.StartRedis(t).Addr, func(c, up net.Conn) {
		go func() {
			io.Copy(up, c)
			up.Close()
		}()
		for buf := make([]byte, 64<<10); ; {
			n, err := up.Read(buf)
			if err != nil || closes.CompareAndSwap(true, false) {
				return
			}
			c.Write(buf[:n])
		}
	})
	c := newCaller(t, Config{Addresses: []string{addr}}, class)
	c.take(1)
	closes.Store(true)
	r, err := c.store.Do(context.Background(), c.call(Move, 3000))
	if err != nil || closes.Load() || r.Moved != 3000 {
		t.Errorf("slots have moved by %d µs, want 3000: %v", r.Moved, err)
	}
}

// TestClusterThatClosesIdleConnections has the servers of a cluster close all connections while no call uses them. The next call does
// not fail, wherever the class is.
func TestClusterThatClosesIdleConnections(t *testing.T) {
	t.Parallel()
	nodes := fleettest.StartCluster(t, 3, false)
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	c := newCaller(t, Config{Addresses: fleettest.Addresses(nodes)}, class)
	for range 5 { // a server that is asked by chance mostly does not have the class
		c.take(5)
		for _, n := range nodes {
			n.Do("CLIENT", "KILL", "TYPE", "normal")
		}
		if _, err := c.store.Do(context.Background(), c.call(Take, 1)); err != nil {
			t.Error(err)
		}
	}
}

// TestStoreWithNewReplica holds that a server grants while its only replica gets a first copy of the data, which acknowledges
// nothing until then.
func TestStoreWithNewReplica(t *testing.T) {
	t.Parallel()
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	master, replica := fleettest.StartRedis(t), fleettest.StartRedis(t)
	master.Do("CONFIG", "SET", "repl-diskless-sync-delay", 600)
	replica.Do("REPLICAOF", "127.0.0.1", master.Port)
	master.WaitFor("state=wait_bgsave", "INFO", "replication")
	c := newCaller(t, Config{Addresses: []string{master.Addr}}, class)
	if r := c.take(5); r.Units == 0 {
		t.Error("nothing was granted")
	}
	master.Do("CONFIG", "SET", "repl-diskless-sync-delay", 0)
	master.WaitFor("state=online", "INFO", "replication")
	c.server().refresh = time.Time{}
	if c.take(5); c.server().replicas != 1 {
		t.Errorf("the store sees %d replicas, want 1", c.server().replicas)
	}
}

// TestStoreWithSentinelPasswords has sentinels and servers that require passwords, which differ. Errors name the sentinel, and no password.
func TestStoreWithSentinelPasswords(t *testing.T) {
	t.Parallel()
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	master, replica := fleettest.StartGuarded(t, "m4ster"), fleettest.StartGuarded(t, "m4ster")
	replica.Follow(master)
	addrs := fleettest.StartSentinels(t, master, "s3ntinel", "user asks on >us3r +sentinel|get-master-addr-by-name")
	for _, c := range []struct{ user, password, want string }{
		{"", "s3ntinel", ""},
		{"asks", "us3r", ""},
		{"", "", " without a password: NOAUTH"},
		{"", "m4ster", " with the password for sentinels: WRONGPASS"},
		{"asks", "s3ntinel", " with the password for sentinels: WRONGPASS"},
	} {
		caller := newCaller(t, Config{Addresses: addrs, Sentinel: "main", Password: "m4ster", SentinelUsername: c.user, SentinelPassword: c.password}, class)
		_, err := caller.store.Do(context.Background(), caller.call(Ping, 0))
		if c.want == "" {
			if err != nil || caller.server().addr != master.Addr {
				t.Errorf("user %q, password %q: a ping returns %v", c.user, c.password, err)
			}
			continue
		}
		if text := fmt.Sprint(err); !strings.HasPrefix(text, "fleet: ping: asking the sentinel 127.0.0.1:") || !strings.Contains(text, c.want) || strings.Contains(text, "m4ster") || strings.Contains(text, "s3ntinel") {
			t.Errorf("user %q, password %q: a ping returns %v, want %q", c.user, c.password, err, c.want)
		}
	}
}

// TestStoreOfCluster has three masters and three replicas; each class is on one of them.
func TestStoreOfCluster(t *testing.T) {
	t.Parallel()
	nodes := fleettest.StartCluster(t, 3, true)
	used := map[string]bool{}
	store := newCaller(t, Config{Addresses: fleettest.Addresses(nodes)}, nil).store
	for i := range 12 {
		c := &caller{t: t, store: store, class: &Class{Name: fmt.Sprint("class", i), Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}}
		c.take(1)
		used[c.server().id] = true
	}
	if len(used) != 3 {
		t.Errorf("the classes are on %d masters", len(used))
	}
	if len(store.idle) > maxConns {
		t.Errorf("the store has %d connections", len(store.idle))
	}
}

// far returns the address of a proxy that makes a server a round trip away: each answer comes so much later, and the
// first of a connection once more, for the handshake.
func far(t *testing.T, addr string, trip time.Duration) string {
	return proxy(t, addr, func(c, up net.Conn) {
		go func() {
			io.Copy(up, c)
			up.Close()
		}()
		buf := make([]byte, 64<<10)
		for wait := 2 * trip; ; wait = trip {
			n, err := up.Read(buf)
			if err != nil {
				return
			}
			time.Sleep(wait)
			c.Write(buf[:n])
		}
	})
}

// proxy returns the address of a proxy of a server. serve copies between a client and the server until one of them has ended.
func proxy(t *testing.T, addr string, serve func(c, up net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	connect := func(c net.Conn) {
		defer c.Close()
		if up, err := net.Dial("tcp", addr); err == nil {
			defer up.Close()
			serve(c, up)
		}
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go connect(c)
		}
	}()
	return l.Addr().String()
}

// TestStoreKeepsFewConnections opens all the connections that there may be while calls are on their way by others. When these have ended,
// there are no more than that.
func TestStoreKeepsFewConnections(t *testing.T) {
	t.Parallel()
	srv := fleettest.StartRedis(t)
	store := newCaller(t, Config{Addresses: []string{srv.Addr}}, nil).store
	var calls sync.WaitGroup
	begun, end := make(chan bool), make(chan bool)
	for range maxConns - 1 {
		calls.Go(func() {
			err := store.on(t.Context(), "a", func(*conn) error {
				begun <- true
				<-end
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-begun
	}
	if err := store.fill(t.Context(), srv.Addr); err != nil {
		t.Error(err)
	}
	close(end)
	calls.Wait()
	if n := len(store.idle); n != maxConns {
		t.Errorf("the store keeps %d connections, want %d", n, maxConns)
	}
}

// TestStoreFarAway has four calls at once, after the ping with which a member comes to a store that is a third of the
// deadline away. A connection takes three round trips and more, so that no call has the time to open one.
func TestStoreFarAway(t *testing.T) {
	t.Parallel()
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	srv := fleettest.StartRedis(t)
	c := newCaller(t, Config{Addresses: []string{far(t, srv.Addr, 350*time.Millisecond)}, Deadline: 1050 * time.Millisecond}, class)
	if _, err := c.store.Do(context.Background(), c.call(Ping, 0)); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for range maxConns {
		call := c.call(Beat, 0)
		calls.Go(func() {
			if _, err := c.store.Do(context.Background(), call); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}
