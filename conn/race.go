package conn

import (
	"time"

	"shaper/sock"
	"shaper/upstream"
)

// If an address does not answer within raceDelay, the session tries the next one of the same
// host beside it, and takes the first that answers ("happy eyeballs", RFC 8305 section 5).
const raceDelay = 250 * time.Millisecond

// race is the attempts of a session beside its present one: those at earlier addresses of the
// same host that have not answered yet. The lock of the session guards it.
type race struct{ first *rival } // the one that began last; nil: there is none

// rival is an attempt in a race. Its side has the end, and the poller watches it.
type rival struct {
	side
	target  *upstream.Target
	overdue time.Time // see dialClock
	origin  uint8     // the number in bind of the address of ours that it leaves from; see origin
	next    *rival    // nil: it is the last one
}

// raceNext tries the next address beside the present one if that does not answer soon. The
// session's lock is held.
func (d *dialling) raceNext() {
	d.clock.after(raceDelay, d.session, func() {
		d.race.setAside(d.session)
		d.tryAddress()
	})
}

// endRace ends the attempts beside the present one. Their addresses come last.
func (d *dialling) endRace() { d.search.addrs = append(d.search.addrs, d.race.end()...) }

// isOn reports whether an attempt goes on beside the present one.
func (r *race) isOn() bool { return r.first != nil }

// setAside makes the present attempt of a session a rival of the next one. If the poller cannot
// watch it, it has failed.
func (r *race) setAside(t *tcpSession) {
	one := &rival{side: side{session: t, end: t.upstream.release()}, target: t.course.target(), overdue: t.dialling.clock.overdue, origin: t.course.origin.number, next: r.first}
	r.first = one
	if err := one.watch(); err != nil {
		one.failed(err)
	}
}

// rivalOn returns the rival that a side belongs to; nil if the side is that of the present attempt.
func (r *race) rivalOn(s *side) *rival {
	one := r.first
	for one != nil && s != &one.side {
		one = one.next
	}
	return one
}

// lost gives up all rivals: none has answered in time.
func (r *race) lost(err error) {
	for r.isOn() {
		r.first.failed(err)
	}
}

// giveUp gives up the rivals that take too long: the session ends.
func (r *race) giveUp(now time.Time) {
	for one := r.first; one != nil; one = one.next {
		if now.After(one.overdue) {
			one.failed(upstream.ErrTimeout)
		}
	}
}

// end ends all rivals. They have not failed, so it returns their addresses, to be tried later.
func (r *race) end() (open []upstream.Address) {
	for ; r.isOn(); r.first = r.first.next {
		r.first.close()
		open = append(open, r.first.target.Address())
	}
	return open
}

// beaten ends all rivals, since another attempt has answered before them, as end does. Each has had raceDelay at least:
// its address may be far away, or silent.
func (r *race) beaten() (open []upstream.Address) {
	for one := r.first; one != nil; one = one.next {
		one.target.Doubted()
	}
	return r.end()
}

func (r *race) remove(one *rival) {
	at := &r.first
	for *at != one {
		at = &(*at).next
	}
	*at = one.next
}

// answered goes on after the attempt of a rival has ended. If it has connected, it takes the place
// of the present attempt. If it has failed, and no attempt is under way beside it, the next
// address has its turn.
func (r *rival) answered() {
	t, d := r.session, r.session.dialling
	if err := connected(&r.side, r.target.Address().AddrPort); err != nil {
		if r.failed(err); !t.upstream.isWatched() {
			d.clock.stop()
			d.tryAddress()
		}
		return
	}
	if t.upstream.isWatched() { // the present attempt: its address comes next if this one proves useless
		d.search.addrs = append([]upstream.Address{t.course.target().Address()}, d.search.addrs...)
		t.upstream.close()
	}
	d.clock.stop()
	r.win()
}

// win makes the attempt of a rival the present one. The session has no present one now.
func (r *rival) win() {
	t, d := r.session, r.session.dialling
	d.race.remove(r)
	t.course.take(r.target.Address())
	t.upstream.end, t.course.origin.number = r.release(), r.origin
	t.upstream.end.Set(sock.Mark, int(t.server.marks.mark(t.up.flow.Class()))) // a reload may have changed it meanwhile
	if err := t.upstream.watch(); err != nil {
		d.attemptFailed(err)
		return
	}
	t.upstream.Writable = true
	d.dialled()
}

// failed takes a rival out of the race, and notes why its address cannot be reached.
func (r *rival) failed(err error) {
	d := r.session.dialling
	d.race.remove(r)
	r.close()
	d.search.missed(r.session, r.target, err)
}
