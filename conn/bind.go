package conn

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
)

// A session leaves from an address of its listener's bind. If its class has a bucket for each of
// them, the session takes the one whose bucket is free the soonest; otherwise sessions take them
// in turn. A session keeps its address, unless that cannot reach an upstream that it fails over
// to, has no free port, or is no longer an address of this machine.

// ours returns the addresses of bind from which an address can be reached, beginning with the one
// whose turn it is. It omits the addresses that this machine has lost, unless the machine has
// lost all of them.
func (sv *service) ours(now time.Time, l *policy.Listener, to netip.Addr) []netip.Addr {
	reaching := slices.DeleteFunc(slices.Clone(l.Bind), func(from netip.Addr) bool { return !policy.Reaches(from, to) })
	all := sv.lost.present(now, reaching)
	if len(all) == 0 {
		return nil
	}
	turn := &sv.turns[0]
	if to.Is4() {
		turn = &sv.turns[1]
	}
	first := int(turn.Add(1)-1) % len(all)
	return append(all[first:len(all):len(all)], all[:first]...)
}

// choose returns the address of bind that a session in some classes leaves from: its present
// address if that is still good, or else a new one. If it is invalid, the kernel chooses.
func (sv *service) choose(now time.Time, l *policy.Listener, who policy.Conn, classes ...*shaper.Class) netip.Addr {
	to := who.Destination.Addr()
	if len(l.Bind) == 0 || who.Bind.IsValid() && policy.Reaches(who.Bind, to) {
		return who.Bind
	}
	ours := sv.ours(now, l, to)
	for _, class := range classes {
		if buckets := class.Buckets(); buckets.Per(policy.ByBind) {
			return buckets.Soonest(now, who, slices.Values(ours))
		}
	}
	if len(ours) == 0 {
		return netip.Addr{}
	}
	return ours[0]
}

// ourSide returns our side of a connection to an upstream: marked, and with the address of the client
// if the listener keeps that, or else with from, an address of its bind. A listener has one or the other.
func ourSide(l *policy.Listener, client netip.AddrPort, from netip.Addr, mark uint32) sock.Local {
	if l.KeepSource {
		return sock.Local{Addr: client.Addr(), Foreign: true, Mark: mark}
	}
	return sock.Local{Addr: from, Mark: mark}
}

// lostFor is how long sessions omit an address of bind that this machine did not have. After that, a
// session tries the address again.
const lostFor = 5 * time.Second

// lostAddrs are the addresses of bind that this machine did not have lately. The zero lostAddrs has none.
type lostAddrs struct {
	mu    sync.Mutex
	until map[netip.Addr]time.Time // when each is tried again
}

// note adds the address that the error of an attempt names as lost. It reports whether there is one.
func (l *lostAddrs) note(now time.Time, err error) bool {
	var lost *lostError
	if !errors.As(err, &lost) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.until, func(_ netip.Addr, end time.Time) bool { return !now.Before(end) })
	if l.until == nil {
		l.until = map[netip.Addr]time.Time{}
	}
	l.until[lost.from] = now.Add(lostFor)
	return true
}

// present returns those of some addresses that are not lost; all of them if all are.
func (l *lostAddrs) present(now time.Time, all []netip.Addr) []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	isLost := func(a netip.Addr) bool { return now.Before(l.until[a]) }
	if slices.ContainsFunc(all, func(a netip.Addr) bool { return !isLost(a) }) {
		all = slices.DeleteFunc(all, isLost)
	}
	return all
}

// origin is the address of bind that a session leaves from. Its methods take the session's bind,
// which never changes. The lock of a TCP session guards that of its course.
type origin struct {
	number uint8 // in bind, from 1; 0: none is chosen yet, or the kernel chooses
	unfit  uint8 // how many addresses of bind could not be used for the present address of the upstream
}

// of returns the address; an invalid one if the kernel chooses, or none is chosen yet.
func (o *origin) of(bind []netip.Addr) netip.Addr {
	if o.number == 0 {
		return netip.Addr{}
	}
	return bind[o.number-1]
}

// set makes the session leave from an address of bind; from any if it is invalid.
func (o *origin) set(bind []netip.Addr, from netip.Addr) {
	o.number = uint8(slices.Index(bind, from) + 1)
}

// next makes the session leave from the next address of bind that reaches an upstream. It returns
// false if all of them have been tried.
func (o *origin) next(bind []netip.Addr, to netip.Addr) bool {
	for int(o.unfit)+1 < len(bind) {
		o.unfit++
		o.number = o.number%uint8(len(bind)) + 1
		if policy.Reaches(o.of(bind), to) {
			return true
		}
	}
	return false
}
