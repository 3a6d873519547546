package conn

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"shaper/stats"
)

// porter is a cargo between two connections.
type porter struct {
	t        testing.TB
	cargo    cargo
	from, to *net.TCPConn // of the peers
	in, out  int          // our ends
}

func newCarrier(t testing.TB) *porter {
	t.Helper()
	ps := newPipes()
	t.Cleanup(ps.close)
	c := &porter{t: t, cargo: cargo{pipes: ps, refused: new(atomic.Uint64)}}
	var in, out *net.TCPConn
	c.from, in = connected(t)
	out, c.to = connected(t)
	c.in, c.out = descriptor(t, in), descriptor(t, out)
	return c
}

// descriptor returns that of a connection, which stays open for the test.
func descriptor(t testing.TB, c *net.TCPConn) (fd int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(d uintptr) { fd = int(d) })
	return fd
}

// await waits for an event of a descriptor.
func await(t testing.TB, fd int, event int16) {
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: event}}, int(patience.Milliseconds())); err != nil && err != unix.EINTR {
		t.Fatal(err)
	}
}

// load reads once, and returns how many bytes are in the cargo.
func (c *porter) load(piece int) int {
	c.t.Helper()
	for {
		switch _, err := c.cargo.load(c.in, piece); err {
		case nil:
			return c.cargo.n
		case unix.EAGAIN:
			await(c.t, c.in, unix.POLLIN)
		default:
			c.t.Fatal(err)
		}
	}
}

// unload writes all that is in the cargo.
func (c *porter) unload() {
	c.t.Helper()
	for c.cargo.left() > 0 {
		switch _, err := c.cargo.unload(c.out); err {
		case nil:
		case unix.EAGAIN:
			await(c.t, c.out, unix.POLLOUT)
		default:
			c.t.Fatal(err)
		}
	}
	c.cargo.clear()
}

func noise(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return data
}

// Bytes arrive as they were sent, whatever they go through: with every pipe
// there is, with one, with none.
func TestCargoIsUnchanged(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxPipes, 1, 0} {
		c := newCarrier(t)
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
		unix.Shutdown(c.out, unix.SHUT_WR)
		if !bytes.Equal(<-got, data) {
			t.Errorf("with %d pipes, other bytes arrive", n)
		}
		if (spliced > 0) != (n > 0) {
			t.Errorf("with %d pipes, %d bytes of %d are spliced", n, spliced, len(data))
		}
		if len(c.cargo.pipes) != n {
			t.Errorf("of %d pipes, %d are left", n, len(c.cargo.pipes))
		}
	}
}

// Few bytes are copied, in a buffer of about their size.
func TestCargoOfFewBytes(t *testing.T) {
	c := newCarrier(t)
	for range 10 {
		send(t, c.from, "hello")
		if n := c.load(pipeSize); n != 5 || c.cargo.pipe != nil || len(c.cargo.buf.Bytes) > smallRead {
			t.Fatalf("the cargo is %+v", c.cargo)
		}
		c.unload()
		expect(t, c.to, "hello")
	}
}

// What is given up while it is in a pipe never reaches the next one who uses it.
func TestCargoGivenUp(t *testing.T) {
	c := newCarrier(t)
	c.cargo.plenty = true
	if _, err := c.from.Write(noise(pipeSize)); err != nil {
		t.Fatal(err)
	}
	if c.load(pipeSize) == 0 || c.cargo.pipe == nil {
		t.Fatal("the bytes are not in a pipe")
	}
	ps := c.cargo.pipes
	c.cargo.clear()
	if len(ps) != maxPipes {
		t.Errorf("%d pipes are back", len(ps))
	}
	wantEmpty(t, ps)
}

// wantEmpty looks into every pipe that is free.
func wantEmpty(t testing.TB, ps pipes) {
	t.Helper()
	for range len(ps) {
		p := ps.get()
		if n, err := unix.IoctlGetInt(p.out, unix.TIOCINQ); err != nil || n != 0 {
			t.Errorf("a free pipe holds %d bytes, %v", n, err)
		}
		ps.put(p)
	}
}

// Where the kernel does not splice, the bytes are copied, and none is lost.
func TestCargoWithoutSplice(t *testing.T) {
	t.Run("to the destination", func(t *testing.T) {
		c := newCarrier(t)
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
		// It takes nothing: splice(2) refuses it, and it is no socket.
		if _, err := c.cargo.unload(int(appended.Fd())); err != unix.ENOTSOCK || c.cargo.pipe != nil || c.cargo.left() != n || c.cargo.refused.Load() != 1 {
			t.Errorf("unload: %v, and the cargo is %+v", err, c.cargo)
		}
		c.unload()
		expect(t, c.to, string(data[:n]))
	})
	t.Run("from the source", func(t *testing.T) {
		c := newCarrier(t)
		c.cargo.plenty = true
		data := noise(100_000)
		memory, err := os.Open("/proc/self/mem") // can be read, but not spliced
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Close()
		if _, err := memory.Seek(int64(uintptr(unsafe.Pointer(&data[0]))), io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := c.cargo.load(int(memory.Fd()), pipeSize); err != nil || c.cargo.pipe != nil || c.cargo.n == 0 || c.cargo.refused.Load() != 1 {
			t.Fatalf("load: %v, and the cargo is %+v", err, c.cargo)
		}
		n := c.cargo.n
		c.unload()
		expect(t, c.to, string(data[:n]))
	})
}

// The pipes are what an unprivileged user may have: half of the pages at most.
func TestPipesAreWithinTheQuota(t *testing.T) {
	ps := newPipes()
	defer ps.close()
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
		t.Errorf("they take %d pages", pages)
	}
}

// A session that ends while its bytes are in a pipe, or stalls there, counts
// them and gives the pipe back empty.
func TestSessionEndsWithBytesInAPipe(t *testing.T) {
	addr, conns := listen(t)
	r := run(t, forward(addr, "1GB/s"))
	client, upstream := r.open(conns)
	fill(t, client) // until nobody takes more
	one := r.one()
	until(t, "bytes are held", func() bool { return one.info().Waiting > 0 })
	held := uint64(one.info().Waiting)
	if len(r.pipes) != maxPipes-1 {
		t.Errorf("%d of %d pipes are free", len(r.pipes), maxPipes)
	}
	one.abort(stats.ByOperator)
	expectReset(t, client)
	upstream.Close()
	r.awaitEnd(stats.ByOperator, 1)
	if _, n := r.dropped("c", stats.Closed); n == 0 || n > held {
		t.Errorf("dropped %d bytes of %d that were held", n, held)
	}
	if len(r.pipes) != maxPipes {
		t.Errorf("%d of %d pipes are free", len(r.pipes), maxPipes)
	}
	wantEmpty(t, r.pipes)
}
