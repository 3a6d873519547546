package exchange

// breakOff ends a lane whose bytes cannot be framed. If they are the client's, nothing more of it is read, and the
// end comes when the client has what it is owed; see endBroken.
func (l *lane) breakOff(err error) {
	if l.fail(err); !l.isUp() {
		l.over()
		return
	}
	if l.state == swallowing {
		l.found.open = false // the request was refused, so no answer of the provider is for it
	}
	l.state = breaking
}

// endBroken cuts off a client whose bytes cannot be framed, if nothing more is owed to the client. All that has
// come for the client has been written, as far as the client reads.
func (x *Exchange) endBroken() {
	if !x.stopped && x.up.state == breaking && !x.owes() {
		x.up.finish()
	}
}

// owes reports whether something is still to come for a client whose bytes cannot be framed: an answer of HTTP,
// or a refusal. A request that these bytes have cut short gets none, unless its answer has begun.
func (x *Exchange) owes() bool {
	unanswered, down := x.link.InFlight(), &x.down
	if x.up.found.open && !(down.found.open && unanswered == 1) {
		unanswered--
	}
	return x.protocol.isHTTP() && down.state != ended && (unanswered > 0 || len(x.refusals.unwritten) > 0 || !down.isBetween())
}
