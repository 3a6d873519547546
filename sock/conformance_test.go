package sock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"shaper/tests/trial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// observed is an end, and what a poller has reported of it.
type observed struct {
	End
	t      testing.TB
	poller *Poller

	mu       sync.Mutex // guards the fields below
	reported sync.Cond
	state    State
	hungUp   bool
}

func observe(t testing.TB, p *Poller, e End) *observed {
	t.Helper()
	o := &observed{End: e, t: t, poller: p}
	o.reported.L = &o.mu
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
	o.hungUp = o.hungUp || events&HungUp != 0
	o.reported.Broadcast()
}

// await waits until the poller has reported something.
func (o *observed) await(what string, is func(*State) bool) {
	o.t.Helper()
	late := false
	defer time.AfterFunc(patience, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		late = true
		o.reported.Broadcast()
	}).Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !is(&o.state) {
		if late {
			o.t.Fatalf("the poller does not report %q; it has reported %+v", what, o.state)
		}
		o.reported.Wait()
	}
}

// retried repeats an operation until it returns neither EINTR nor EAGAIN. After EAGAIN it
// waits until the flag is set.
func (o *observed) retried(do func() (int, error), what string, flag func(*State) *bool) (int, error) {
	o.t.Helper()
	for {
		o.note(flag, false) // before do, which an event may follow at once
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

// note sets a flag of the state.
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
func (o *observed) hangs() {
	o.t.Helper()
	o.await("it hangs up", func(*State) bool { return o.hungUp })
}

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

// world is a network with running pollers.
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
	dialled, err := w.net.Dial(to, Local{})
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
		w.t.Errorf("%v accepts %v, want %v and %v", accepted.Local(), from, to, a.Local())
	}
	return a, observe(w.t, w.poller, accepted)
}

// connectedUnix returns both ends of a connection to a unix socket.
func (w *world) connectedUnix(name string) (a, b *observed) {
	w.t.Helper()
	l, err := w.net.ListenUnix(name, everybody)
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	if l.Addr().String() != name {
		w.t.Errorf("it listens at %v", l.Addr())
	}
	dialled, err := w.net.DialUnix(name)
	if err != nil {
		w.t.Fatal(err)
	}
	accepted, from, err := l.Accept()
	if err != nil || from.IsValid() {
		w.t.Fatalf("it accepts %v, %v", from, err)
	}
	return observe(w.t, w.poller, dialled), observe(w.t, w.poller, accepted)
}

// behavesAs says how two connected ends behave.
type behavesAs struct {
	what string
	do   func(a, b *observed)
}

