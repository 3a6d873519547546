package conn

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// A session leaves from an address of its listener's bind. If its class has a bucket for each of
// them, the session takes the one whose bucket is free the soonest; otherwise sessions take them
// in turn. A session keeps its address, unless that cannot reach an upstream that it fails over
// to, has no port left, or is no longer an address of this machine.

// ours iterates over the addresses of bind from which an address can be reached, beginning with
// the one whose turn it is.
func (sv *service) ours(l *policy.Listener, to netip.Addr) iter.Seq[netip.Addr] {
	first := int(sv.turn.Add(1) - 1)
	return func(yield func(netip.Addr) bool) {
		for i := range l.Bind {
			from := l.Bind[(first+i)%len(l.Bind)]
			if policy.Reaches(from, to) && !yield(from) {
				return
			}
		}
	}
}

// choose returns the address of bind that a session in some classes leaves from: the one that it
// has, if that is still good, or a new one; invalid: the kernel chooses.
func (sv *service) choose(now time.Time, l *policy.Listener, who policy.Conn, classes ...*shaper.Class) netip.Addr {
	to := who.Destination.Addr()
	if len(l.Bind) == 0 || who.Bind.IsValid() && policy.Reaches(who.Bind, to) {
		return who.Bind
	}
	for _, class := range classes {
		if buckets := class.Buckets(); buckets.Per(policy.ByBind) {
			return buckets.Soonest(now, who, sv.ours(l, to))
		}
	}
	for from := range sv.ours(l, to) {
		return from
	}
	return netip.Addr{}
}

// origin is the address of bind that a session leaves from. Its methods take the session's bind,
// which never changes. The lock of the session guards it.
type origin struct {
	place uint8 // in bind, from 1; 0: none is chosen yet, or the kernel chooses
	unfit uint8 // how many addresses of bind could not be used for the present address of the upstream
}

// of returns the address; an invalid one if the kernel chooses, or none is chosen yet.
func (o *origin) of(bind []netip.Addr) netip.Addr {
	if o.place == 0 {
		return netip.Addr{}
	}
	return bind[o.place-1]
}

// set makes the session leave from an address of bind; from any if it is invalid.
func (o *origin) set(bind []netip.Addr, from netip.Addr) {
	o.place = uint8(slices.Index(bind, from) + 1)
}

// next makes the session leave from the next address of bind that reaches an upstream. It returns
// false if all of them have been tried.
func (o *origin) next(bind []netip.Addr, to netip.Addr) bool {
	for int(o.unfit)+1 < len(bind) {
		o.unfit++
		o.place = o.place%uint8(len(bind)) + 1
		if policy.Reaches(o.of(bind), to) {
			return true
		}
	}
	return false
}
