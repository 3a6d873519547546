package fleettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Redis is a redis-server that a test has started.
type Redis struct {
	Addr string
	Port string
	Dir  string
	Env  []string // besides that of the test
	// Password is what Do and Try give; "": none.
	Password string

	t       testing.TB
	options []string
	cmd     *exec.Cmd
}

// StartRedis starts a redis-server with options, in a directory of its own and on a free port. It ends with the test.
// If the program is not installed, the test is skipped, and with CI=true it fails.
func StartRedis(t testing.TB, options ...string) *Redis {
	t.Helper()
	r := NewRedis(t, options...)
	r.Start()
	return r
}

// StartGuarded starts a redis-server that requires a password, and gives it to its master.
func StartGuarded(t testing.TB, password string) *Redis {
	t.Helper()
	r := NewRedis(t, "--requirepass", password, "--masterauth", password)
	r.Password = password
	r.Start()
	return r
}

// NewRedis is StartRedis without Start.
func NewRedis(t testing.TB, options ...string) *Redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is not installed: apt-get install redis-server")
		}
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	port := FreePort(t)
	r := &Redis{Addr: "127.0.0.1:" + port, Port: port, Dir: t.TempDir(), t: t, options: options}
	t.Cleanup(r.Kill)
	return r
}

// FreePort returns a TCP port that nobody uses, and that no other call returns until the test ends, in any process. It
// is none of those from which connections come: else a client that dials a server that is down could take its port, by a
// connection to itself.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10000 + rand.IntN(20000))
		reserved, err := net.ListenPacket("udp", "127.0.0.1:"+port) // a server of TCP does not need it
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			t.Cleanup(func() { reserved.Close() })
			return port
		}
		reserved.Close()
	}
	t.Fatal("there is no free port")
	return ""
}

// Start starts the process, and returns when it accepts connections.
func (r *Redis) Start() {
	r.t.Helper()
	args := append([]string{"--port", r.Port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0", "--dir", r.Dir}, r.options...)
	if len(r.options) > 0 && r.options[len(r.options)-1] == "--sentinel" {
		args = r.options // all is in its file
	}
	r.cmd = exec.Command("redis-server", args...)
	r.cmd.Env = append(os.Environ(), r.Env...)
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", r.Addr); err == nil {
			conn.Close()
			return
		}
	}
	r.t.Fatalf("redis-server %s accepts no connection", strings.Join(args, " "))
}

// Kill is kill -9. It waits until the process has ended.
func (r *Redis) Kill() {
	if r.cmd != nil && r.cmd.ProcessState == nil {
		r.cmd.Process.Kill()
		r.cmd.Wait()
	}
}

// Signal sends a signal to the process.
func (r *Redis) Signal(s os.Signal) { r.cmd.Process.Signal(s) }

// Do sends a command on a connection of its own.
func (r *Redis) Do(command string, args ...any) any {
	r.t.Helper()
	v, err := r.Try(command, args...)
	if err != nil {
		r.t.Fatalf("%s %v: %v", command, args, err)
	}
	return v
}

// Try is Do for a command that may fail. Texts are strings.
func (r *Redis) Try(command string, args ...any) (any, error) {
	conn, err := redis.Dial("tcp", r.Addr, redis.DialPassword(r.Password), redis.DialReadTimeout(10*time.Second), redis.DialConnectTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	v, err := conn.Do(command, args...)
	if b, ok := v.([]byte); ok {
		return string(b), err
	}
	return v, err
}

// WaitFor sends a command until the answer contains a text.
func (r *Redis) WaitFor(text, command string, args ...any) {
	r.t.Helper()
	var v any
	var err error
	for until := time.Now().Add(60 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		v, err = r.Try(command, args...)
		if s, ok := v.(string); ok && strings.Contains(s, text) {
			return
		}
	}
	r.t.Fatalf("%s %v on %s never answers %q but %v, %v", command, args, r.Addr, text, v, err)
}

// Follow makes the server a replica of another one, and returns when it has all of that.
func (r *Redis) Follow(master *Redis) {
	r.t.Helper()
	r.Do("REPLICAOF", "127.0.0.1", master.Port)
	r.WaitFor("master_link_status:up", "INFO", "replication")
}

// clusterTimeout is how many milliseconds a node of a cluster waits for another one, also for its handshake. A busy machine
// keeps it. Who wants a replica to become a master sooner calls TakeOver.
const clusterTimeout = "15000"

// TakeOver makes the replica of a master of a cluster a master in its place.
func TakeOver(t testing.TB, nodes []*Redis, master *Redis) {
	t.Helper()
	for _, n := range nodes {
		if role, _ := n.Try("INFO", "replication"); n != master && strings.Contains(fmt.Sprint(role), "master_port:"+master.Port+"\r\n") {
			n.Do("CLUSTER", "FAILOVER", "TAKEOVER")
			n.WaitFor("role:master", "INFO", "replication")
			return
		}
	}
	t.Fatalf("%s has no replica", master.Addr)
}

// Addresses returns the addresses of servers.
func Addresses(servers []*Redis) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr)
	}
	return all
}

// StartCluster starts a cluster of so many masters, each with a replica if replicas is true: first the masters, then
// the replicas.
func StartCluster(t testing.TB, masters int, replicas bool) (nodes []*Redis) {
	t.Helper()
	var buses []string
	count := masters
	if replicas {
		count *= 2
	}
	for i := range count {
		bus := FreePort(t)
		n := StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", clusterTimeout)
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		for j, o := range nodes {
			n.Do("CLUSTER", "MEET", "127.0.0.1", o.Port, buses[j])
		}
		nodes, buses = append(nodes, n), append(buses, bus)
		if i >= masters {
			continue
		}
		slots := []any{"ADDSLOTS"}
		for slot := i; slot < 16384; slot += masters {
			slots = append(slots, slot)
		}
		n.Do("CLUSTER", slots...)
	}
	for _, n := range nodes {
		n.WaitFor("cluster_state:ok", "CLUSTER", "INFO")
	}
	for i := masters; i < count; i++ {
		id := nodes[i-masters].Do("CLUSTER", "MYID")
		nodes[i].WaitFor(id.(string), "CLUSTER", "NODES")
		nodes[i].Do("CLUSTER", "REPLICATE", id)
		nodes[i].WaitFor("master_link_status:up", "INFO", "replication")
	}
	return nodes
}

// StartSentinels starts three sentinels that watch a master under the name "main". They require a password, unless it is "".
// Their files have further lines.
func StartSentinels(t testing.TB, master *Redis, password string, lines ...string) (addrs []string) {
	t.Helper()
	if master.Password != "" {
		lines = append(lines, "sentinel auth-pass main "+master.Password)
	}
	if password != "" {
		lines = append(lines, "requirepass "+password)
	}
	var all []*Redis
	for range 3 {
		s := NewRedis(t)
		path := s.Dir + "/sentinel.conf"
		text := "port " + s.Port + "\nbind 127.0.0.1\ndir " + s.Dir + "\nsentinel monitor main 127.0.0.1 " + master.Port + " 2\n" +
			"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n" + strings.Join(lines, "\n") + "\n"
		s.Password = password
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.options = []string{path, "--sentinel"}
		s.Start()
		all, addrs = append(all, s), append(addrs, s.Addr)
	}
	for _, s := range all {
		s.WaitFor("sentinels=3", "INFO", "sentinel")
		s.WaitFor("slaves=1", "INFO", "sentinel")
	}
	return addrs
}
