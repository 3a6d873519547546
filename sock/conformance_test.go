package sock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An observed is an end, and what a poller has told of it.
type observed struct {
	End
	t      testing.TB
	poller *Poller

	mu    sync.Mutex
	told  sync.Cond
	state State
	hung  bool
}

func observe(t testing.TB, p *Poller, e End) *observed {
	t.Helper()
	o := &observed{End: e, t: t, poller: p}
	o.told.L = &o.mu
	key, err := p.Watch(e, All, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Forget(key)
		e.Close()
	})
	return o
}

// Ready implements Watcher.
func (o *observed) Ready(_ uint64, events Events) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.Note(events)
	o.hung = o.hung || events&HungUp != 0
	o.told.Broadcast()
}

// await waits until the poller has told something.
func (o *observed) await(what string, is func(*State) bool) {
	o.t.Helper()
	late := false
	defer time.AfterFunc(patience, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		late = true
		o.told.Broadcast()
	}).Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !is(&o.state) {
		if late {
			o.t.Fatalf("the poller does not tell: %s; it has told %+v", what, o.state)
		}
		o.told.Wait()
	}
}

// retried does an operation until it is not interrupted, and waits for what it needs.
func (o *observed) retried(do func() (int, error), what string, flag func(*State) *bool) (int, error) {
	o.t.Helper()
	for {
		o.note(flag, false) // before: else what comes meanwhile is lost
		n, err := do()
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			o.await(what, func(s *State) bool { return *flag(s) })
		default:
			o.note(flag, true) // there may be more
			return n, err
		}
	}
}

func (o *observed) note(flag func(*State) *bool, is bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*flag(&o.state) = is
}

func (o *observed) read(p []byte) (int, error) {
	o.t.Helper()
	return o.retried(func() (int, error) { return o.Read(p) }, "readable", func(s *State) *bool { return &s.Readable })
}

func (o *observed) write(p []byte) (int, error) {
	o.t.Helper()
	return o.retried(func() (int, error) { return o.Write(p) }, "writable", func(s *State) *bool { return &s.Writable })
}

func (o *observed) send(text string) {
	o.t.Helper()
	if n, err := o.write([]byte(text)); n != len(text) || err != nil {
		o.t.Fatalf("write: %d, %v", n, err)
	}
}

func (o *observed) expect(text string) {
	o.t.Helper()
	got := make([]byte, len(text))
	for at := 0; at < len(got); {
		n, err := o.read(got[at:])
		if n == 0 || err != nil {
			o.t.Fatalf("read %q, then %d, %v; want %q", got[:at], n, err, text)
		}
		at += n
	}
	if string(got) != text {
		o.t.Fatalf("read %q, want %q", got, text)
	}
}

func (o *observed) expectErr(want error) {
	o.t.Helper()
	if n, err := o.read(make([]byte, 1)); n != 0 || err != want {
		o.t.Errorf("read: %d, %v, want %v", n, err, want)
	}
}

func (o *observed) expectEnd() {
	o.t.Helper()
	o.expectErr(nil)
}

func (o *observed) expectWriteErr(want error) {
	o.t.Helper()
	if n, err := o.write([]byte("x")); n != 0 || err != want {
		o.t.Errorf("write: %d, %v, want %v", n, err, want)
	}
}

func (o *observed) ends() { o.t.Helper(); o.await("it ends", func(s *State) bool { return s.Ends }) }
func (o *observed) breaks() {
	o.t.Helper()
	o.await("it breaks", func(s *State) bool { return s.Broken })
}
func (o *observed) hangs() { o.t.Helper(); o.await("it hangs up", func(*State) bool { return o.hung }) }

