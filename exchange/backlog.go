package exchange

import "shaper/stats"

// backlog holds the messages that a lane has read and may not pass on yet. Reading goes on
// past them, so that messages that cost nothing or belong to another class need not wait. Each
// message is in one of these lists:
//
//   - waiting, one for each class: it has entered the class, which lets the first of the list
//     go, one at a time. If the receiver cannot take it then, the turn is lost, and the message
//     stays the first;
//   - parked, one for each class: the queue of the class has no room for it, or others are
//     parked before it;
//   - behind: it must not overtake the messages before it, such as an unbind; or one before it is
//     in this list; or the link has no room for it; or the connection retires.
//
// Each list is in the order of arrival. Every step takes constant time.
type backlog struct {
	lane    *lane
	classes []*classBacklog // by the tag of a message
	behind  list
	leaving *message // the message of which the bytes are written just now, which is in no list; nil: none
	ready   []uint16 // tags of the classes to which resume may offer a message

	n      int // messages in all these lists
	late   int // those of them that never leave: the last ones of the list behind; see retirement
	bytes  int // their payload
	memory memory

	moving *move // the move of a reload that is not done; nil: none

	// What was sent and may have to be sent again; see keep.
	kept    int      // messages in the lists sent
	growing *message // one of HTTP whose body still passes; nil: none
	numbers uint32   // how many messages were ever kept; see message.number
}

// A classBacklog is what the lane has of one class, or of one bucket.
type classBacklog struct {
	waiting, parked list
	queued          int  // messages of the list waiting that are in the queue of the class
	ready           bool // the tag is in backlog.ready

	sent list // messages without an answer that may have to be sent again
	most int  // how many of these there may be; 0: the class sends none again
}

// isFull reports whether no message may be sent before another one is answered.
func (b *classBacklog) isFull() bool { return b.most > 0 && b.sent.n >= b.most }

// holds reports whether a message that comes now must not enter the class yet: it would
// overtake others, or might come to its turn before the answers that it has to wait for. Of a
// class that sends messages again, one message of the lane at a time is in the queue.
func (b *classBacklog) holds() bool {
	return b.waiting.n > 0 && (b.queued == 0 || b.most > 0) || b.isFull()
}

// countsItself reports whether messages wait that the queue of the class does not know of: they have lost their
// turns, or one message at a time is in the queue.
func (b *classBacklog) countsItself() bool { return b.waiting.n > b.queued || b.most > 0 && b.holds() }

// isEmpty reports whether no message of the class is here.
func (b *classBacklog) isEmpty() bool { return b.waiting.n+b.parked.n == 0 }

// lostTurns reports whether messages wait and none of them is in the queue of the class,
// although one may be.
func (b *classBacklog) lostTurns() bool { return b.queued == 0 && b.waiting.n > 0 && !b.isFull() }

// of returns the lists of the class with a tag.
func (q *backlog) of(tag uint16) *classBacklog {
	for int(tag) >= len(q.classes) {
		q.classes = append(q.classes, new(classBacklog))
	}
	return q.classes[tag]
}

// listOf returns the list for a stage and a class.
func (q *backlog) listOf(s stage, tag uint16) *list {
	switch s {
	case behind:
		return &q.behind
	case parked:
		return &q.of(tag).parked
	case unanswered:
		return &q.of(tag).sent
	}
	return &q.of(tag).waiting
}

// pending returns how many messages have not left, or may have to leave again.
func (q *backlog) pending() int { return q.n + q.kept }

// before returns how many of them come before those of the list behind.
func (q *backlog) before() int { return q.pending() - q.behind.n }

// add puts a message at the end of a list.
func (q *backlog) add(m *message, at stage) { q.addBefore(m, at, nil) }

// addBefore puts a message before another one of a list, or at its end if that is nil.
func (q *backlog) addBefore(m *message, at stage, before *message) {
	m.payload.own()
	q.listOf(at, m.tag).insert(m, before)
	m.stage = at
	if at == queued {
		q.of(m.tag).queued++
	}
	q.n++
	q.countLate(m, 1)
	q.bytes += int(m.payload.n)
	q.memory.add(m.payload.memory())
}

// take takes a message out of its list.
func (q *backlog) take(m *message) {
	q.listOf(m.stage, m.tag).remove(m)
	if m.stage == queued {
		q.of(m.tag).queued--
	}
	m.stage = unlisted
	q.n--
	q.countLate(m, -1)
	q.bytes -= int(m.payload.n)
	q.memory.remove(m.payload.memory())
}

func (q *backlog) countLate(m *message, n int) {
	if m.late {
		q.late += n
	}
}

// departed notes that a message has left its class. Now there may be room for a parked
// message. Or no message of the lane is in the queue, and a message that has lost its turn
// has to enter again.
func (q *backlog) departed(tag uint16) {
	b := q.of(tag)
	if again := b.parked.n > 0 || b.lostTurns(); again && !b.ready {
		b.ready = true
		q.ready = append(q.ready, tag)
	}
}

// drop drops all messages, and the one whose write has ended the exchange.
func (q *backlog) drop(reason stats.Reason) {
	if m := q.leaving; m != nil && m.payload.buf != nil { // otherwise it counts as what the input begins with
		m.lose(reason)
	}
	q.leaving = nil
	for _, b := range q.classes {
		q.dropList(&b.waiting, reason)
		q.dropList(&b.parked, reason)
	}
	q.dropList(&q.behind, reason)
}

// dropList drops the messages of a list. It begins with the last one, so that no other becomes
// the next to leave.
func (q *backlog) dropList(of *list, reason stats.Reason) {
	for m := of.last; m != nil; m = of.last {
		entered := m.stage == queued
		q.take(m)
		m.lose(reason)
		if m.follower != nil {
			m.follower.Dropped(q.lane.x.now, reason)
		}
		if !entered || m.drop() {
			m.release()
		}
	}
}

// lose counts a message that is dropped. If its body is still to come, it is the message that was found.
func (m *message) lose(reason stats.Reason) {
	m.lane.found.lost = true
	if m.class != nil {
		m.class.Tally().Dropped(reason, 1, int64(m.payload.n))
	}
}

// Waiting returns how many messages wait.
func (x *Exchange) Waiting() int { return x.up.backlog.n + x.down.backlog.n }
