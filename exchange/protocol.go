package exchange

import (
	"shaper/policy"
	"shaper/shaper"
)

// asks reports whether a message to the provider gets an answer.
func (x *Exchange) asks() bool { return x.protocol == policy.SMPP || x.protocol == policy.HTTP }

// isHTTP reports whether messages have bodies, and nothing may overtake one that waits.
func (x *Exchange) isHTTP() bool { return x.protocol == policy.HTTP }

// readsOn reports whether anything may overtake messages that wait, so that it is worth
// reading on.
func (x *Exchange) readsOn() bool { return x.protocol == policy.SMPP || x.protocol == policy.ISO8583 }

// MakesWait reports whether a message that its class has no room for waits, and with it
// in the end whoever has sent it: if the class says so; and if the message cannot be
// refused, as what a provider delivers.
func MakesWait(class *shaper.Class, protocol policy.Protocol, refusable bool) bool {
	conf := class.Policy()
	return conf.OverflowFor(protocol) == policy.Wait || !refusable && conf.OverflowFor(policy.TCP) == policy.Wait
}
