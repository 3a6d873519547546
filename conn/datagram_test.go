package conn

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/policy"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

// 50 datagrams at once enter a class of 10 packets/s with room for 20. At most 21 pass,
// evenly, and each is counted.
func TestBurstIsSpread(t *testing.T) {
	const rate, room, offered = 100, 20, 50
	upstream := bindUDP(t, "127.0.0.1:0")
	r := run(t, class("c", fmt.Sprintf("%d packets/s", rate), fmt.Sprintf(`queue = "%d packets"`, room))+
		listener("l", "udp", upstream.LocalAddr().String(), "c"))
	c := dialUDP(t, r.addr("l"))
	start := time.Now()
	for range offered {
		send(t, c, "x")
	}
	class := r.shaper.Class("c")
	trial.Await(t, "all have come", func() bool {
		sent, waits := r.sent("c", stats.Upstream).Packets.Load(), uint64(class.Backlog().Items)
		dropped, _ := r.dropped("c", stats.QueueFull)
		return sent+waits+dropped >= offered
	})
	came := time.Since(start)
	for range room + 1 {
		receive(t, upstream)
	}
	took := time.Since(start)
	trial.Await(t, "nothing waits", func() bool { return class.Backlog().Items == 0 })
	sent := r.sent("c", stats.Upstream).Packets.Load()
	dropped, _ := r.dropped("c", stats.QueueFull)
	if sent+dropped != offered {
		t.Errorf("%d sent and %d dropped of %d", sent, dropped, offered)
	}
	if took < room*time.Second/rate {
		t.Errorf("%d passed in %v", room+1, took)
	}
	if most := room + 2 + uint64(came*rate/time.Second); sent > most { // some may have left while the others came
		t.Errorf("%d passed, want at most %d: all had come after %v", sent, most, came)
	}
}

// What waits counts with the memory that it holds, not only with its payload. That is not much
// more.
func TestMemoryOfWaitingDatagrams(t *testing.T) {
	d := newDatagrams(new(udpDirection), sock.Train{Payload: make([]byte, 100)})
	defer d.release()
	if d.item.Held < 128+100 || d.item.Held > 512 {
		t.Errorf("a datagram of 100 bytes holds %d", d.item.Held)
	}

	r := run(t, class("c", "0B/s", `queue = "64KiB"`)+listener("l", "udp", policy.Discard, "c"))
	c := dialUDP(t, r.addr("l"))
	for range 1000 {
		send(t, c, strings.Repeat("x", 100))
	}
	trial.Await(t, "all are queued or dropped", func() bool {
		dropped, _ := r.dropped("c", stats.QueueFull)
		return dropped+uint64(r.shaper.Class("c").Backlog().Items) == 1000
	})
	if n := r.shaper.Class("c").Backlog().Items; n > 64<<10/228 || n < 64<<10/512 {
		t.Errorf("%d datagrams of 100 bytes wait in 64 KiB", n)
	}
	if got := r.Sessions()[0].Waiting; got != 100*r.shaper.Class("c").Backlog().Items {
		t.Errorf("the session says that %d bytes wait", got)
	}
}

func TestMaxWaitOfDatagrams(t *testing.T) {
	r := run(t, class("c", "1 packets/s", `max_wait = "1500ms"`)+listener("l", "udp", policy.Discard, "c"))
	c := dialUDP(t, r.addr("l"))
	for range 5 {
		send(t, c, "12345")
	}
	trial.Await(t, "the rest is dropped", func() bool {
		items, n := r.dropped("c", stats.MaxWait)
		return items == 3 && n == 15
	})
}

