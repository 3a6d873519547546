package sock

import (
	"golang.org/x/sys/unix"

	"shaper/buffer"
)

// pipe is a pipe of the kernel. Bytes spliced through it are not copied (splice(2)).
type pipe struct{ in, out int }

// The number of pipes, and their size in bytes. An unprivileged user has 16,384 pages for
// all pipes (pipe-user-pages-soft in pipe(7)); beyond that, a new pipe has a page or two.
const (
	maxPipes = 64
	pipeSize = buffer.Max
)

// Pipes is a pool of empty pipes for all Cargos. A nil Pipes has none. Any number of goroutines
// may use it.
type Pipes chan *pipe

// NewPipes implements Network. If the kernel grants fewer pipes, more bytes are copied.
func (Kernel) NewPipes() Pipes {
	var limit unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	ps := make(Pipes, maxPipes)
	for range pipesWithin(limit.Cur) {
		p, err := newPipe()
		if err != nil {
			break
		}
		ps <- p
	}
	return ps
}

// pipesWithin returns how many pipes a process may make that may have so many descriptors: both ends
// of all pipes take at most a quarter of them, and leave the rest to sessions.
func pipesWithin(descriptors uint64) int { return int(min(maxPipes, descriptors/8)) }

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

// get takes a pipe; it returns nil if all are in use.
func (ps Pipes) get() *pipe {
	select {
	case p := <-ps:
		return p
	default:
		return nil
	}
}

// put gives an empty pipe back.
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

// fill moves at most n bytes from a socket into the pipe. The pipe must be empty: a full one
// would look like a socket without bytes. 0 bytes are the end of the stream.
func (p *pipe) fill(fd, n int) (int, error) { return spliceNow(fd, p.in, n) }

// drain moves at most n bytes from the pipe to a socket.
func (p *pipe) drain(fd, n int) (int, error) { return spliceNow(p.out, fd, n) }

// read takes up to len(b) bytes out of the pipe.
func (p *pipe) read(b []byte) (int, error) { return readNow(p.out, b) }
