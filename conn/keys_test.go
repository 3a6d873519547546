package conn

import (
	"net"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
)

// six lets six bytes of each key pass, and then next to nothing.
func six(per string, more ...string) string {
	return class("c", "1B/h", append(more, `algorithm = "token"`, `burst = "6B"`, "per = "+`"`+per+`"`)...)
}

// Each source address has a bucket, which its connections share. When it comes back, the
// bucket is as it was.
func TestBucketForEachSource(t *testing.T) { virtually(t, bucketForEachSource) }

func bucketForEachSource(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, six("source")+listener("l", "tcp", addr, "c"))
	a := dialFrom(t, "127.0.0.1", r.addr("l"))
	toA := next(t, conns)
	held := func(n int64) {
		t.Helper()
		trial.Await(t, "bytes wait", func() bool { return r.shaper.Class("c").Backlog().Items == n })
	}
	send(t, a, "first!rest")
	expect(t, toA, "first!")
	held(1)
	other := dialFrom(t, "127.0.0.2", r.addr("l"))
	toOther := next(t, conns)
	send(t, other, "other!")
	expect(t, toOther, "other!")
	if n := r.shaper.Class("c").Buckets().Keys(time.Now()); n != 2 {
		t.Errorf("%d keys, want 2", n)
	}
	reset(a)
	held(0)

	back := dialFrom(t, "127.0.0.1", r.addr("l"))
	next(t, conns)
	send(t, back, "again")
	held(1)
	reset(back)
	reset(other)
	r.awaitEnd(stats.ResetByPeer, 3)
	if n := r.shaper.Class("c").Buckets().Keys(time.Now()); n != 2 {
		t.Errorf("%d keys are remembered, want 2: both owe", n)
	}
}

// Each connection has a bucket of its own, which goes with it.
func TestBucketForEachConnection(t *testing.T) { virtually(t, bucketForEachConnection) }

func bucketForEachConnection(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, six("connection")+listener("l", "tcp", addr, "c"))
	for n := range uint64(3) {
		client, upstream := r.open(conns)
		send(t, client, "first!rest")
		expect(t, upstream, "first!")
		reset(client)
		r.awaitEnd(stats.ResetByPeer, n+1)
	}
	if n := r.shaper.Class("c").Buckets().Keys(time.Now()); n != 0 {
		t.Errorf("%d keys remain", n)
	}
}

// If connections are counted, those of one source wait for its bucket, and hold up no other.
func TestConnectionsOfEachSource(t *testing.T) { virtually(t, connectionsOfEachSource) }

func connectionsOfEachSource(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, class("c", "1 connections/h", `overflow = "wait"`, `per = "source"`)+listener("l", "tcp", addr, "c"))
	dialFrom(t, "127.0.0.1", r.addr("l"))
	next(t, conns)
	dialFrom(t, "127.0.0.1", r.addr("l"))
	trial.Await(t, "the second waits", func() bool { return r.shaper.Class("c").Backlog().Items == 1 })
	dialFrom(t, "127.0.0.2", r.addr("l"))
	next(t, conns)
	if n := r.shaper.Class("c").Backlog().Items; n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
}

// A reload that gives each source a bucket moves the sessions and what waits.
func TestReloadBringsBuckets(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "0B/s"))
	client, upstream := r.open(conns)
	send(t, client, "waits")
	r.awaitWaiting(5)
	r.reload(class("c", "0B/s", `per = "source"`) + listener("l", "tcp", addr, "c"))
	r.awaitWaiting(5)
	if n := r.shaper.Class("c").Buckets().Keys(time.Now()); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	r.reload(class("c", fast, `per = "source"`) + listener("l", "tcp", addr, "c"))
	expect(t, upstream, "waits")
	r.reload(class("c", fast, `per = "connection"`) + listener("l", "tcp", addr, "c"))
	send(t, client, "goes on")
	expect(t, upstream, "goes on")
	if n := r.shaper.Class("c").Buckets().Keys(time.Now()); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
}

// If there are more clients than keys, the rest share a bucket. Those that have one keep it.
func TestMoreClientsThanKeys(t *testing.T) {
	r := run(t, class("c", "1 packets/h", `algorithm = "gcra"`, `burst = "2 packets"`, `per = "source-port"`, "max_keys = 2")+
		listener("l", "udp", policy.Echo, "c"))
	ask := func(c *net.UDPConn, what string) {
		t.Helper()
		if _, err := c.Write([]byte(what)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := dialUDP(t, r.addr("l")), dialUDP(t, r.addr("l"))
	for _, c := range []*net.UDPConn{first, second} {
		ask(c, "one")
		expectDatagram(t, c, "one")
	}
	shared := r.shaper.Class("c")
	for range 20 {
		ask(dialUDP(t, r.addr("l")), "flood")
	}
	trial.Await(t, "the others share a bucket", func() bool { return shared.Stats.KeysShared.Load() == 20 })
	trial.Await(t, "and have to wait for it", func() bool { return shared.Backlog().Items == 18 })
	for _, c := range []*net.UDPConn{first, second} {
		ask(c, "two")
		expectDatagram(t, c, "two")
	}
	if n := r.shaper.Class("c").Buckets().Keys(time.Now()); n != 2 {
		t.Errorf("%d keys, want 2", n)
	}
}

// UDP sessions that end while a reload moves them leave no bucket behind.
func TestBucketsOfEndingSessions(t *testing.T) {
	text := func(per string) string {
		return class("c", fast, `per = "`+per+`"`) + listener("l", "udp", policy.Echo, "c")
	}
	r := run(t, text("source-port"))
	for n := range 30 {
		for range 10 {
			c := dialUDP(t, r.addr("l"))
			c.Write([]byte("x"))
			expectDatagram(t, c, "x")
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for _, s := range r.Sessions() {
				r.CloseSession(s.ID)
			}
		}()
		r.reload(text([]string{"connection", "source-port"}[n%2]))
		<-ended
		for _, s := range r.Sessions() {
			r.CloseSession(s.ID)
		}
		trial.Await(t, "nobody has joined", func() bool { return r.shaper.Class("c").Buckets().Keys(time.Now()) == 0 })
	}
}

// A UDP session that panics while it opens leaves nothing behind, neither in its bucket nor in
// max_sessions.
func TestBucketOfAPanic(t *testing.T) {
	r := run(t, udp(policy.Echo, "1000 packets/s", "max_sessions = 1")+class("d", "1000 packets/s", `per = "source"`)+"[[rule]]\nclass = \"d\"\n")
	set := func(by *shadow) {
		r.routing.mu.Lock()
		defer r.routing.mu.Unlock()
		r.routing.shadow = by
	}
	set(&shadow{}) // which panics when it classifies
	c := dialUDP(t, r.addr("l"))
	c.Write([]byte("x"))
	trial.Await(t, "the panic is logged", func() bool { return strings.Contains(r.log.String(), "datagram panicked") })
	if n := r.shaper.Class("d").Buckets().Keys(time.Now()); n != 0 {
		t.Errorf("%d buckets remain", n)
	}
	set(nil)
	c.Write([]byte("y"))
	expectDatagram(t, c, "y")
}