// What waits when a session is closed is dropped at once, and counted by reason.
func TestClosedWithDatagramsWaiting(t *testing.T) {
	r := run(t, udp(policy.Discard, "0 packets/s"))
	c, other := dialUDP(t, r.addr("l")), dialUDP(t, r.addr("l"))
	send(t, other, "other")
	for range 5 {
		send(t, c, "12345")
	}
	class := r.shaper.Class("c")
	trial.Await(t, "all wait", func() bool { return class.Backlog().Items == 6 })
	for _, one := range r.Sessions() {
		if one.Client == c.LocalAddr().String() {
			r.CloseSession(one.ID)
		}
	}
	if items, n := r.dropped("c", stats.Closed); items != 5 || n != 25 || class.Backlog().Items != 1 {
		t.Errorf("%d dropped of %d bytes, %d wait", items, n, class.Backlog().Items)
	}
}

// Datagrams that wait in a class that is removed with its listener keep their places there.
func TestDatagramsThatStay(t *testing.T) {
	r := run(t, udp(policy.Discard, "0 packets/s"))
	c := dialUDP(t, r.addr("l"))
	for i := range 5 {
		send(t, c, fmt.Sprint(i))
	}
	old := r.shaper.Class("c")
	trial.Await(t, "all wait", func() bool { return old.Backlog().Items == 5 })
	for range 3 {
		r.reload(class("d", fast) + listener("m", "tcp", policy.Echo, "d"))
	}
	if n, waits := old.Stats.Overlimits.Load(), old.Backlog().Items; n != 5 || waits != 5 {
		t.Errorf("datagrams have waited %d times, and %d wait, want 5", n, waits)
	}
}

// Datagrams that wait in a class that is removed go on waiting in the new one.
func TestDatagramsOfRemovedClass(t *testing.T) {
	upstream := bindUDP(t, "127.0.0.1:0")
	at := upstream.LocalAddr().String()
	r := run(t, udp(at, "0 packets/s"))
	c := dialUDP(t, r.addr("l"))
	for i := range 5 {
		send(t, c, fmt.Sprint(i))
	}
	old := r.shaper.Class("c")
	trial.Await(t, "all wait", func() bool { return old.Backlog().Items == 5 })
	r.reload(class("d", "1000 packets/s") + listener("l", "udp", at, "d"))
	for i := range 5 {
		expectDatagram(t, upstream, fmt.Sprint(i))
	}
	if n := old.Backlog().Items; n != 0 {
		t.Errorf("%d wait in the removed class", n)
	}
	trial.Await(t, "nothing is held", func() bool { return r.Sessions()[0].Waiting == 0 })
}

// A client whose datagrams wait sends more while a reload takes their class away, again and again. None overtakes another, but for one that
// is on its way out of the class just then: the next one may leave the new class at once.
func TestDatagramsKeepTheirOrderOverReloads(t *testing.T) {
	const reloads, window = 60, 64
	upstream := bindUDP(t, "127.0.0.1:0")
	at := upstream.LocalAddr().String()
	r := run(t, udp(at, "5000 packets/s"))
	c := dialUDP(t, r.addr("l"))
	room, stop := make(chan struct{}, window), make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := uint32(0); ; i++ {
			select {
			case room <- struct{}{}:
				c.Write(binary.BigEndian.AppendUint32(nil, i))
			case <-stop:
				return
			}
		}
	})
	seen, names := order{t: t}, []string{"d", "c"}
	for done := 0; done < reloads; {
		got, _ := receive(t, upstream)
		seen.note(binary.BigEndian.Uint32([]byte(got)))
		if <-room; seen.next%20 == 0 && !seen.waits {
			r.reload(class(names[done%2], "5000 packets/s") + listener("l", "udp", at, names[done%2]))
			done++
		}
	}
	close(stop)
	sending.Wait()
}

// An order is that of numbered datagrams, of which one at a time may be late.
type order struct {
	t     *testing.T
	next  uint32
	late  uint32 // if waits
	waits bool
}

// note checks a datagram that has come.
func (o *order) note(n uint32) {
	o.t.Helper()
	switch {
	case n == o.next:
		o.next++
	case n == o.next+1 && !o.waits:
		o.late, o.waits, o.next = o.next, true, n+1
	case n == o.late && o.waits:
		o.waits = false
	default:
		o.t.Fatalf("datagram %d comes when it is the turn of %d", n, o.next)
	}
}
