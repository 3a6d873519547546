package shaper

import "time"

// Flow is one direction of a session, as its class sees it. At most one item of it waits:
// a ticket for what the owner has read and not yet written. So the FIFO serves flows in
// turn, and a peer that stops reading holds up only itself.
//
// The owner calls the methods of a Flow one at a time. The pacer tells the owner when a
// ticket that waited may leave. It may do so while the owner calls a method.
type Flow struct {
	class    *Class // nil: nothing is limited
	ticket   Item
	mirrored *Source // sends copies of all items in a trial; nil: there is none
}

// Init puts a flow into a class; a nil class limits nothing. owner is told when a ticket
// may leave.
func (f *Flow) Init(class *Class, owner Owner) {
	f.class = class
	f.ticket = Item{
		Owner:   owner,
		Settles: true,
		Patient: true, // the owner stops reading while the ticket waits
	}
}

// Mirror makes a source in a trial send a copy of each item from now on; nil ends that.
func (f *Flow) Mirror(s *Source) { f.mirrored = s }

// Class returns the class that the flow is in now; nil for none.
func (f *Flow) Class() *Class { return f.class }

// Ask offers the next ticket, for an item of this cost. busy is Item.Busy. If the verdict
// is Waits, the owner is told when the ticket may leave, and does not call Ask before
// that. The owner calls Left for each ticket that may leave; see Item.Settles.
func (f *Flow) Ask(now time.Time, cost Cost, busy bool) Verdict {
	f.ticket.Cost, f.ticket.Held, f.ticket.Busy = cost, cost.Bytes, busy
	f.ticket.First, f.ticket.Accepted = false, false
	if f.mirrored != nil {
		f.mirrored.Send(now, cost)
	}
	if f.class == nil {
		f.ticket.charged = nil
		return Leaves
	}
	return f.class.Enter(now, &f.ticket)
}

// Turn returns what becomes of a ticket that has waited, when the owner is told: Leaves, TooLong as in
// Item.Verdict, or Waits if the ticket has perished, as in Item.HasPerished. Then it waits before all others, and the
// owner is told again.
func (f *Flow) Turn(clock func() time.Time) Verdict {
	if f.class == nil || !f.ticket.HasPerished(clock) {
		return f.ticket.verdict
	}
	return f.ticket.Return(clock(), f.class)
}

// Left says that what was allowed to leave has left at now, or never will. It tells the
// class that was charged, even if the flow has moved to another class since.
func (f *Flow) Left(now time.Time) { f.ticket.Left(now) }

// Cancel gives up the ticket. It returns false if no ticket waits, or if the pacer has
// just let it go and is about to tell the owner.
func (f *Flow) Cancel(now time.Time) bool {
	return f.class != nil && f.class.Cancel(now, &f.ticket)
}

// Move puts the flow into another class. A ticket that waits goes to the end of the queue
// there; a nil class lets it leave at once. Move returns what becomes of the ticket: Waits
// also if no ticket waited.
func (f *Flow) Move(now time.Time, class *Class) Verdict {
	if class == f.class {
		return Waits
	}
	waited := f.Cancel(now)
	f.class = class
	f.ticket.since = time.Time{} // the other class was not late with what the source had ready until now
	switch {
	case !waited:
		return Waits
	case class == nil:
		return Leaves
	}
	f.ticket.First, f.ticket.Accepted = false, false
	return class.Enter(now, &f.ticket)
}
