package sock

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MemoryConn is an end in memory as a net.Conn. Its operations wait, like those of a
// *net.TCPConn. Its errors are those of the kernel, in a net.OpError.
type MemoryConn struct {
	End     *MemoryEnd
	changed sync.Cond // on the lock of the link: something has happened, or a deadline has passed
	abort   bool      // Close resets; set by SetLinger, before others use the conn

	// The lock of the link guards the fields below.
	read, write deadline
}

// deadline is when operations fail. The zero deadline is never.
type deadline struct {
	timer  *time.Timer
	passed bool
}

// NewMemoryConn returns a MemoryConn for an end. Nobody else may use the end then.
func NewMemoryConn(e *MemoryEnd) *MemoryConn {
	c := &MemoryConn{End: e}
	c.changed.L = e.link
	e.link.Lock()
	defer e.link.Unlock()
	e.changed = c.changed.Broadcast
	return c
}

// await calls do with the lock of the link held, and again whenever something has happened,
// until do returns no EAGAIN or EINTR, or the deadline has passed.
func (c *MemoryConn) await(op string, d *deadline, do func() error) error {
	c.End.link.Lock()
	defer c.End.link.Unlock()
	for {
		err := do()
		switch {
		case err == nil:
			return nil
		case err == unix.EBADF:
			return c.failed(op, net.ErrClosed)
		case err == unix.EINTR:
		case err != unix.EAGAIN:
			return c.failed(op, os.NewSyscallError(op, err))
		case d.passed:
			return c.failed(op, os.ErrDeadlineExceeded)
		default:
			c.changed.Wait()
		}
	}
}

// failed returns the error of an operation.
func (c *MemoryConn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Addr: c.RemoteAddr(), Err: err}
}

// connected waits until the end is connected, or the attempt has failed.
func (c *MemoryConn) connected() error {
	return c.await("connect", &c.write, func() error {
		switch e := c.End; e.state {
		case linkConnecting:
			return unix.EAGAIN
		case linkDown:
			return e.failure.take()
		}
		return nil
	})
}

// Read implements net.Conn.
func (c *MemoryConn) Read(p []byte) (n int, err error) {
	err = c.await("read", &c.read, func() (err error) {
		n, err = c.End.read(p)
		return err
	})
	if err == nil && n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (c *MemoryConn) Write(p []byte) (written int, err error) {
	err = c.await("write", &c.write, func() error {
		n, err := c.End.write(p[written:])
		if written += n; err == nil && written < len(p) {
			return unix.EINTR // write the rest
		}
		return err
	})
	return written, err
}

// Close implements net.Conn.
func (c *MemoryConn) Close() error {
	c.SetDeadline(time.Time{}) // stops the timers
	if c.abort {
		c.End.Reset()
	} else {
		c.End.Close()
	}
	return nil
}

// CloseWrite sends the end of the stream, as that of a *net.TCPConn does.
func (c *MemoryConn) CloseWrite() error {
	if err := c.End.CloseWrite(); err != nil {
		return c.failed("close", err)
	}
	return nil
}

// SetLinger makes Close reset the connection if seconds is 0, as that of a *net.TCPConn does.
func (c *MemoryConn) SetLinger(seconds int) error {
	c.abort = seconds == 0
	return nil
}

// SetReadBuffer sets how many bytes may arrive before they are read.
func (c *MemoryConn) SetReadBuffer(bytes int) error {
	c.End.Set(ReceiveBuffer, bytes)
	return nil
}

// LocalAddr implements net.Conn.
func (c *MemoryConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.End.local) }

// RemoteAddr implements net.Conn.
func (c *MemoryConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.End.peer.local) }

// SetDeadline implements net.Conn.
func (c *MemoryConn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *MemoryConn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.read, t) }

// SetWriteDeadline implements net.Conn.
func (c *MemoryConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.write, t) }

// setDeadline sets a deadline, and stops the timer of the one before.
func (c *MemoryConn) setDeadline(d *deadline, t time.Time) error {
	c.End.link.Lock()
	defer c.End.link.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	*d = deadline{}
	if t.IsZero() {
		return nil
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(t), func() {
		c.End.link.Lock()
		defer c.End.link.Unlock()
		if d.timer == timer { // no other deadline was set meanwhile
			d.passed = true
			c.changed.Broadcast()
		}
	})
	d.timer = timer
	return nil
}
