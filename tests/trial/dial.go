package trial

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// DialTCP connects from the IP address from ("" means any) to the address to.
//
// A peer that resets connections at once may do so before connect(2) returns. Then DialTCP
// returns a connection whose reads and writes fail with ECONNRESET, as they do if the reset
// comes later.
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

// wasReset returns a connection that its peer has reset.
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
	peer.SetLinger(0) // Close sends a RST
	return c, peer.Close()
}
