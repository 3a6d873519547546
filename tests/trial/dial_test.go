package trial

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

func TestDialTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := DialTCP("127.0.0.2", l.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if from := c.LocalAddr().(*net.TCPAddr).IP.String(); from != "127.0.0.2" {
		t.Errorf("the connection comes from %s, want 127.0.0.2", from)
	}
	l.Close()
	if _, err := DialTCP("", l.Addr().String(), time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling a closed port: %v, want ECONNREFUSED", err)
	}
}

func TestWasReset(t *testing.T) {
	c, err := wasReset()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read returns %v, want ECONNRESET", err)
	}
}
