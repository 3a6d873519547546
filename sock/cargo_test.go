package sock

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// porter carries bytes from one connection to another.
type porter struct {
	t        testing.TB
	cargo    Cargo
	from, to *net.TCPConn // the peers' ends
	in, out  *Socket      // our ends
}

func newPorter(t testing.TB) *porter {
	t.Helper()
	ps := Kernel{}.NewPipes()
	t.Cleanup(ps.Close)
	c := &porter{t: t}
	c.cargo.Init(ps, new(atomic.Uint64))
	var in, out *net.TCPConn
	c.from, in = connected(t)
	out, c.to = connected(t)
	c.in, c.out = socketOf(t, in), socketOf(t, out)
	return c
}

// patience is how long tests wait for what must happen. It is long, for a busy machine.
const patience = time.Minute

// connected returns two connected sockets.
func connected(t testing.TB) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{one, other} {
		c.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { c.Close() })
	}
	return one.(*net.TCPConn), other.(*net.TCPConn)
}

func send(t testing.TB, c net.Conn, data string) {
	t.Helper()
	if _, err := io.WriteString(c, data); err != nil {
		t.Fatal(err)
	}
}

// expect reads as many bytes as it wants, and compares them.
func expect(t testing.TB, c io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got[:n], err, want)
	}
}

// socketOf returns the socket of a connection, which must stay open.
func socketOf(t testing.TB, c *net.TCPConn) *Socket {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	s := NoSocket()
	raw.Control(func(d uintptr) { s.Descriptor = Descriptor(d) })
	return s
}

// await waits for an event of a socket.
func await(t testing.TB, s *Socket, event int16) {
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(s.Descriptor), Events: event}}, int(patience.Milliseconds())); err != nil && err != unix.EINTR {
		t.Fatal(err)
	}
}

// load waits, reads once, and returns how many bytes are in the cargo.
func (c *porter) load(piece int) int {
	c.t.Helper()
	for {
		switch _, err := c.cargo.Load(c.in, piece); err {
		case nil:
			return c.cargo.n
		case unix.EAGAIN:
			await(c.t, c.in, unix.POLLIN)
		default:
			c.t.Fatal(err)
		}
	}
}

// unload waits and writes all that is in the cargo.
func (c *porter) unload() {
	c.t.Helper()
	for c.cargo.Remaining() > 0 {
		switch _, err := c.cargo.Unload(c.out); err {
		case nil:
		case unix.EAGAIN:
			await(c.t, c.out, unix.POLLOUT)
		default:
			c.t.Fatal(err)
		}
	}
	c.cargo.Clear()
}

func noise(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return data
}

// Bytes arrive as they were sent: with all pipes, with one, with none.
func TestCargoIsUnchanged(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxPipes, 1, 0} {
		c := newPorter(t)
		for range maxPipes - n {
			defer c.cargo.pipes.get().close()
		}
		data := noise(8 << 20)
		go func() {
			c.from.Write(data)
			c.from.CloseWrite()
		}()
		got := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(c.to)
			got <- all
		}()
		spliced := 0
		for c.load(1+rand.IntN(pipeSize)) > 0 {
			if c.cargo.pipe != nil {
				spliced += c.cargo.n
			}
			c.unload()
		}
		c.out.CloseWrite()
		if !bytes.Equal(<-got, data) {
			t.Errorf("with %d pipes, other bytes arrive", n)
		}
		if (spliced > 0) != (n > 0) {
			t.Errorf("with %d pipes, %d bytes of %d are spliced", n, spliced, len(data))
		}
		if len(c.cargo.pipes) != n {
			t.Errorf("of %d pipes, %d are free again", n, len(c.cargo.pipes))
		}
	}
}

// Few bytes are copied, in a buffer of about their size.
func TestCargoOfFewBytes(t *testing.T) {
	c := newPorter(t)
	for range 10 {
		send(t, c.from, "hello")
		if n := c.load(pipeSize); n != 5 || c.cargo.pipe != nil || len(c.cargo.buf.Bytes) > smallRead {
			t.Fatalf("the cargo is %+v", c.cargo)
		}
		c.unload()
		expect(t, c.to, "hello")
	}
}