// urgent writes an urgent byte.
func (o *observed) urgent() {
	o.t.Helper()
	var err error
	switch e := o.End.(type) {
	case *Socket:
		err = unix.Send(int(e.Descriptor), []byte("!"), unix.MSG_OOB)
	case *MemoryEnd:
		err = e.WriteUrgent('!')
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// A network for the tests to dial on.
type world struct {
	t      testing.TB
	net    Network
	poller *Poller
}

func newWorld(t testing.TB, n Network) *world {
	t.Helper()
	ps, err := n.NewPollers()
	if err != nil {
		t.Fatal(err)
	}
	var runs sync.WaitGroup
	for _, p := range ps {
		runs.Go(p.Run)
	}
	t.Cleanup(func() {
		for _, p := range ps {
			p.Close()
		}
		runs.Wait()
	})
	return &world{t, n, ps[0]}
}

// connected returns both ends of a connection.
func (w *world) connected() (a, b *observed) {
	w.t.Helper()
	l, err := w.net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	to, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	dialled, err := w.net.Dial(to, netip.Addr{}, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	a = observe(w.t, w.poller, dialled)
	a.await("connected", func(s *State) bool { return s.Writable })
	if err := a.Failure(); err != nil {
		w.t.Fatal(err)
	}
	accepted, from, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	if from != a.Local() || accepted.Local() != to {
		w.t.Errorf("%v has accepted %v, want %v from %v", accepted.Local(), from, to, a.Local())
	}
	return a, observe(w.t, w.poller, accepted)
}

// behaviour is what the ends of a network do: each line is true of the kernel's sockets, and
// so of those in memory.
var behaviour = []struct {
	what string
	do   func(a, b *observed)
}{
	{"bytes arrive in order", func(a, b *observed) {
		a.send("one ")
		a.send("two")
		b.expect("one two")
		b.send("back")
		a.expect("back")
	}},
	{"a read takes what is there", func(a, b *observed) {
		a.send("12345")
		b.await("bytes", func(s *State) bool { return s.Readable })
		if n, err := b.read(make([]byte, 100)); n != 5 || err != nil {
			b.t.Errorf("read: %d, %v", n, err)
		}
		if _, err := b.Read(make([]byte, 1)); err != unix.EAGAIN {
			b.t.Errorf("then %v", err)
		}
	}},
	{"an end comes behind the bytes, and the other way goes on", func(a, b *observed) {
		a.send("last words")
		a.CloseWrite()
		b.ends()
		b.expect("last words")
		b.expectEnd()
		b.expectEnd()
		b.send("still here")
		a.expect("still here")
		b.CloseWrite()
		a.expectEnd()
		a.hangs()
		b.hangs()
	}},
	{"what is ended takes no more", func(a, b *observed) {
		a.CloseWrite()
		a.expectWriteErr(unix.EPIPE)
		b.expectEnd()
	}},
	{"a close is an end, if all is read", func(a, b *observed) {
		a.send("last words")
		a.Close()
		b.expect("last words")
		b.expectEnd()
	}},
	{"a close with something unread is a reset", func(a, b *observed) {
		b.send("unread")
		a.await("bytes", func(s *State) bool { return s.Readable })
		a.Close()
		b.breaks()
		b.expectErr(unix.ECONNRESET)
	}},
	{"who writes to a closed end is reset", func(a, b *observed) {
		a.Close()
		b.ends()
		b.send("nobody reads this")
		b.breaks()
		b.expectWriteErr(unix.EPIPE)
		b.expectEnd()
	}},
	{"who writes to an end closed after his own end is reset", func(a, b *observed) {
		a.CloseWrite()
		b.expectEnd()
		b.Close()
		a.expectEnd()
		a.hangs()
	}},
	{"a reset is told once, to a read", func(a, b *observed) {
		a.Reset()
		b.breaks()
		b.ends()
		b.expectErr(unix.ECONNRESET)
		b.expectEnd()
		b.expectWriteErr(unix.EPIPE)
	}},
	{"a reset is told once, to a write", func(a, b *observed) {
		a.Reset()
		b.breaks()
		b.expectWriteErr(unix.ECONNRESET)
		b.expectWriteErr(unix.EPIPE)
		b.expectEnd()
	}},
	{"a reset is told once, to Failure", func(a, b *observed) {
		a.Reset()
		b.breaks()
		if err := b.Failure(); err != unix.ECONNRESET {
			b.t.Errorf("Failure: %v", err)
		}
		if err := b.Failure(); err != nil {
			b.t.Errorf("then %v", err)
		}
		b.expectEnd()
	}},
	{"what has arrived before a reset can be read", func(a, b *observed) {
		a.send("last words")
		b.await("bytes", func(s *State) bool { return s.Readable })
		a.Reset()
		b.breaks()
		b.expect("last words")
		b.expectErr(unix.ECONNRESET)
		b.expectEnd()
	}},
	{"a reset behind an end reads as that end", func(a, b *observed) {
		a.CloseWrite()
		b.ends()
		a.Reset()
		b.breaks()
		b.expectEnd()
		b.expectWriteErr(unix.EPIPE)
	}},
	{"a reset after both have ended is none", func(a, b *observed) {
		a.CloseWrite()
		b.CloseWrite()
		b.expectEnd()
		a.hangs()
		a.Reset()
		b.expectEnd()
		b.hangs()
		if b.state.Broken {
			b.t.Error("the other one is broken")
		}
	}},
	{"what is reset cannot be ended", func(a, b *observed) {
		a.Reset()
		b.breaks()
		if err := b.CloseWrite(); err != unix.ENOTCONN {
			b.t.Errorf("CloseWrite: %v", err)
		}
	}},
	{"a writer waits for the reader", func(a, b *observed) {
		sent := fillUp(a)
		if a.Unsent() == 0 {
			a.t.Error("all has arrived")
		}
		var got bytes.Buffer
		buf := make([]byte, 8<<10)
		for got.Len() < len(sent) {
			n, err := b.read(buf)
			if n == 0 || err != nil {
				b.t.Fatalf("read %d, then %d, %v", got.Len(), n, err)
			}
			got.Write(buf[:n])
		}
		if !bytes.Equal(got.Bytes(), sent) {
			b.t.Error("others arrive")
		}
		a.await("room", func(s *State) bool { return s.Writable })
		a.send("more")
		b.expect("more")
		b.send("thanks") // which acknowledges all that
		a.expect("thanks")
		if n := a.Unsent(); n > 0 {
			a.t.Errorf("%d bytes have not arrived", n)
		}
	}},
	{"an end waits behind what there is no room for", func(a, b *observed) {
		sent := fillUp(a)
		a.CloseWrite()
		b.expect(string(sent))
		b.expectEnd()
	}},
	{"a close lets what there is no room for arrive", func(a, b *observed) {
		sent := fillUp(a)
		a.Close()
		b.expect(string(sent))
		b.expectEnd()
	}},
	{"a reset discards what there is no room for", func(a, b *observed) {
		sent := fillUp(a)
		a.Reset()
		b.breaks()
		got, buf := 0, make([]byte, 64<<10)
		n, err := b.read(buf)
		for ; n > 0; n, err = b.read(buf) {
			got += n
		}
		if err != unix.ECONNRESET || got >= len(sent) {
			b.t.Errorf("of %d bytes, %d arrive before %v", len(sent), got, err)
		}
	}},
	{"a reset reaches a writer who waits", func(a, b *observed) {
		fillUp(a)
		b.Reset()
		a.breaks()
		a.expectWriteErr(unix.ECONNRESET)
	}},
	{"reads stop short of an urgent byte, and skip it", func(a, b *observed) {
		a.send("before")
		a.urgent()
		a.send("behind")
		b.await("urgent data", func(s *State) bool { return s.Urgent })
		buf := make([]byte, 100)
		n, err := b.read(buf)
		if string(buf[:n]) != "before" || err != nil {
			b.t.Errorf("read %q, %v", buf[:n], err)
		}
		b.expect("behind")
	}},
	{"an urgent byte alone is nothing to read", func(a, b *observed) {
		a.urgent()
		b.await("urgent data", func(s *State) bool { return s.Urgent })
		b.expectNothing()
		a.CloseWrite()
		b.expectEnd()
	}},
	{"only the last urgent byte is one", func(a, b *observed) {
		a.send("1")
		a.urgent()
		a.send("2")
		b.await("urgent data", func(s *State) bool { return s.Urgent })
		a.urgent()
		a.send("3")
		a.CloseWrite()
		b.ends()
		b.expect("1!23")
		b.expectEnd()
	}},
	{"AtEnd looks at nothing but the end", func(a, b *observed) {
		if b.AtEnd() {
			b.t.Error("at the end, at the start")
		}
		a.send("x")
		a.CloseWrite()
		b.ends()
		if b.AtEnd() {
			b.t.Error("at the end, before a byte")
		}
		b.expect("x")
		if !b.AtEnd() {
			b.t.Error("not at the end, behind it")
		}
		b.expectEnd()
	}},
}

// fillUp writes until there is no room, and returns what was written.
func fillUp(o *observed) []byte {
	o.t.Helper()
	piece, sent := []byte(strings.Repeat("0123456789abcdef", 1000)), []byte(nil)
	for {
		n, err := o.Write(piece)
		switch err {
		case nil:
			sent = append(sent, piece[:n]...)
		case unix.EINTR:
		case unix.EAGAIN:
			o.mu.Lock()
			defer o.mu.Unlock()
			o.state.Writable = false
			return sent
		default:
			o.t.Fatal(err)
		}
	}
}

func (o *observed) expectNothing() {
	o.t.Helper()
	if n, err := o.Read(make([]byte, 1)); n != 0 || err != unix.EAGAIN {
		o.t.Errorf("read: %d, %v, want EAGAIN", n, err)
	}
}

// The ends in memory do what those of the kernel do.
func TestEndsBehaveAlike(t *testing.T) {
	for _, n := range []Network{Kernel{}, &Memory{}} {
		for _, c := range behaviour {
			t.Run(fmt.Sprintf("%T %s", n, c.what), func(t *testing.T) {
				c.do(newWorld(t, n).connected())
			})
		}
	}
}

// An address that nobody listens at refuses, in either network.
func TestDialIsRefused(t *testing.T) {
	for _, n := range []Network{Kernel{}, &Memory{}} {
		w := newWorld(t, n)
		l, err := n.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		to := netip.MustParseAddrPort(l.Addr().String())
		l.Close()
		e, err := n.Dial(to, netip.Addr{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		o := observe(t, w.poller, e)
		o.breaks()
		o.await("the attempt is over", func(s *State) bool { return s.Writable && s.Ends })
		if err := o.Failure(); err != unix.ECONNREFUSED {
			t.Errorf("%T: %v", n, err)
		}
	}
}

// What a test injects happens once, and the poller tells when there is more to do.
func TestInterrupt(t *testing.T) {
	a, b := newWorld(t, &Memory{}).connected()
	a.End.(*MemoryEnd).Interrupt(OnWrite, unix.EINTR, unix.EAGAIN)
	a.send("x")
	b.End.(*MemoryEnd).Interrupt(OnRead, unix.EAGAIN, unix.EINTR, unix.EAGAIN)
	b.expect("x")
}

// Who is given up learns it, and the other one does not.
func TestBreak(t *testing.T) {
	a, b := newWorld(t, &Memory{}).connected()
	a.send("x")
	a.End.(*MemoryEnd).Break(unix.ETIMEDOUT)
	a.breaks()
	a.expectErr(unix.ETIMEDOUT)
	a.expectEnd()
	b.expect("x")
	b.expectNothing()
}

// A MemoryConn waits: for bytes, for room, for who accepts, and until a deadline.
func TestMemoryConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{}
		l, err := m.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		data := strings.Repeat("0123456789", 100_000)
		go func() {
			c, err := m.DialConn("", l.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(c, data)
			c.Close()
		}()
		c, err := l.(*MemoryListener).Next()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		time.Sleep(time.Second)
		if got, err := io.ReadAll(c); string(got) != data || err != nil {
			t.Errorf("%d bytes arrive, %v", len(got), err)
		}
		c.Close()
		l.Close()

		one, other := NewLink()
		c, d := NewMemoryConn(one), NewMemoryConn(other)
		c.SetDeadline(begin.Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 5*time.Second {
			t.Errorf("a read ends after %v with %v", time.Since(begin), err)
		}
		d.SetLinger(0)
		d.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a read of what is reset ends with %v", err)
		}
		c.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read of what is closed ends with %v", err)
		}
	})
}
