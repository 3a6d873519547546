package conn

import (
	"io"
	"sync"
	"testing"
	"time"
)

// A session with bytes in both directions asks for another turn in each. It gets one turn, and
// not two, then four.
func TestOneTurnEach(t *testing.T) {
	t.Parallel()
	const sessions = 3
	addr, conns := listen(t)
	r := run(t, forward(addr, "800gbit"))
	var peers sync.WaitGroup
	for range sessions {
		client, upstream := r.open(conns)
		for _, ends := range [][2]io.ReadWriter{{client, upstream}, {upstream, client}} {
			peers.Go(func() {
				for data := make([]byte, 1<<20); ; {
					if _, err := ends[0].Write(data); err != nil {
						return
					}
				}
			})
			peers.Go(func() {
				io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{ends[1]}, make([]byte, 1<<20))
			})
		}
	}
	most := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		n := 0
		for _, p := range r.pollers {
			n += p.Waiting()
		}
		most = max(most, n)
	}
	if most > sessions {
		t.Errorf("%d turns are due for %d sessions", most, sessions)
	}
	r.Shutdown(expired)
	peers.Wait()
}
