package exchange

import (
	"shaper/policy"
	"shaper/shaper"
)

// A protocol is that of the messages of a connection.
type protocol policy.Protocol

// asks reports whether messages to the provider get answers.
func (p protocol) asks() bool { return p.isSMPP() || p.isHTTP() }

// isSMPP reports whether a connection ends by an unbind.
func (p protocol) isSMPP() bool { return p == protocol(policy.SMPP) }

// isHTTP reports whether messages have bodies, and none may overtake another.
func (p protocol) isHTTP() bool { return p == protocol(policy.HTTP) }

// allowsOvertaking reports whether some messages may overtake those that wait. If so, it is
// worth reading on.
func (p protocol) allowsOvertaking() bool { return p.isSMPP() || p == protocol(policy.ISO8583) }

// makesWait reports whether a message waits if its class has no room for it; see MakesWait.
func (p protocol) makesWait(class *shaper.Class, refusable bool) bool {
	return MakesWait(class, policy.Protocol(p), refusable)
}

// MakesWait reports whether a message waits if its class has no room for it, so that in the end
// its sender has to wait. The message waits if the overflow of the class for the protocol is wait.
// A message that cannot be refused, such as a message that a provider delivers, also waits if the
// overflow for streams is wait.
func MakesWait(class *shaper.Class, protocol policy.Protocol, refusable bool) bool {
	of := class.Messages()
	return of.OverflowFor(protocol) == policy.Wait || !refusable && of.OverflowFor(policy.TCP) == policy.Wait
}
