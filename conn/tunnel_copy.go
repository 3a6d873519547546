package conn

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"shaper/buffer"
	"shaper/sock"
)

// How much inward and outward copy at once.
const (
	smallBuffer = 1 << 10  // for the next read while the peer is quiet
	recordSize  = 16 << 10 // the most that a TLS record holds (RFC 8446, 5.1)
)

// inward copies what the peer sends to the session. It returns true after a close_notify, or if none
// came in time after the session had ended, and false if TLS was cut. While the peer is quiet, it
// holds only a small buffer.
func (tn *tunnel) inward() bool {
	small := make([]byte, smallBuffer)
	for plenty := false; ; {
		to := small
		var large *buffer.Buffer
		if plenty {
			large = buffer.Get(recordSize)
			to = large.Bytes
		}
		n, err := tn.tls.Read(to)
		if plenty = n == len(to); n > 0 {
			if _, err := tn.inside.Write(to[:n]); err != nil {
				return tn.fail(err) // the session has ended
			}
		}
		if large != nil {
			large.Put()
		}
		switch {
		case err == io.EOF && tn.writeErr.Load() != nil:
			return false // outward has the error: the kernel reports a reset only once
		case err == io.EOF && !tn.wire.ended:
			tn.inside.CloseWrite()
			return true
		case err == io.EOF:
			return tn.fail(io.ErrUnexpectedEOF)
		case errors.Is(err, os.ErrDeadlineExceeded) && !tn.isAborted():
			return true // see linger
		case err != nil:
			return tn.fail(err)
		}
	}
}

// outward copies what the session writes to the peer. It returns true after it has sent a
// close_notify, and false if TLS was cut.
func (tn *tunnel) outward() bool {
	raw, err := tn.inside.SyscallConn()
	if err != nil {
		return tn.fail(err)
	}
	for {
		buf, n, err := tn.readPair(raw)
		if n > 0 {
			tn.linger()
			_, err = tn.tls.Write(buf.Bytes[:n])
		}
		tn.busy.Store(false)
		if buf != nil {
			buf.Put()
		}
		switch {
		case err == io.EOF && tn.isAborted():
			return false
		case err == io.EOF:
			tn.linger()
			if err := tn.tls.CloseWrite(); err != nil {
				return tn.unwritten(err)
			}
			tn.mu.Lock()
			tn.told = true
			tn.mu.Unlock()
			tn.linger()
			return true
		case err != nil:
			return tn.unwritten(err)
		}
	}
}

// readPair waits until the session has written bytes, and reads them. It takes the buffer only
// then. It returns io.EOF at the end of the pair, also if the session has closed its end before it had read
// all that was there: the kernel reports that as a reset.
func (tn *tunnel) readPair(raw syscall.RawConn) (buf *buffer.Buffer, n int, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		tn.busy.Store(true)
		buf = buffer.Get(recordSize)
		from := sock.Descriptor(fd)
		for n, err = from.Read(buf.Bytes); err == unix.EINTR; n, err = from.Read(buf.Bytes) {
		}
		if err != nil {
			buf.Put()
			buf = nil
			tn.busy.Store(false)
		}
		return err != unix.EAGAIN
	})
	switch {
	case waited != nil:
		return nil, 0, waited
	case err == nil && n == 0, err == unix.ECONNRESET:
		err = io.EOF
	case err != nil:
		n = 0
	}
	return buf, n, err
}

// unwritten notes why outward cannot write, and returns false. A peer that closes with bytes
// unread resets the connection. What it has sent before, such as an answer or an alert, is
// still to be read. So TLS fails only when inward has ended, too.
func (tn *tunnel) unwritten(err error) bool {
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		return tn.fail(err)
	}
	tn.writeErr.Store(&err)
	tn.broke()
	return false
}