// behaviour is what the ends of any network do. Sockets of the kernel behave so, and ends in
// memory must.
var behaviour = []behavesAs{
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
	{"an end comes after the bytes, and the other direction goes on", func(a, b *observed) {
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
	{"an ended direction accepts no more", func(a, b *observed) {
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
	{"a close after the other end has ended is an end", func(a, b *observed) {
		a.CloseWrite()
		b.expectEnd()
		b.Close()
		a.expectEnd()
		a.hangs()
	}},
	{"a writer waits for the reader", func(a, b *observed) {
		sent := fillUp(a)
		if a.Unsent() == 0 {
			a.t.Error("everything has arrived")
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
			b.t.Error("other bytes arrive")
		}
		a.await("room", func(s *State) bool { return s.Writable })
		a.send("more")
		b.expect("more")
		b.send("thanks") // acknowledges all of it
		a.expect("thanks")
		if n := a.Unsent(); n > 0 {
			a.t.Errorf("%d bytes have not arrived", n)
		}
	}},
	{"an end waits for bytes without room before it", func(a, b *observed) {
		sent := fillUp(a)
		a.CloseWrite()
		b.expect(string(sent))
		b.expectEnd()
	}},
	{"bytes without room arrive after a close", func(a, b *observed) {
		sent := fillUp(a)
		a.Close()
		b.expect(string(sent))
		b.expectEnd()
	}},
	{"AtEnd is true only at the end", func(a, b *observed) {
		if b.AtEnd() {
			b.t.Error("AtEnd at the start")
		}
		a.send("x")
		a.CloseWrite()
		b.ends()
		if b.AtEnd() {
			b.t.Error("AtEnd before a byte")
		}
		b.expect("x")
		if !b.AtEnd() {
			b.t.Error("not AtEnd after the byte")
		}
		b.expectEnd()
	}},
	{"what is peeked stays to be read", func(a, b *observed) {
		peek := func(want string, wantErr error) {
			b.t.Helper()
			buf := make([]byte, 100)
			if n, err := b.Peek(buf); string(buf[:max(n, 0)]) != want || err != wantErr {
				b.t.Errorf("peeked %d, %v, want %q, %v", n, err, want, wantErr)
			}
		}
		peek("", unix.EAGAIN)
		a.send("one two")
		b.await("bytes", func(s *State) bool { return s.Readable })
		peek("one two", nil)
		b.expect("one ")
		peek("two", nil)
		a.CloseWrite()
		b.ends()
		b.expect("two")
		peek("", nil)
		b.expectEnd()
	}},
}

// behaviourOfTCP is what only ends of TCP do: they know resets and urgent data.
var behaviourOfTCP = []behavesAs{
	{"a write to a closed end is answered by a reset", func(a, b *observed) {
		a.Close()
		b.ends()
		b.send("nobody reads this")
		b.breaks()
		b.expectWriteErr(unix.EPIPE)
		b.expectEnd()
	}},
	{"a reset is reported once, by a read", func(a, b *observed) {
		a.Reset()
		b.breaks()
		b.ends()
		b.expectErr(unix.ECONNRESET)
		b.expectEnd()
		b.expectWriteErr(unix.EPIPE)
	}},
	{"a reset is reported once, by a write", func(a, b *observed) {
		a.Reset()
		b.breaks()
		b.expectWriteErr(unix.ECONNRESET)
		b.expectWriteErr(unix.EPIPE)
		b.expectEnd()
	}},
	{"a reset is reported once, by Failure", func(a, b *observed) {
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
	{"a reset after an end reads as that end", func(a, b *observed) {
		a.CloseWrite()
		b.ends()
		a.Reset()
		b.breaks()
		b.expectEnd()
		b.expectWriteErr(unix.EPIPE)
	}},
	{"a reset after both have ended has no effect", func(a, b *observed) {
		a.CloseWrite()
		b.CloseWrite()
		b.expectEnd()
		a.hangs()
		a.Reset()
		b.expectEnd()
		b.hangs()
		if b.state.Broken {
			b.t.Error("the other end is broken")
		}
	}},
	{"a reset end cannot send an end", func(a, b *observed) {
		a.Reset()
		b.breaks()
		if err := b.CloseWrite(); err != unix.ENOTCONN {
			b.t.Errorf("CloseWrite: %v", err)
		}
	}},
	{"a reset discards bytes without room", func(a, b *observed) {
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
	{"a reset reaches a writer that waits", func(a, b *observed) {
		fillUp(a)
		b.Reset()
		a.breaks()
		a.expectWriteErr(unix.ECONNRESET)
	}},
	{"reads stop before an urgent byte, and skip it", func(a, b *observed) {
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
	{"only the last urgent byte is urgent", func(a, b *observed) {
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
}

// behaviourOfUnix is what only unix sockets do.
var behaviourOfUnix = []behavesAs{
	{"a reset is an end, if all is read", func(a, b *observed) {
		a.send("last words")
		b.expect("last words")
		a.Reset()
		b.hangs()
		b.expectEnd()
	}},
	{"nobody writes to a closed end", func(a, b *observed) {
		a.Close()
		b.hangs()
		b.expectWriteErr(unix.EPIPE)
		b.expectEnd()
	}},
	{"a close with bytes on their way is a reset", func(a, b *observed) {
		fillUp(b)
		a.Close()
		b.breaks()
		b.expectErr(unix.ECONNRESET)
	}},
	{"it has no address", func(a, b *observed) {
		if a.Local().IsValid() || b.Local().IsValid() {
			a.t.Errorf("the ends are at %v and %v", a.Local(), b.Local())
		}
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

// expectNothing fails the test unless there is nothing to read.
func (o *observed) expectNothing() {
	o.t.Helper()
	if n, err := o.Read(make([]byte, 1)); n != 0 || err != unix.EAGAIN {
		o.t.Errorf("read: %d, %v, want EAGAIN", n, err)
	}
}

var everybody = Access{Mode: 0o666, UID: -1, GID: -1}

// Ends in memory behave as those of the kernel.
func TestEndsBehaveAlike(t *testing.T) {
	for _, n := range []Network{Kernel{}, &Memory{}} {
		for _, c := range slices.Concat(behaviour, behaviourOfTCP) {
			t.Run(fmt.Sprintf("%T %s", n, c.what), func(t *testing.T) {
				c.do(newWorld(t, n).connected())
			})
		}
		for _, c := range slices.Concat(behaviour, behaviourOfUnix) {
			t.Run(fmt.Sprintf("%T unix %s", n, c.what), func(t *testing.T) {
				c.do(newWorld(t, n).connectedUnix(filepath.Join(trial.ShortDir(t), "s")))
			})
			t.Run(fmt.Sprintf("%T abstract %s", n, c.what), func(t *testing.T) {
				c.do(newWorld(t, n).connectedUnix("@" + t.Name()))
			})
		}
	}
}

// A dial to an address without a listener is refused, in both networks.
func TestDialIsRefused(t *testing.T) {
	for _, n := range []Network{Kernel{}, &Memory{}} {
		w := newWorld(t, n)
		l, err := n.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		to := netip.MustParseAddrPort(l.Addr().String())
		l.Close()
		e, err := n.Dial(to, Local{})
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

// An injected error happens once. Then the poller reports that there is more to do.
func TestInterrupt(t *testing.T) {
	a, b := newWorld(t, &Memory{}).connected()
	a.End.(*MemoryEnd).Interrupt(OnWrite, unix.EINTR, unix.EAGAIN)
	a.send("x")
	b.End.(*MemoryEnd).Interrupt(OnRead, unix.EAGAIN, unix.EINTR, unix.EAGAIN)
	b.expect("x")
}

// Break takes down one end. The other end does not notice.
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

// A MemoryConn waits for bytes, for room, for Accept, and until a deadline.
func TestMemoryConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{}
		l, err := m.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		data := strings.Repeat("0123456789", 100_000)
		go func() {
			c, err := m.DialConn(t.Context(), "", l.Addr().String())
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
			t.Errorf("after %v a read returns %v", time.Since(begin), err)
		}
		d.SetLinger(0)
		d.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a read after a reset returns %v", err)
		}
		c.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read after Close returns %v", err)
		}
	})
}
