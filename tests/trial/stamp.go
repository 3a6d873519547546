package trial

import (
	"encoding/binary"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Timestamp returns the kernel's timestamp (SO_TIMESTAMPNS) in the control messages of recvmsg(2). It
// is the present time if there is none: the first bytes may have arrived before the option was set.
func Timestamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			order := binary.NativeEndian
			return time.Unix(int64(order.Uint64(m.Data)), int64(order.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

// stamped is a socket that keeps the kernel stamping.
var stamped *net.UDPConn

// HoldTimestamps returns when the kernel stamps all that arrives at the moment at which it arrives, and makes it go on with
// that until the process ends. It does so only while some socket wants it, and leaves it to a worker to begin, which comes late
// on a busy machine. Until then, what arrives gets the time at which it is read.
func HoldTimestamps() (err error) {
	if stamped, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return err
	}
	raw, err := stamped.SyscallConn()
	if err != nil {
		return err
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	control := make([]byte, 128)
	for begun := time.Now(); err == nil && time.Since(begun) < 10*time.Second; {
		sent, n := time.Now(), 0
		if _, err = stamped.WriteTo([]byte{0}, stamped.LocalAddr()); err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond) // it is read later than it arrives
		if _, n, _, _, err = stamped.ReadMsgUDP(make([]byte, 1), control); Timestamp(control[:n]).Sub(sent) < time.Millisecond {
			return err
		}
	}
	return errors.Join(err, errors.New("the kernel does not stamp what arrives"))
}
