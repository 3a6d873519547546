package simulate

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// posted is a message of a link, and follows it through the exchange.
type posted struct {
	link     *link
	arrived  time.Time
	said     policy.Fields // what rules see of it
	bytes    int64
	messages int64
	size     int // of those bytes, which the exchange takes for the message; the others for its body
	returns  bool

	class  *class        // that it enters
	bucket *shaper.Class // of that
	asks   bool          // it is taken to be answered when it has left
	waited bool
	over   bool
	next   *posted // of the same inbox, or that is not used
}

// largest is the longest message that has no body: that of SMPP.
const largest = 128 << 10

// enters notes which class the message enters, and whether it is taken to be answered.
func (p *posted) enters(class *class, bucket *shaper.Class, asks bool) {
	p.class, p.bucket, p.asks = class, bucket, asks
	for up := p.class; up != nil; up = up.parent {
		up.arrive(p.link.run, &shaper.Cost{Bytes: p.bytes})
	}
}

// waits notes that the message has not left at once.
func (p *posted) waits() {
	p.waited = true
	for up := p.class; up != nil; up = up.parent {
		up.wait(p.link.run, &shaper.Cost{Bytes: p.bytes})
	}
}

// Sent implements exchange.Follower.
func (p *posted) Sent(now time.Time) {
	r := p.link.run
	if p.asks {
		p.bucket.Answered(now, true)
	}
	for up := p.class; up != nil; up = up.parent {
		up.leave(r, &shaper.Cost{Bytes: p.bytes}, now.Sub(p.arrived), p.waited)
	}
	if r.Departures != nil && r.err == nil {
		r.err = r.Departures(&Departure{At: now, Arrived: p.arrived, Class: p.class.conf.Name, Source: p.link.client.of.Source, Bytes: p.bytes})
	}
	p.done()
}

// Refused implements exchange.Follower.
func (p *posted) Refused(_ time.Time, reason stats.Reason) {
	for up := p.class; up != nil; up = up.parent {
		up.refused[reason].add(p.bytes)
		up.quit(p.bytes, p.waited)
	}
	p.done()
}

// Dropped implements exchange.Follower.
func (p *posted) Dropped(_ time.Time, reason stats.Reason) {
	for up := p.class; up != nil; up = up.parent {
		up.dropped[reason].add(p.bytes)
		up.quit(p.bytes, p.waited)
	}
	p.done()
}

// done ends what follows the message. One that settle has not seen yet is still listed.
func (p *posted) done() {
	p.over = true
	if p.waited {
		p.link.run.reuse(p)
	}
}

// posted returns one that is free.
func (r *run) posted() *posted {
	p := r.read
	if p == nil {
		return new(posted)
	}
	r.read = p.next
	return p
}

func (r *run) reuse(p *posted) { r.read, p.next = p, r.read }
