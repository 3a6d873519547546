package simulate

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// A parcel is an item with what has to be known of it when it leaves.
type parcel struct {
	item    shaper.Item
	class   *class
	bucket  *shaper.Class // that it entered: the class, or one of its
	arrived time.Time
	waited  bool
	sender  *sender
	holds   bool // the sender waits for it
	conn    policy.Conn
	next    *parcel // that is free
}

// enter has an item wait, leave, or be lost, as its class says.
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

// lose counts an item that found no room: a datagram is dropped, a connection
// refused.
func (r *run) lose(p *parcel, reason stats.Reason) {
	for up := p.class; up != nil; up = up.parent {
		if p.sender.protocol != policy.UDP {
			up.refused[reason].add(p.item.Cost.Bytes)
		} else {
			up.dropped[reason].add(p.item.Cost.Bytes)
		}
	}
	r.recycle(p)
}

// Leave implements shaper.Owner: the item leaves.
func (p *parcel) Leave(now time.Time) {
	r := p.sender.run
	p.item.Left(now)
	for up := p.class; up != nil; up = up.parent {
		up.leave(r, &p.item.Cost, now.Sub(p.arrived), p.waited)
	}
	if r.Departures != nil && r.err == nil {
		r.err = r.Departures(&Departure{At: now, Arrived: p.arrived, Class: p.class.conf.Name, Source: p.conn.Source, Bytes: p.item.Cost.Bytes})
	}
	if p.holds {
		p.sender.resume()
	}
	r.recycle(p)
}

// parcel returns one that is free.
func (r *run) parcel() *parcel {
	p := r.free
	if p == nil {
		return new(parcel)
	}
	r.free = p.next
	return p
}

func (r *run) recycle(p *parcel) {
	p.bucket.Quit(r.now)
	p.holds = false
	r.free, p.next = p, r.free
}
