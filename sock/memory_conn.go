package sock

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MemoryConn is an end in memory as a net.Conn: its operations wait, as those of a *net.TCPConn
// do. Its errors are those of the kernel, in a net.OpError.
type MemoryConn struct {
	End     *MemoryEnd
	changed sync.Cond // something has happened to the end, or a deadline has passed
	abort   bool      // Close resets

	read, write deadline // the lock of the link guards them
}

// deadline is when an operation is given up; the zero deadline is never.
type deadline struct {
	timer  *time.Timer
	passed bool
}

// NewMemoryConn returns a MemoryConn of an end, which nobody else may use.
func NewMemoryConn(e *MemoryEnd) *MemoryConn {
	c := &MemoryConn{End: e}
	c.changed.L = e.link
	e.link.Lock()
	defer e.link.Unlock()
	e.changed = c.changed.Broadcast
	return c
}

// await does something again whenever something has happened, until it returns another
// error than EAGAIN, or the deadline has passed.
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

func (c *MemoryConn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Addr: c.RemoteAddr(), Err: err}
}

// connected waits until the end is connected, or cannot be.
func (c *MemoryConn) connected() error {
	return c.await("connect", &c.write, func() error {
		switch e := c.End; e.state {
		case linkConnecting:
			return unix.EAGAIN
		case linkDown:
			return e.takeErr()
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
			return unix.EINTR // go on
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

// CloseWrite tells the other end that nothing more comes.
func (c *MemoryConn) CloseWrite() error {
	if err := c.End.CloseWrite(); err != nil {
		return c.failed("close", err)
	}
	return nil
}

// SetLinger lets Close reset the connection if seconds is 0, as that of a *net.TCPConn does.
func (c *MemoryConn) SetLinger(seconds int) error {
	c.abort = seconds == 0
	return nil
}

// SetReadBuffer sets how much may arrive before it is read.
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
		if d.timer == timer { // else another one has been set meanwhile
			d.passed = true
			c.changed.Broadcast()
		}
	})
	d.timer = timer
	return nil
}
