package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shaper/fleet/fleettest"
	"shaper/limit"
	"shaper/tests/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// departures are those of live members that send until there are so many.
type departures struct {
	most int
	done chan struct{} // closed when there are so many

	mu    sync.Mutex
	all   []time.Time
	worst time.Duration // the clock error of a member
}

// depart lets an item leave if it still may, and reports whether no other has to.
func (d *departures) depart(m *Member, b *Budget) (enough bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if at := b.Next(now, 0, 1); !at.After(now) && len(d.all) < d.most {
		b.Take(now, now, 1)
		d.all = append(d.all, now)
		if len(d.all) == d.most {
			close(d.done)
		}
		s, _ := m.Status()
		d.worst = max(d.worst, s.ClockError)
	}
	return len(d.all) == d.most
}

// send sends through a member, which tells when to look again, until there are enough departures.
func (d *departures) send(m *Member, told <-chan struct{}) {
	for b := m.Budget(""); ; {
		now := time.Now()
		b.Want(now, 10, 1)
		at := b.Next(now, 0, 1)
		wait := time.Hour
		if at != limit.Never {
			wait = at.Sub(now)
		}
		if wait <= 0 {
			if d.depart(m, b) {
				return
			}
			continue
		}
		select {
		case <-time.After(wait):
		case <-told:
		case <-d.done:
			return
		}
	}
}

