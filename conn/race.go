package conn

import (
	"time"

	"shaper/upstream"
)

// If an address does not answer within raceDelay, the session tries the next one of the same
// host beside it, and takes the first that answers ("happy eyeballs", RFC 8305 section 5).
const raceDelay = 250 * time.Millisecond

// rival is an attempt that goes on beside the present one. The lock of the session guards it.
type rival struct {
	side
	target *upstream.Target
	bind   uint8  // of the session when it began
	next   *rival // nil: it is the last one
}

// mayRace reports whether the next address may be tried beside the one before it. If rules ask
// for the destination, it may not: each address may have classes of its own.
func (d *dialling) mayRace(to upstream.Address) bool {
	return len(d.addrs) > 0 && to.IsValid() && to.Host == d.addrs[0].Host && !d.session.located
}

// awaitTurn tries the next address if the present one does not answer soon.
func (d *dialling) awaitTurn() {
	d.early = 0
	d.ifStillTrying(raceDelay, func() {
		d.setAside()
		d.tryAddress()
	})
}

// setAside makes the present attempt a rival of the next one.
func (d *dialling) setAside() {
	t := d.session
	r := &rival{side: side{session: t, end: t.upstream.release()}, target: d.walk.Target(), bind: t.bind, next: d.rivals}
	if err := r.watch(); err != nil {
		r.close()
		return
	}
	d.rivals = r
}

// awaitRivals waits for the rivals, since there is no other address to try.
func (d *dialling) awaitRivals() {
	d.timer = time.AfterFunc(time.Until(d.giveUpAt), func() {
		d.session.do(func(t *tcpSession) {
			if t.stage == connecting && d.rivals != nil && t.upstream.key == 0 {
				d.rivalsFailed()
				d.tryAddress()
			}
		})
	})
}

// rivalsFailed gives up all rivals: none has answered in time.
func (d *dialling) rivalsFailed() {
	for d.rivals != nil {
		d.rivalFailed(d.rivals, upstream.ErrTimeout)
	}
}

// rivalOn returns the rival on a side; nil if it is the present attempt.
func (d *dialling) rivalOn(s *side) *rival {
	r := d.rivals
	for r != nil && s != &r.side {
		r = r.next
	}
	return r
}

// rivalAnswered takes a rival that has connected instead of the present attempt, whose address
// is to be tried again if that does not lead to an upstream.
func (d *dialling) rivalAnswered(r *rival) {
	t := d.session
	if err := connected(&r.side, r.target.Address().AddrPort); err != nil {
		if d.rivalFailed(r, err); t.upstream.key == 0 { // nothing else is tried
			d.timer.Stop()
			d.tryAddress()
		}
		return
	}
	if t.upstream.key != 0 {
		d.addrs = append([]upstream.Address{d.walk.Target().Address()}, d.addrs...)
		t.upstream.close()
	}
	d.timer.Stop()
	d.remove(r)
	d.walk.Take(r.target.Address())
	t.destination = r.target.Address().AddrPort
	t.upstream.end, t.bind = r.release(), r.bind
	d.early = 0
	if err := t.upstream.watch(); err != nil {
		d.attemptFailed(err)
		return
	}
	t.upstream.Writable = true
	d.dialled()
}

// rivalFailed notes why a rival cannot be reached.
func (d *dialling) rivalFailed(r *rival, err error) {
	d.remove(r)
	r.close()
	r.target.Failed(time.Now(), err)
	d.failed(d.walk.Upstream(), destinationName(r.target.Address().AddrPort), err)
}

func (d *dialling) remove(r *rival) {
	at := &d.rivals
	for *at != r {
		at = &(*at).next
	}
	*at = r.next
}

// dropRivals ends the rivals. They have not failed, so their addresses are still to be tried.
func (d *dialling) dropRivals() {
	for ; d.rivals != nil; d.rivals = d.rivals.next {
		d.rivals.close()
		d.addrs = append(d.addrs, d.rivals.target.Address())
	}
}
