package simulate

import (
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// A message is a message of a link. It follows its own way through the exchange.
type message struct {
	link     *link
	arrived  time.Time
	fields   policy.Fields // what rules see of it
	bytes    int64
	messages int64
	says     int64 // what the message says that it costs; 0: nothing
	used     int64 // what its answer says that it costs; 0: nothing
	size     int   // those that the exchange takes for the message; the rest is its body
	returns  bool

	class  *class        // that it enters; see enters
	bucket *shaper.Class // the class, or one of its buckets
	cost   shaper.Cost   // there, as far as it is known; the bytes are all of it
	asks   bool          // it counts as answered when it has left
	waited bool
	over   bool
	next   *message // in the inbox, or among those that may be used again
}

// largest is the longest message without a body, in bytes: a PDU of SMPP.
const largest = 128 << 10

// enters notes the class that the message enters, and whether it gets an answer.
func (m *message) enters(class *class, bucket *shaper.Class, asks bool) {
	m.class, m.bucket, m.asks = class, bucket, asks
	for up := m.class; up != nil; up = up.parent {
		up.arrive(m.link.run, &m.cost)
	}
}

// waits notes that the message did not leave at once.
func (m *message) waits() {
	m.waited = true
	for up := m.class; up != nil; up = up.parent {
		up.wait(m.link.run, &m.cost)
	}
}

// Sent implements exchange.Follower.
func (m *message) Sent(now time.Time) {
	r := m.link.run
	if m.asks {
		m.bucket.Provider().Answered(now, true)
		m.settle(now)
	}
	for up := m.class; up != nil; up = up.parent {
		up.leave(r, &m.cost, now.Sub(m.arrived), m.waited)
	}
	if r.Departures != nil && r.err == nil {
		r.err = r.Departures(&Departure{At: now, Arrived: m.arrived, Class: m.class.conf.Name, Source: m.link.client.of.Source, Bytes: m.bytes, Cost: m.cost, Member: r.member})
	}
	m.done()
}

// settle settles the message as the answer says, which comes at once.
func (m *message) settle(now time.Time) {
	var more shaper.Cost
	of := m.bucket.Messages()
	if m.used > 0 && of.SettledBy(unit.Messages) != nil {
		more.Messages = of.More(unit.Messages, m.cost.Messages, m.used)
	}
	if m.used > 0 && of.SettledBy(unit.Tokens) != nil {
		more.Tokens = int32(of.More(unit.Tokens, int64(m.cost.Tokens), m.used))
	}
	if more == (shaper.Cost{}) {
		return
	}
	m.bucket.Provider().Settle(now, now, more)
	m.cost.Messages, m.cost.Tokens = m.cost.Messages+more.Messages, m.cost.Tokens+more.Tokens
	for up := m.class; up != nil; up = up.parent {
		up.settle(&more, m.waited)
	}
}

// Refused implements exchange.Follower.
func (m *message) Refused(_ time.Time, reason stats.Reason) { m.lose(reason, false) }

// Dropped implements exchange.Follower.
func (m *message) Dropped(_ time.Time, reason stats.Reason) { m.lose(reason, true) }

// lose counts a message that was refused or dropped, in its class and in those above it, and ends it.
func (m *message) lose(reason stats.Reason, dropped bool) {
	for up := m.class; up != nil; up = up.parent {
		up.lose(reason, dropped, &m.cost)
		up.quit(&m.cost, m.waited)
	}
	m.done()
}

// done ends the message. If drive has not looked at it yet, drive releases it.
func (m *message) done() {
	m.over = true
	if m.waited {
		m.link.run.reuse(m)
	}
}

// newMessage returns a message to fill.
func (r *run) newMessage() *message {
	m := r.freeMessages
	if m == nil {
		return new(message)
	}
	r.freeMessages = m.next
	return m
}

func (r *run) reuse(m *message) { r.freeMessages, m.next = m, r.freeMessages }
