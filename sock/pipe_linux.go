package sock

import (
	"golang.org/x/sys/unix"

	"shaper/buffer"
)

// pipe is a pipe of the kernel: what is spliced through it is not copied
// (splice(2)).
type pipe struct{ in, out int }

// Bounds of the pipes. An unprivileged user has 16,384 pages for all of its
// pipes (pipe-user-pages-soft in pipe(7)), beyond which each new one is of a
// page or two.
const (
	maxPipes = 64
	pipeSize = buffer.Max
)

// Pipes are what many a Cargo moves bytes through. Each is empty, but for those that a
// Cargo holds. A nil Pipes has none.
type Pipes chan *pipe

// NewPipes implements Network.
func (Kernel) NewPipes() Pipes {
	ps := make(Pipes, maxPipes)
	for range maxPipes {
		p, err := newPipe()
		if err != nil {
			break // with fewer, or none, more is copied
		}
		ps <- p
	}
	return ps
}

func newPipe() (*pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	p := &pipe{in: fds[1], out: fds[0]}
	if _, err := unix.FcntlInt(uintptr(p.in), unix.F_SETPIPE_SZ, pipeSize); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// get returns a pipe; nil: all are in use.
func (ps Pipes) get() *pipe {
	select {
	case p := <-ps:
		return p
	default:
		return nil
	}
}

func (ps Pipes) put(p *pipe) { ps <- p }

// Close closes the pipes. None may be in use.
func (ps Pipes) Close() {
	for p := ps.get(); p != nil; p = ps.get() {
		p.close()
	}
}

func (p *pipe) close() {
	unix.Close(p.in)
	unix.Close(p.out)
}

// fill moves at most n bytes from a socket into the pipe, which is empty: else
// a full pipe would look like a socket without bytes. 0 bytes are the end.
func (p *pipe) fill(fd, n int) (int, error) { return spliceNow(fd, p.in, n) }

// drain moves at most n bytes on to a socket.
func (p *pipe) drain(fd, n int) (int, error) { return spliceNow(p.out, fd, n) }

// read takes what is in the pipe out, up to len(b).
func (p *pipe) read(b []byte) (int, error) { return readNow(p.out, b) }
