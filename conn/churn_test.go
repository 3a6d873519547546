package conn

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/tests/trial"
)

// TestChurn makes clients come and go over TCP and UDP, while reloads change limits, parents
// and buckets of their classes and of those in a shadow. Nothing is stuck, and no session
// leaves anything behind.
func TestChurn(t *testing.T) {
	policies := churned()
	r, x := run(t, policies[0]), rand.New(rand.NewPCG(1, 2))
	var clients sync.WaitGroup
	done := make(chan struct{})
	churn(&clients, done, r.addr("l"), r.addr("u"))
	var classes []*shaper.Class // all that there were
	for range 40 {
		before := r.lastID.Load()
		r.reload(policies[x.IntN(len(policies))])
		classes = append(classes, r.shaper.Classes()...)
		if x.IntN(4) == 0 {
			r.Shadow(nil, nil)
		} else {
			for _, c := range r.shade(policies[x.IntN(len(policies))]) {
				classes = append(classes, c)
			}
		}
		trial.Await(t, "sessions come", func() bool { return r.lastID.Load() > before+20 })
		for n, one := range r.Sessions() {
			if n%4 == 0 {
				r.CloseSession(one.ID)
			}
		}
	}
	close(done)
	clients.Wait()
	r.Shutdown(expired)
	r.endTurns()
	for _, c := range classes {
		wantUnused(t, c)
	}
	wantNobody(t, r)
}

// wantNobody checks that nobody is in a class that the policy has no more, nor, after a policy without classes, in any.
func wantNobody(t *testing.T, r *rig) {
	t.Helper()
	r.shaper.Apply(nil)
	for _, c := range r.shaper.Apply(nil) {
		t.Errorf("somebody is in class %s", c.Name())
	}
}

// churned returns policies that share something with each other, each in another way.
func churned() (policies []string) {
	for _, classes := range []string{
		class("c", "200mbit", `parent = "up"`, `per = "source"`, "max_keys = 3") + class("d", "9000 packets/s", `per = "connection"`),
		class("c", "1mbit", `parent = "up"`, `per = "source"`, `shadow = true`, "max_keys = 3") + class("d", "9000 packets/s", `per = "connection"`, `algorithm = "sliding-log"`),
		class("c", "9000 connections/s", `per = "source"`, `max_connections = 2`, `overflow = "wait"`) + class("d", "10 packets/s", `shadow = true`),
		class("c", "100mbit", `algorithm = "fixed-window"`, `window = "10ms"`, `per = "connection"`) + class("d", "9mbit", `per = "source"`, `parent = "up"`, `algorithm = "token"`),
		class("c", "200mbit", `per = "source"`, `ceil = "300mbit"`, `parent = "up"`, `max_connections = 2`, `max_wait = "30ms"`) + class("e", "9000 packets/s", `per = "destination"`),
	} {
		datagrams := "d"
		if len(policies) == 4 {
			datagrams = "e"
		}
		up := class("up", "400mbit")
		switch len(policies) {
		case 1:
			up = class("up", "400mbit", "shadow = true")
		case 3, 4:
			up = class("up", "400mbit", "max_connections = 5")
		}
		policies = append(policies, up+classes+listener("l", "tcp", policy.Echo, "c", `return_class = "up"`)+listener("u", "udp", policy.Echo, datagrams))
	}
	return policies
}

// churn makes clients come and go until done.
func churn(clients *sync.WaitGroup, done <-chan struct{}, overTCP, overUDP string) {
	again(clients, done, 6, func(x *rand.Rand) {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+x.IntN(6)))}}
		if c, err := from.Dial("tcp", overTCP); err == nil {
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Duration(x.IntN(100)) * time.Millisecond))
			c.Write(make([]byte, x.IntN(100_000)))
			io.CopyN(io.Discard, c, 50_000)
		}
	})
	again(clients, done, 2, func(x *rand.Rand) {
		if c, err := net.Dial("udp", overUDP); err == nil {
			defer c.Close()
			for range x.IntN(50) {
				c.Write(make([]byte, x.IntN(1400)))
			}
		}
	})
}

// wantUnused checks that no session has left anything in a class, except what its buckets owe.
func wantUnused(t *testing.T, c *shaper.Class) {
	t.Helper()
	later := time.Now().Add(24 * time.Hour)
	c.Status().CatchUp(later)
	before := -1
	for n := c.Buckets().Keys(later); n != before; n = c.Buckets().Keys(later) { // it forgets some each time
		before = n
	}
	if before > 0 || c.Sessions() > 0 {
		t.Errorf("%d buckets and %d sessions of %s remain", before, c.Sessions(), c.Name())
	}
}
