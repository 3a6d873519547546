package exchange

import (
	"shaper/policy"
	"shaper/stats"
)

// backlog is what a lane has read and may not pass on yet. Reading goes on past it, so
// that what costs nothing and what belongs to another class need not wait for it. A
// message is in one of these lists:
//
//   - waiting, of its class: it has entered the class, which lets one go at a time, the
//     first of the list. If the receiver does not take that one, the turn is lost, and it
//     stays the first;
//   - parked, of its class: that queue has no room for it, or others are parked before it;
//   - behind: it came behind a message that must not overtake, such as unbind, or the link
//     had no room for it.
//
// Each list is in the order of arrival, and every step takes constant time.
type backlog struct {
	lane    *lane
	classes []*classBacklog // by the tag of a message
	behind  list
	ready   []uint16 // the classes that something may enter again

	n      int // messages in all lists
	bytes  int // payload of those
	memory int // that they take

	moving *move // some of them, to another class; nil: none
}

type classBacklog struct {
	waiting, parked list
	queued          int  // of those that wait, the ones in the queue of the class
	ready           bool // the class is among those that something may enter again
}

// isEmpty reports whether nothing of the class is there.
func (b *classBacklog) isEmpty() bool { return b.waiting.n+b.parked.n == 0 }

// lostTurns reports whether messages wait, and none of them has a turn to come.
func (b *classBacklog) lostTurns() bool { return b.queued == 0 && b.waiting.n > 0 }

// of returns the lists of a class.
func (q *backlog) of(tag uint16) *classBacklog {
	for int(tag) >= len(q.classes) {
		q.classes = append(q.classes, new(classBacklog))
	}
	return q.classes[tag]
}

// listOf returns the list that a place of a class belongs to.
func (q *backlog) listOf(p place, tag uint16) *list {
	switch p {
	case behind:
		return &q.behind
	case parked:
		return &q.of(tag).parked
	}
	return &q.of(tag).waiting
}

// hasRoom reports whether one more message of a length is within the bound of a
// connection.
func (q *backlog) hasRoom(n int) bool {
	return q.memory+int(policy.Holds(int64(n))) <= int(policy.ConnectionHolds)
}

// before returns how many messages are before those that stand behind.
func (q *backlog) before() int { return q.n - q.behind.n }

// wait puts a message at the end of the list of a place.
func (m *message) wait(at place) {
	m.keep()
	q := &m.lane.backlog
	q.listOf(at, m.tag).push(m)
	m.place = at
	if at == queued {
		q.of(m.tag).queued++
	}
	q.n++
	q.bytes += int(m.n)
	q.memory += m.memory()
}

// take takes a message out of the list that it is in.
func (q *backlog) take(m *message) {
	q.listOf(m.place, m.tag).remove(m)
	if m.place == queued {
		q.of(m.tag).queued--
	}
	m.place = afoot
	q.n--
	q.bytes -= int(m.n)
	q.memory -= m.memory()
}

// departed notes that a message has left its class. So there may be room for what is
// parked; or nothing is left there whose turn another one could take.
func (q *backlog) departed(tag uint16) {
	b := q.of(tag)
	if again := b.parked.n > 0 || b.lostTurns(); again && !b.ready {
		b.ready = true
		q.ready = append(q.ready, tag)
	}
}

// drop drops the messages that wait.
func (q *backlog) drop(reason stats.Reason) {
	for _, b := range q.classes {
		q.dropList(&b.waiting, reason)
		q.dropList(&b.parked, reason)
	}
	q.dropList(&q.behind, reason)
}

// dropList drops the last ones first, so that no other becomes the next to leave.
func (q *backlog) dropList(of *list, reason stats.Reason) {
	for m := of.last; m != nil; m = of.last {
		entered := m.place == queued
		q.take(m)
		if m.class != nil {
			m.class.CountDropped(reason, 1, int64(m.n))
		}
		if m.follower != nil {
			m.follower.Dropped(q.lane.x.now, reason)
		}
		if !entered || m.class.Cancel(q.lane.x.now, &m.item) {
			m.release()
		} // else it is about to be told to leave, and will not
	}
}
