package conn

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/tests/trial"
)

// BenchmarkGrowth shows what things cost while so many sessions are open. They are sessions over
// a network in memory, for which no descriptors are needed.
func BenchmarkGrowth(b *testing.B) {
	trial.Grow(b, "session opens and ends/sessions", 1, 100_000, func(b *testing.B, n int) trial.Grown {
		r := holding(b, n)
		return trial.Grown{Each: r.heap / float64(n), Op: func(int) {
			client, upstream := r.pair(b)
			client.Close()
			upstream.Close()
		}}
	})
	trial.Grow(b, "byte of one session/sessions", 1, 100_000, func(b *testing.B, n int) trial.Grown {
		r := holding(b, n)
		one := make([]byte, 1)
		return trial.Grown{Op: func(int) {
			r.client.Write(one)
			io.ReadFull(r.upstream, one)
		}}
	})
	trial.Grow(b, "new policy for sessions/sessions", 1, 100_000, func(b *testing.B, n int) trial.Grown {
		r := holding(b, n)
		policies := []*policy.Policy{parse(b, r.policy("2gbit")), parse(b, r.policy("1gbit"))}
		return trial.Grown{Op: func(i int) { r.adopt(b, policies[i%2]) }}
	})
	trial.Grow(b, "list of sessions/sessions", 1, 100_000, func(b *testing.B, n int) trial.Grown {
		r := holding(b, n)
		return trial.Grown{Op: func(int) {
			if got := len(r.Sessions()); got != n {
				b.Fatalf("%d sessions, want %d", got, n)
			}
		}}
	})
}

// crowd is a server with open sessions over a network in memory.
type crowd struct {
	*Server
	shaper           *shaper.Shaper
	memory           *sock.Memory
	listener         sock.Listener
	listens, leadsTo string  // the addresses of shaper and of the upstream
	client, upstream tcpConn // the ends of the last session
	heap             float64 // what all sessions take, with their ends here
}

// holding returns a server with n sessions that have carried a byte.
func holding(b *testing.B, n int) *crowd {
	r := &crowd{shaper: shaper.New(), memory: &sock.Memory{}}
	var err error
	if r.Server, err = newServer(r.shaper, nil, slog.New(slog.DiscardHandler), r.memory); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.Shutdown(expired)
		r.shaper.Close()
	})
	if r.listener, err = r.memory.Listen("tcp", "127.0.0.1:0"); err != nil {
		b.Fatal(err)
	}
	r.leadsTo = r.listener.Addr().String()
	r.adopt(b, parse(b, r.policy("1gbit")))
	r.listens = r.Listeners()[0].Addresses[0]
	before := trial.Heap()
	for range n {
		r.client, r.upstream = r.pair(b)
	}
	r.heap = trial.Heap() - before
	return r
}

func (r *crowd) policy(rate string) string {
	return forward(r.leadsTo, rate, "max_sessions = 1000000")
}

func (r *crowd) adopt(b *testing.B, p *policy.Policy) {
	change, err := r.Prepare(p, ReadFiles(p))
	if err != nil {
		b.Fatal(err)
	}
	change.Commit(r.shaper.Apply(p.Classes))
}

// pair opens a session, which carries a byte.
func (r *crowd) pair(b *testing.B) (client, upstream tcpConn) {
	client, err := r.memory.DialConn(context.Background(), "", r.listens)
	if err != nil {
		b.Fatal(err)
	}
	client.Write([]byte{1})
	upstream, err = r.listener.(*sock.MemoryListener).Next()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(upstream, make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	return client, upstream
}
