package client

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shaper/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leakyClass returns the configuration of a leaky class.
func leakyClass(name, rate string) policy.Class {
	return classOf(name, policy.Leaky, rate)
}

func classOf(name string, algorithm policy.Algorithm, rate string) policy.Class {
	c := policy.DefaultClass(name)
	c.Algorithm = algorithm
	if err := c.Rate.UnmarshalText([]byte(rate)); err != nil {
		panic(err)
	}
	return c
}

// bindUDP returns a UDP socket on the loopback address.
func bindUDP(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}