// Clear leaves no bytes in a pipe, where the next Cargo would read them.
func TestCargoGivenUp(t *testing.T) {
	c := newPorter(t)
	c.cargo.plenty = true
	if _, err := c.from.Write(noise(pipeSize)); err != nil {
		t.Fatal(err)
	}
	if c.load(pipeSize) == 0 || c.cargo.pipe == nil {
		t.Fatal("the bytes are not in a pipe")
	}
	ps := c.cargo.pipes
	c.cargo.Clear()
	if len(ps) != maxPipes {
		t.Errorf("%d pipes are free again, want %d", len(ps), maxPipes)
	}
	wantEmpty(t, ps)
}

// wantEmpty fails the test if a free pipe holds bytes.
func wantEmpty(t testing.TB, ps Pipes) {
	t.Helper()
	for range len(ps) {
		p := ps.get()
		if n, err := unix.IoctlGetInt(p.out, unix.TIOCINQ); err != nil || n != 0 {
			t.Errorf("a free pipe holds %d bytes, %v", n, err)
		}
		ps.put(p)
	}
}

// If the kernel refuses to splice, the Cargo copies, and loses no byte.
func TestCargoWithoutSplice(t *testing.T) {
	t.Run("to the destination", func(t *testing.T) {
		c := newPorter(t)
		c.cargo.plenty = true
		data := noise(100_000)
		if _, err := c.from.Write(data); err != nil {
			t.Fatal(err)
		}
		n := c.load(pipeSize)
		appended, err := os.OpenFile(t.TempDir()+"/file", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer appended.Close()
		// It accepts nothing: splice(2) refuses a file opened for appending, send(2) any file.
		if _, err := c.cargo.Unload(&Socket{Descriptor: Descriptor(appended.Fd())}); err != unix.ENOTSOCK || c.cargo.pipe != nil || c.cargo.Remaining() != n || c.cargo.refused.Load() != 1 {
			t.Errorf("unload: %v, and the cargo is %+v", err, c.cargo)
		}
		c.unload()
		expect(t, c.to, string(data[:n]))
	})
	t.Run("from the source", func(t *testing.T) {
		c := newPorter(t)
		c.cargo.plenty = true
		data := noise(100_000)
		memory, err := os.Open("/proc/self/mem") // read(2) accepts it, splice(2) does not
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Close()
		if _, err := memory.Seek(int64(uintptr(unsafe.Pointer(&data[0]))), io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := c.cargo.Load(&Socket{Descriptor: Descriptor(memory.Fd())}, pipeSize); err != nil || c.cargo.pipe != nil || c.cargo.n == 0 || c.cargo.refused.Load() != 1 {
			t.Fatalf("load: %v, and the cargo is %+v", err, c.cargo)
		}
		n := c.cargo.n
		c.unload()
		expect(t, c.to, string(data[:n]))
	})
}

// Where descriptors are short, most of them stay for sessions.
func TestPipesWithinDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 0, 64: 8, 256: 32, 511: 63, 512: maxPipes, 1 << 20: maxPipes, 1<<64 - 1: maxPipes} {
		if got := pipesWithin(descriptors); got != want {
			t.Errorf("%d pipes within %d descriptors, want %d", got, descriptors, want)
		}
	}
}

// The pipes take at most half of the pages of an unprivileged user.
func TestPipesAreWithinTheQuota(t *testing.T) {
	ps := Kernel{}.NewPipes()
	defer ps.Close()
	if len(ps) != maxPipes {
		t.Errorf("%d pipes, want %d", len(ps), maxPipes)
	}
	pages := 0
	for range len(ps) {
		p := ps.get()
		size, err := unix.FcntlInt(uintptr(p.in), unix.F_GETPIPE_SZ, 0)
		if err != nil || size < pipeSize {
			t.Errorf("a pipe of %d bytes, %v", size, err)
		}
		pages += size / os.Getpagesize()
		ps.put(p)
	}
	if pages > 16384/2 {
		t.Errorf("the pipes take %d pages", pages)
	}
}
