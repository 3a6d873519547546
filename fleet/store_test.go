package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A server is a redis-server that the test has started.
type server struct {
	t    *testing.T
	addr string
	args []string
	cmd  *exec.Cmd
}

// startServer starts a redis-server with options in a directory of its own, on a free port.
func startServer(t *testing.T, options ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not installed: apt-get install redis-server")
		}
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	port := freePort(t)
	s := &server{t: t, addr: "127.0.0.1:" + port}
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()}, options...)
	s.start()
	t.Cleanup(s.kill)
	return s
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// start starts the process, and returns when it answers.
func (s *server) start() {
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if conn, err := redis.Dial("tcp", s.addr); err == nil {
			_, err = conn.Do("PING")
			conn.Close()
			if err == nil {
				return
			}
		}
	}
	s.t.Fatalf("redis-server %s does not answer", strings.Join(s.args, " "))
}

// kill is kill -9.
func (s *server) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

func (s *server) do(command string, args ...any) any {
	s.t.Helper()
	conn, err := redis.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	v, err := conn.Do(command, args...)
	if err != nil {
		s.t.Fatalf("%s %v: %v", command, args, err)
	}
	return v
}

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
	srv := startServer(t)
	for _, class := range testClasses(t) {
		c := newCaller(t, Config{Addresses: []string{srv.addr}, Prefix: "t:"}, class)
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
			model.ID = c.server().id
			if want := model.Do(got.Now, call); got != want {
				t.Fatalf("%s, call %d: Redis answers %+v\nthe model %+v", class.Name, i, got, want)
			}
		}
	}
}

// TestSlotsAreExact takes slots of a rate that is no whole microseconds.
func TestSlotsAreExact(t *testing.T) {
	class := &Class{Name: "exact", Rate: mustRate(t, "30000 messages/s"), Late: time.Millisecond}
	c := newCaller(t, Config{Addresses: []string{startServer(t).addr}}, class)
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
	for name, lose := range map[string]func(*server){
		"SCRIPT FLUSH": func(s *server) { s.do("SCRIPT", "FLUSH") },
		"FLUSHALL":     func(s *server) { s.do("FLUSHALL") },
		"kill -9":      func(s *server) { s.kill(); s.start() },
	} {
		t.Run(name, func(t *testing.T) {
			srv := startServer(t)
			c := newCaller(t, Config{Addresses: []string{srv.addr}}, class)
			before := c.take(10)
			lose(srv)
			if name == "kill -9" {
				if _, err := c.store.Do(context.Background(), c.call(Take, 1)); err == nil {
					t.Error("a call on a connection to a dead server succeeds")
				}
			}
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
		spoil func(*server)
		want  string
	}{
		{"read-only", func(s *server) { s.do("REPLICAOF", "127.0.0.1", freePort(s.t)) }, "READONLY"},
		{"wrong type", func(s *server) { s.do("SET", "{a}", "x") }, "WRONGTYPE"},
		{"password", func(s *server) { s.do("CONFIG", "SET", "requirepass", "secret") }, "NOAUTH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := startServer(t)
			c.spoil(srv)
			store := newCaller(t, Config{Addresses: []string{srv.addr}}, class).store
			for _, op := range []Op{Beat, Ping} {
				_, err := store.Do(context.Background(), &Call{Op: op, Class: class, Member: "m", Seq: 1})
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("a %s returns %v, want %s", op, err, c.want)
				}
			}
		})
	}
}

func TestStoreDeadline(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	srv := startServer(t)
	c := newCaller(t, Config{Addresses: []string{srv.addr}, Deadline: 100 * time.Millisecond}, class)
	srv.cmd.Process.Signal(syscall.SIGSTOP)
	defer srv.cmd.Process.Signal(syscall.SIGCONT)
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
	srv := startServer(t)
	srv.do("ACL", "SETUSER", "shaper", "on", ">secret", "~p:*", "+evalsha", "+eval", "+info", "+time", "+wait", "+ping", "+hget", "+hset", "+hmget", "+hdel", "+hkeys", "+hlen", "+hincrby", "+zadd", "+zrem", "+zrange", "+zrangebyscore", "+zcard", "+zcount", "+zrank", "+zscore", "+zincrby", "+zremrangebyrank", "+pexpire")
	c := newCaller(t, Config{Addresses: []string{srv.addr}, Username: "shaper", Password: "secret", Prefix: "p:"}, class)
	if r := c.take(5); r.Units == 0 {
		t.Error("nothing was granted")
	}
}

// TestStoreWithReplica finds the master through a sentinel, and holds that a grant is used only if a
// replica has it.
func TestStoreWithReplica(t *testing.T) {
	class := &Class{Name: "a", Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
	master, replica := startServer(t), startServer(t)
	host, port, _ := net.SplitHostPort(master.addr)
	replica.do("REPLICAOF", host, port)
	synced := func() bool {
		return strings.Contains(string(replica.do("INFO", "replication").([]byte)), "master_link_status:up")
	}
	for until := time.Now().Add(30 * time.Second); !synced() && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	port = freePort(t)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor main %s 1\n", port, strings.Replace(master.addr, ":", " ", 1))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := &server{t: t, addr: "127.0.0.1:" + port, args: []string{config, "--sentinel"}}
	sentinel.start()
	t.Cleanup(sentinel.kill)

	c := newCaller(t, Config{Addresses: []string{sentinel.addr}, Sentinel: "main"}, class)
	if c.take(5); c.server().replicas != 1 {
		t.Errorf("the store sees %d replicas, want 1", c.server().replicas)
	}
	replica.kill()
	c.store.conf.Deadline, c.server().deadline = time.Second, time.Second
	if _, err := c.store.Do(context.Background(), c.call(Take, 1)); err == nil || !strings.Contains(err.Error(), "no replica") && !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(errors.Unwrap(err)) {
		t.Errorf("without a replica a grant returns %v", err)
	}
}

// TestStoreOfCluster has three masters; each class is on one of them.
func TestStoreOfCluster(t *testing.T) {
	var nodes []*server
	for i := range 3 {
		bus := freePort(t)
		n := startServer(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-config-file", "nodes.conf")
		var slots []any
		for slot := i; slot < 16384; slot += 3 {
			slots = append(slots, slot)
		}
		n.do("CLUSTER", append([]any{"ADDSLOTS"}, slots...)...)
		n.do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		for _, o := range nodes {
			host, port, _ := net.SplitHostPort(o.addr)
			n.do("CLUSTER", "MEET", host, port, o.args[len(o.args)-3])
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		for until := time.Now().Add(60 * time.Second); !strings.Contains(string(n.do("CLUSTER", "INFO").([]byte)), "cluster_state:ok"); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("the cluster does not come up")
			}
		}
	}
	used := map[string]bool{}
	for i := range 12 {
		class := &Class{Name: fmt.Sprint("class", i), Rate: mustRate(t, "1000 messages/s"), Late: time.Millisecond}
		c := newCaller(t, Config{Addresses: []string{nodes[0].addr, nodes[1].addr, nodes[2].addr}}, class)
		c.take(5)
		used[c.server().id] = true
	}
	if len(used) != 3 {
		t.Errorf("12 classes are on %d masters", len(used))
	}
}
