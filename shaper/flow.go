package shaper

import "time"

// Flow is one direction of a session, as its class sees it. It has at most one
// item waiting, a ticket for what it has read and not yet written; so the FIFO
// serves flows in turn, and a peer that stops reading holds up only itself.
//
// Its owner calls the methods of a Flow one at a time. The pacer tells the owner
// when a ticket that waited may leave, and may be about to while a method is
// called; the owner is told all the same.
type Flow struct {
	class  *Class // nil: nothing is limited
	ticket Item

	mirrored *Source // of copies of all items, in a trial; nil: there is none
}

// Init puts a flow into a class, where owner waits; a nil class limits nothing.
func (f *Flow) Init(class *Class, owner Owner) {
	f.class = class
	f.ticket = Item{
		Owner:   owner,
		Settles: true,
		Patient: true, // the owner holds up the source; the class's overflow has the last word
	}
}

// Mirror has copies of all items sent by a source of a trial, too; nil for none.
func (f *Flow) Mirror(s *Source) { f.mirrored = s }

// Class returns the class that the flow is in now; nil for none.
func (f *Flow) Class() *Class { return f.class }

// Ask offers the next ticket, for an item of this cost. busy is Item.Busy. Where
// it Waits, the owner is told when it may leave. It is not asked while one waits.
// Each that may leave is followed by Left: until then, for a second at most, nothing
// follows it out of a class that counts gaps.
func (f *Flow) Ask(now time.Time, cost Cost, busy bool) Verdict {
	f.ticket.Cost, f.ticket.Held, f.ticket.Busy = cost, cost.Bytes, busy
	if f.mirrored != nil {
		f.mirrored.Send(now, cost)
	}
	if f.class == nil {
		f.ticket.charged = nil
		return Leaves
	}
	return f.class.Enter(now, &f.ticket)
}

// Left says that what was allowed to leave has left at now, or will not. The
// class that it was charged to is told, whichever the flow has been moved to
// since.
func (f *Flow) Left(now time.Time) { f.ticket.Left(now) }

// Cancel gives up the ticket; false where none waits, or it is leaving at this
// moment and the owner is about to be told.
func (f *Flow) Cancel(now time.Time) bool {
	return f.class != nil && f.class.Cancel(now, &f.ticket)
}

// Move puts the flow into another class, with the ticket that waits: it goes to
// the end of that queue. A nil class lets it leave at once. Move returns what
// has become of the ticket; Waits, too, where none waited.
func (f *Flow) Move(now time.Time, class *Class) Verdict {
	if class == f.class {
		return Waits
	}
	waited := f.Cancel(now)
	f.class = class
	switch {
	case !waited:
		return Waits
	case class == nil:
		return Leaves
	}
	return class.Enter(now, &f.ticket)
}
