package exchange

import (
	"shaper/policy"
	"shaper/shaper"
)

// asks reports whether messages to the provider get answers.
func (x *Exchange) asks() bool { return x.protocol == policy.SMPP || x.protocol == policy.HTTP }

// isHTTP reports whether messages have bodies, and none may overtake another.
func (x *Exchange) isHTTP() bool { return x.protocol == policy.HTTP }

// allowsOvertaking reports whether some messages may overtake those that wait. If so, it is
// worth reading on.
func (x *Exchange) allowsOvertaking() bool {
	return x.protocol == policy.SMPP || x.protocol == policy.ISO8583
}

// MakesWait reports whether a message waits if its class has no room for it. Then its sender
// has to wait in the end. That is so if the class says so, or if the message cannot be
// refused, like one that a provider delivers, and the class makes streams wait.
func MakesWait(class *shaper.Class, protocol policy.Protocol, refusable bool) bool {
	conf := class.Policy()
	return conf.OverflowFor(protocol) == policy.Wait || !refusable && conf.OverflowFor(policy.TCP) == policy.Wait
}
