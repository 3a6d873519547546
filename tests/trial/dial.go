package trial

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// DialTCP connects from an address, "" for any, to another one. On a busy machine a peer
// that resets a connection at once may do so before connect(2) has returned; that one is
// returned as well, and tells of its reset whoever reads or writes.
func DialTCP(from, to string, timeout time.Duration) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: timeout, KeepAlive: -1}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial("tcp", to)
	if errors.Is(err, syscall.ECONNRESET) {
		return wasReset()
	}
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// wasReset returns a connection whose peer has reset it.
func wasReset() (*net.TCPConn, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		return nil, err
	}
	peer, err := l.AcceptTCP()
	if err != nil {
		c.Close()
		return nil, err
	}
	peer.SetLinger(0) // else it would end cleanly
	return c, peer.Close()
}
