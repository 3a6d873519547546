package simulate

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// A parcel is an item that is no message of a link: a piece of a stream, a datagram, or a new
// connection. It keeps what is needed when the item leaves.
type parcel struct {
	item    shaper.Item
	class   *class
	bucket  *shaper.Class // the class, or one of its buckets
	arrived time.Time
	waited  bool
	sender  *sender
	holds   bool // the sender waits until it leaves
	conn    policy.Conn
	next    *parcel // among those that may be used again
}

// enter offers a parcel to its class, and counts what the class says.
func (r *run) enter(p *parcel) {
	c, cost := p.class, &p.item.Cost
	for up := c; up != nil; up = up.parent {
		up.arrive(r, cost)
	}
	switch p.bucket.Enter(r.now, &p.item) {
	case shaper.Leaves:
		p.Leave(r.now)
	case shaper.Waits:
		p.waited = true
		p.holds = p.sender.Holds && p.item.Patient && c.conf.OverflowFor(p.sender.protocol) == policy.Wait
		for up := c; up != nil; up = up.parent {
			up.wait(r, cost)
		}
	case shaper.Full:
		r.lose(p, stats.QueueFull)
	case shaper.TooLong:
		r.lose(p, stats.MaxWait)
	}
	r.expect(c.tree)
}

// lose counts an item for which there was no room. A datagram is dropped; anything else is
// refused.
func (r *run) lose(p *parcel, reason stats.Reason) {
	for up := p.class; up != nil; up = up.parent {
		up.lose(reason, p.sender.protocol == policy.UDP, &p.item.Cost)
	}
	r.recycle(p)
}

// Leave implements shaper.Owner.
func (p *parcel) Leave(now time.Time) {
	r := p.sender.run
	if p.item.Verdict() == shaper.TooLong {
		p.refused()
		return
	}
	p.item.Left(now)
	for up := p.class; up != nil; up = up.parent {
		up.leave(r, &p.item.Cost, now.Sub(p.arrived), p.waited)
	}
	if r.Departures != nil && r.err == nil {
		r.err = r.Departures(&Departure{At: now, Arrived: p.arrived, Class: p.class.conf.Name, Source: p.conn.Source, Bytes: p.item.Cost.Bytes, Cost: p.item.Cost, Member: r.member})
	}
	if p.holds {
		p.sender.resume()
	}
	r.recycle(p)
}

// refused counts an item that its class has taken out of its queue.
func (p *parcel) refused() {
	for up := p.class; up != nil; up = up.parent {
		up.quit(&p.item.Cost, p.waited)
	}
	p.sender.run.lose(p, stats.MaxWait)
}

// newParcel returns a parcel to fill.
func (r *run) newParcel() *parcel {
	p := r.freeParcels
	if p == nil {
		return new(parcel)
	}
	r.freeParcels = p.next
	return p
}

func (r *run) recycle(p *parcel) {
	p.bucket.Quit(r.now)
	p.holds = false
	r.freeParcels, p.next = p, r.freeParcels
}