// TestMembersShareOneRate lets three live members of a class send through one redis-server. Their
// departures are never closer than the gap less the errors that they state, and the delay of a
// departure between its check and its note.
func TestMembersShareOneRate(t *testing.T) {
	t.Parallel()
	srv := fleettest.StartRedis(t)
	store, err := NewStore(Config{Addresses: []string{srv.Addr}, Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	class := Class{Name: "acme", Rate: mustRate(t, "100 messages/s"), Late: 2 * time.Millisecond}
	d := departures{most: 60, done: make(chan struct{})}
	var wg sync.WaitGroup
	for i := range 3 {
		told := make(chan struct{}, 1)
		m, err := Join(class, fmt.Sprint("m", i), Fallback{}, store, nil, func(string) {
			select {
			case told <- struct{}{}:
			default:
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close(t.Context())
		wg.Go(func() { d.send(m, told) })
	}
	wg.Wait()
	slices.SortFunc(d.all, time.Time.Compare)
	for i := 1; i < len(d.all); i++ {
		if gap, least := d.all[i].Sub(d.all[i-1]), 8*time.Millisecond-2*d.worst; gap < least {
			t.Errorf("departure %d comes %v after the one before, want at least %v", i, gap, least)
		}
	}
	t.Logf("%d items of 3 members in %v, clocks wrong by at most %v", d.most, d.all[d.most-1].Sub(d.all[0]), d.worst)
}

// joinNowhere returns a member of a class whose store nobody can reach. The caller closes it.
func joinNowhere(t *testing.T) *Member {
	t.Helper()
	store, err := NewStore(Config{Addresses: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Join(Class{Name: "a", Rate: mustRate(t, "100 messages/s"), Late: time.Millisecond}, "m", Fallback{}, store, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// over returns a context that has ended: nobody waits until a store has heard that a member is gone.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestMemberLeavesUntilHeard has the store not hear the last word of a member: three times, or until nobody waits any more. When the
// store has heard it, nothing is held back for the member.
func TestMemberLeavesUntilHeard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lost    int // how often the last word is lost
		patient int // after how many of them nobody waits any more
		members int64
	}{{3, 4, 0}, {4, 3, 1}} {
		ctx, end := context.WithCancel(t.Context())
		srv := fleettest.StartRedis(t)
		lost, leaves := 0, false
		var mu sync.Mutex
		deaf := unheard(t, srv.Addr, func(sent []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			if !leaves || !bytes.Contains(sent, []byte(Leave)) || lost == c.lost {
				return false
			}
			if lost++; lost == c.patient {
				end()
			}
			return true
		})
		store, err := NewStore(Config{Addresses: []string{deaf}, Deadline: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		m, err := Join(Class{Name: "a", Rate: mustRate(t, "100 messages/s"), Late: time.Millisecond}, "m", Fallback{}, store, nil, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		trial.Await(t, "the member has its share", func() bool { status, _ := m.Status(); return status.Share == 1 })
		mu.Lock()
		leaves = true // before, the word is in the text of the script
		mu.Unlock()
		m.Close(ctx)
		if members := srv.Do("ZCARD", "{a}:members"); members != c.members {
			t.Errorf("when the last word was lost %d times, the store has %v members, want %d", lost, members, c.members)
		}
	}
}

// TestWatchHearsOfTheTimeBefore watches a member only when its first call has failed. It hears why, all the same.
func TestWatchHearsOfTheTimeBefore(t *testing.T) {
	t.Parallel()
	store, err := NewStore(Config{Addresses: []string{"127.0.0.1:" + fleettest.FreePort(t)}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Join(Class{Name: "a", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}, "m", Fallback{}, store, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(over())
	trial.Await(t, "some calls fail", func() bool { _, failed := m.Calls(); return failed >= 3 })
	heard := make(chan error, maxCauses)
	m.Watch(func(_, _ Status, err error) { heard <- err })
	if err := <-heard; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("it hears of %v", err)
	}
}

// TestMemberPaysBeforeItLeaves has a member leave that has used some of a window without its store, which stands still. When the store
// goes on, it hears how much that was, and that the member is gone.
func TestMemberPaysBeforeItLeaves(t *testing.T) {
	t.Parallel()
	srv := fleettest.StartRedis(t)
	store, err := NewStore(Config{Addresses: []string{srv.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	class := Class{Name: "a", Rate: mustRate(t, "1000 messages/day"), Algorithm: FixedWindow, Window: 7 * 24 * time.Hour}
	m, err := Join(class, "m", Fallback{}, store, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "the member has its share", func() bool { status, _ := m.Status(); return status.Share == 1 })
	srv.Signal(syscall.SIGSTOP)
	trial.Await(t, "the store is away", func() bool { status, _ := m.Status(); return status.Mode != FromStore })
	m.Budget("").Owe(time.Now(), 600, time.Now().Add(24*time.Hour))
	gone := make(chan bool)
	go func() {
		m.Close(t.Context())
		close(gone)
	}()
	srv.Signal(syscall.SIGCONT)
	<-gone
	if used, members := srv.Do("HGET", "{a}:bucket:", "used"), srv.Do("ZCARD", "{a}:members"); used != "600" || members != int64(0) {
		t.Errorf("the store has %v used, and %v members, want 600 and none", used, members)
	}
}

// TestMemberHangsUp has a store that accepts connections and answers nothing. A member that nobody waits for leaves at once, although
// its calls may take an hour.
func TestMemberHangsUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	store, err := NewStore(Config{Addresses: []string{l.Addr().String()}, Deadline: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Join(Class{Name: "a", Rate: mustRate(t, "100 messages/s"), Late: time.Millisecond}, "m", Fallback{}, store, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	left := make(chan struct{})
	go func() { m.Close(over()); close(left) }()
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Error("the member waits for the answer to its call")
	}
}

// unheard returns the address of a proxy of a server that closes a connection by which something was sent that the server must not
// hear. lost is called for each piece of what is sent.
func unheard(t *testing.T, addr string, lost func(sent []byte) bool) string {
	return proxy(t, addr, func(c, up net.Conn) {
		go io.Copy(c, up)
		for buf := make([]byte, 64<<10); ; {
			n, err := c.Read(buf)
			if err != nil || lost(buf[:n]) {
				return
			}
			up.Write(buf[:n])
		}
	})
}

// A member that never reaches a store says so, and holds everything up.
func TestMemberWithoutStore(t *testing.T) {
	m := joinNowhere(t)
	defer m.Close(over())
	b := m.Budget("")
	trial.Await(t, "a member that has stopped", func() bool {
		b.Want(time.Now(), 1, 1)
		s, err := m.Status()
		if at := b.Next(time.Now(), 0, 1); at != limit.Never {
			t.Fatalf("something may leave at %v", at)
		}
		return s.Mode == Stopped && err != nil
	})
}

// A member whose store answers, but too late to be used, says why the store counts as away, until it does not any more.
func TestMemberOfASlowStore(t *testing.T) {
	machine, err := NewMachine(Class{Name: "a", Rate: mustRate(t, "100 messages/s"), Late: time.Millisecond}, "m", Fallback{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &Member{machine: machine}
	answer := func(took time.Duration) {
		c, ok := machine.Poll(time.Now().Add(-took))
		if !ok {
			t.Fatal("the member asks for nothing")
		}
		m.take(answer{call: c, reply: Reply{Now: Stamp(time.Now().UnixMicro()), Members: 1, Share: whole}})
	}
	answer(45 * time.Millisecond)
	if s, err := m.Status(); s.Mode != Stopped || err == nil || !strings.Contains(err.Error(), "beat: the answer took 45ms, too long") {
		t.Errorf("after a late answer, the member is %v: %v", s.Mode, err)
	}
	answer(-time.Second) // of a ping, which comes after a pause
	if s, err := m.Status(); s.Mode != FromStore || err != nil {
		t.Errorf("after a ping, the member is %v: %v", s.Mode, err)
	}
}

// TestMemberComesAgain has a member come again after the clock was set back: its numbers are larger than those of the last.
func TestMemberComesAgain(t *testing.T) {
	var last int64
	for range 3 {
		m := joinNowhere(t)
		m.mu.Lock()
		if m.machine.seq <= last {
			t.Errorf("the member has number %d, and the last one had %d", m.machine.seq, last)
		}
		m.machine.seq += time.Hour.Microseconds() // it came an hour later
		last = m.machine.seq
		m.mu.Unlock()
		m.poll()
		m.Close(over())
	}
}

// leased is a machine of a class of 10^5 units a second, in virtual time, with the model as its store.
type leased struct {
	model   Model
	machine *Machine
	lease   *Lease
	now     time.Time
	zero    time.Time
	calls   int
}

func newLeased(t testing.TB) *leased {
	l := &leased{model: Model{ID: "a"}, now: time.Unix(1_760_000_000, 0)}
	l.zero = l.now
	var err error
	l.machine, err = NewMachine(Class{Name: "a", Rate: mustRate(t, "100000 packets/s"), Late: time.Millisecond}, "m", Fallback{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.lease = l.machine.Lease("")
	return l
}

// item lets one item leave, and does all that is due.
func (l *leased) item() {
	for {
		l.lease.Want(l.now, 1_000_000, 1)
		if at := l.lease.Next(l.now, 0, 1); at != limit.Never {
			if at.After(l.now) {
				l.now = at
			}
			l.lease.Take(l.now, l.now, 1)
		}
		polled := l.machine.Wake(l.now)
		if polled.After(l.now) {
			if l.lease.Next(l.now, 0, 1) != limit.Never {
				return
			}
			l.now = polled
		}
		for c, ok := l.machine.Poll(l.now); ok; c, ok = l.machine.Poll(l.now) {
			r := l.model.Do(Stamp(l.now.UnixMicro()), &c)
			l.machine.Answer(l.now, &c, &r)
			l.calls++
		}
		if l.lease.counts.Used > 0 {
			return
		}
	}
}

// BenchmarkItem measures the local cost of an item of a leased class, with all calls and answers.
func BenchmarkItem(b *testing.B) {
	l := newLeased(b)
	b.ReportAllocs()
	for b.Loop() {
		l.item()
	}
	b.ReportMetric(float64(l.calls)/l.now.Sub(l.zero).Seconds(), "calls/s")
}

// TestItemsAllocateNothing holds that only calls cost memory: some 100 in a second.
func TestItemsAllocateNothing(t *testing.T) {
	l := newLeased(t)
	for range 200_000 {
		l.item()
	}
	if n := testing.AllocsPerRun(200_000, l.item); n > 0 {
		t.Errorf("an item costs %v allocations", n)
	}
	if calls := float64(l.calls) / l.now.Sub(l.zero).Seconds(); calls > 110 {
		t.Errorf("%.0f calls/s at 10^5 items/s", calls)
	}
	if used := l.lease.Counts().Used; used < 300_000 {
		t.Errorf("only %d items have left", used)
	}
}
