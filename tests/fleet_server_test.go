package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shaper/fleet"
	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// startFour starts four members of 100 items/s on a store.
func startFour(t *testing.T, member fleetMember) *fleetRun {
	member.Rate, member.Late = "100 messages/s", 2*time.Millisecond
	return startFleet(t, []fleetMember{member, member, member, member})
}

// recovers returns when the limit is used again. That takes long only if a busy machine makes calls take long. In one second
// of 20, even such a machine uses some of the limit.
func (r *fleetRun) recovers(what string) {
	r.t.Helper()
	trial.Judge(r.t, 5*time.Millisecond, func() *trial.Miss {
		best := 0.
		for begin := r.now(); r.now() < begin+20*time.Second && best <= 0.85; time.Sleep(5 * time.Millisecond) {
			if now := r.now(); now > begin+time.Second {
				best = max(best, r.used(now-time.Second, now))
			}
		}
		return trial.Least(best, 0.85, 0.3, "within 20 s after %s, at most %.0f %% of the limit is used in a second; a call takes %v", what, 100*best, r.roundTrip())
	})
}

// master returns the node of a cluster that has the class of the tests, the slot of that, and another master.
func master(t *testing.T, nodes []*fleettest.Redis) (has, other *fleettest.Redis, slot int64) {
	t.Helper()
	slot = nodes[0].Do("CLUSTER", "KEYSLOT", "{acme}").(int64)
	for _, n := range nodes {
		if !strings.Contains(n.Do("INFO", "replication").(string), "role:master") {
			continue
		}
		if _, err := n.Try("EXISTS", "{acme}"); err == nil {
			has = n
		} else {
			other = n
		}
	}
	return has, other, slot
}

// reshard moves a slot from one master to another, key by key.
func reshard(from, to *fleettest.Redis, slot int64, nodes []*fleettest.Redis) {
	fromID, toID := from.Do("CLUSTER", "MYID"), to.Do("CLUSTER", "MYID")
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	for {
		keys := from.Do("CLUSTER", "GETKEYSINSLOT", slot, 10).([]any)
		if len(keys) == 0 {
			break
		}
		from.Do("MIGRATE", append([]any{"127.0.0.1", to.Port, "", 0, 5000, "KEYS"}, keys...)...)
	}
	for _, n := range nodes {
		n.Try("CLUSTER", "SETSLOT", slot, "NODE", toID) // replicas hear of it
	}
}

// TestFleetOnCluster has six processes: the slot of the class moves to another master, and then that dies.
func TestFleetOnCluster(t *testing.T) {
	t.Parallel()
	nodes := fleettest.StartCluster(t, 3, true)
	run := startFour(t, fleetMember{Store: fleet.Config{Addresses: fleettest.Addresses(nodes)}})
	run.ready()
	has, other, slot := master(t, nodes)
	reshard(has, other, slot, nodes)
	run.recovers("the slot has moved")
	has, _, _ = master(t, nodes)
	if has != other {
		t.Errorf("%s has the slot, want %s", has.Addr, other.Addr)
	}
	has.Kill()
	fleettest.TakeOver(t, nodes, has)
	run.recovers("a master has died")
	run.judge()
}

// TestFleetOnSentinel lets the master die, and the sentinels promote the replica. All of them require passwords.
func TestFleetOnSentinel(t *testing.T) {
	t.Parallel()
	first, replica := fleettest.StartGuarded(t, "m4ster"), fleettest.StartGuarded(t, "m4ster")
	replica.Follow(first)
	sentinels := fleettest.StartSentinels(t, first, "s3ntinel")
	run := startFour(t, fleetMember{Store: fleet.Config{Addresses: sentinels, Sentinel: "main", Password: "m4ster", SentinelPassword: "s3ntinel"}})
	run.ready()
	first.Kill()
	replica.WaitFor("role:master", "INFO", "replication")
	run.recovers("the replica was promoted")
	run.judge()
}

// TestFleetTLS has a store that wants TLS, a user and a password.
func TestFleetTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, cert := filepath.Join(dir, "key.pem"), filepath.Join(dir, "cert.pem")
	openssl := exec.Command(tool(t, "openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
		"-keyout", key, "-out", cert, "-days", "1", "-subj", "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1")
	if out, err := openssl.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "users.acl"), []byte("user default off\nuser shaper on >secret ~p:* +@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := fleettest.FreePort(t)
	fleettest.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
		"--tls-auth-clients", "no", "--aclfile", filepath.Join(dir, "users.acl"))
	conf := fleet.Config{Addresses: []string{"127.0.0.1:" + port}, Username: "shaper", Password: "secret", Prefix: "p:"}
	run := startFour(t, fleetMember{CA: cert, Store: conf})
	run.recovers("the start")
	run.judge()
}

// TestFleetSlowStore has a store that answers after 10 ms. The limit is used all the same, and an item costs its
// process no more time: nothing waits for the store.
func TestFleetSlowStore(t *testing.T) {
	t.Parallel()
	l := newStoreLink(t, fleettest.StartRedis(t).Addr)
	l.late = 10 * time.Millisecond
	l.delay.Store(1000)
	run := startFour(t, fleetMember{Store: fleet.Config{Addresses: []string{l.addr}}})
	run.recovers("the start")
	run.judge()
	w := trial.Begin()
	time.Sleep(2 * time.Second)
	p99 := percentile(run.localTimes(), 99)
	trial.Figure(t, "local time of an item, store slow", "%v", p99)
	w.Judge(t, time.Millisecond/2, trial.Most(p99, time.Millisecond, 50*time.Millisecond, "the 99th of 100 items takes %v, want at most 1 ms", p99))
}
