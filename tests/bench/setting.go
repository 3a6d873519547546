package main

// Ports in the namespace. No other program uses them.
const (
	proxyPort = 5000
	sinkPort  = 6000
)

// setting says what a proxy is to limit.
type setting struct {
	protocol string  // of the listener, as a policy calls it; "": tcp
	rate     float64 // bytes/s upstream; 0: unlimited
	number   int     // packets/s (udp) or messages/s (http, smpp) upstream, for a proxy that can limit them; 0: no such limit
}

func (s setting) udp() bool { return s.protocol == "udp" }

// unlimited is 160 Gbit/s in bytes/s. No machine reaches it, but the proxy still has to apply
// it to each piece.
const unlimited = 20e9

func (s setting) bytes() float64 {
	if s.rate == 0 {
		return unlimited
	}
	return s.rate
}
