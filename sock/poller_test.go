package sock

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counted is a sleeper that counts how often it is woken.
type counted struct {
	sleeper
	wakes atomic.Int32
}

func (c *counted) wake() {
	c.wakes.Add(1)
	c.sleeper.wake()
}

// slow is a Turner that has a turn when bytes come. Its turn ends just about when the poller gives
// way.
type slow struct {
	Due
	poller *Poller
	from   *Socket
	bytes  chan int // how many it has read
}

func (s *slow) Ready(uint64, Events) { s.poller.Revisit(s) }

func (s *slow) Turn() {
	for began := time.Now(); time.Since(began) < giveWay-giveWay/20; {
	}
	var buf [16]byte
	for n, err := s.from.Read(buf[:]); n > 0 && err == nil; n, err = s.from.Read(buf[:]) {
		s.bytes <- n
	}
}

// Whoever asks for a turn while the poller works need not wake it. The poller misses no event when
// it gives way to others.
func TestPollerGivesWay(t *testing.T) {
	t.Parallel()
	ends, err := newEpoll()
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{sleeper: ends}
	p := newPoller(c)
	var runs sync.WaitGroup
	runs.Go(p.Run)
	defer runs.Wait()
	defer p.Close()
	near, far, err := NewPair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	s := &slow{poller: p, from: near, bytes: make(chan int, 16)}
	key, err := p.Watch(near, All, s)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer p.Forget(key)
	far.Write([]byte{0})
	for read := 0; read < 200; { // two bytes are on their way, so one comes during the turn for the other
		far.Write([]byte{0})
		select {
		case n := <-s.bytes:
			read += n
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody reads what comes after %d bytes", read)
		}
	}
	if n := c.wakes.Load(); n != 0 {
		t.Errorf("the poller was woken %d times while it was awake", n)
	}
}
