package fleet

import "time"

// A Mode says where the budget of a class comes from.
type Mode int

const (
	FromStore Mode = iota // the store hands it out
	OnShare               // the store is away: the member uses its share, or the rate that the policy names
	Stopped               // nothing leaves: the store is away, and there is no share
)

// String returns "store", "share" or "stopped".
func (m Mode) String() string { return [...]string{"store", "share", "stopped"}[m] }

// pingEvery is how often a member pings a store that is away.
const pingEvery = 100 * time.Millisecond

// A link is what a member knows of the store: whether it answers, and what the store knows of the
// member. After a call that is not answered it is down, until a ping is answered.
type link struct {
	down     bool      // the store is away
	pinging  bool      // a ping is on its way
	pingAt   time.Time // when to ping next
	backAt   time.Time // when a ping was answered last
	joined   time.Time // when the member first knew the store's clock well; zero: it does not
	known    time.Time // since when the store has counted it among the members; zero: it does not
	spoke    time.Time // when the last call was sent by which it does
	fenced   bool      // the store's clock has jumped, and the store does not know of that
	beating  bool      // a beat is on its way
	telling  bool      // a call is on its way that says what the member knows to be its share
	lastSent time.Time // the last such call
	share    int64     // in millionths, as the store has said
	members  int64
	// silentAt is when the store may count the member as silent; not sooner than the store does.
	silentAt time.Time
	proved   bool          // a call has succeeded since the last ping
	patience time.Duration // how long to wait for the next ping if none has, or if a call fails right after it
	clock    clock
	tooVague time.Duration // see terms.tooVague
	rtt      time.Duration // of recent calls, rather more than less
}

// vague reports whether the clock is too vague to use what the store grants. The member then counts the store
// as away. When it knows the clock better, it waits until all blocks have ended that were granted before.
func (l *link) vague(now time.Time) bool { return l.clock.error(now) > l.tooVague }

// informed reports whether the store has answered since it was away, and the member knows its clock.
func (l *link) informed() bool { return l.proved && l.clock.known() }

// arrival returns how long a call is on its way, rather less than more.
func (l *link) arrival(now time.Time) time.Duration { return l.clock.error(now) * 7 / 8 }

// isKnown reports whether the store counts the member among those of the class, with what it has told of itself.
func (l *link) isKnown(now time.Time) bool {
	return !l.known.IsZero() && now.Sub(l.spoke) < standardTerms.hold
}

// ready returns from when the member may ask: when all blocks have ended that were granted before it came. It returns the zero
// time if the member does not know the store's clock well.
func (l *link) ready(t terms) time.Time {
	if l.joined.IsZero() {
		return time.Time{}
	}
	return l.joined.Add(t.horizon + t.transit)
}

// fence returns for how long what others hold still counts if the store has lost it. Until the store has known the deadline
// of the member for some time, and so has granted no further ahead, the slots of others may be as far ahead as any.
func (l *link) fence(now time.Time, class *Class) time.Duration {
	if class.terms == nil && (!l.isKnown(now) || now.Before(l.known.Add(2*maxDeadline))) {
		return 2 * maxDeadline
	}
	t := class.ownTiming()
	return t.horizon + t.transit
}

// reach returns how far from now the last slot may be that the store has granted to others. Since the store knows this
// member, it grants no further ahead than the policy of this member allows; before, it may have.
func (l *link) reach(now time.Time, class *Class) time.Duration {
	return max(class.ownTiming().horizon, l.known.Add(maxDeadline).Sub(now))
}

// send notes that a call leaves at now that tells of the share. From then on the store counts the member as
// present for grace. There is one such call at a time: of two, the second would take back what the answer to
// the first gives.
func (l *link) send(now time.Time, grace time.Duration) {
	l.lastSent, l.telling = now, true
	if until := now.Add(grace); until.After(l.silentAt) {
		l.silentAt = until
	}
}

// heard notes that a call is not on its way any more.
func (l *link) heard(c *Call) {
	if c.Seq > 0 {
		l.telling = false
	}
}

// answered takes the times of an answer into account. It reports whether what the store has granted
// may be used.
func (l *link) answered(now time.Time, c *Call, r *Reply) bool {
	vague := l.joined.IsZero() || l.vague(now)
	jumped := l.clock.sample(c.at, shown(c, now, r), r.Now)
	l.rtt = max(now.Sub(c.at), l.rtt-l.rtt/8)
	l.proved = !l.vague(now)
	if c.Seq > 0 {
		l.share, l.members = r.Share, r.Members
		if !l.isKnown(c.at) {
			l.known = now
		}
		l.spoke = c.at
	}
	if vague {
		if l.proved { // else it knows no more than before
			l.joined = now
		}
		return false
	}
	if jumped {
		l.fenced = true
		return false
	}
	if c.Fenced {
		l.fenced = false
	}
	return !l.fenced && !c.at.Before(l.joined)
}

// shown returns until when the store's clock may have shown the time of an answer that was received at a time. The store has
// computed since, and somebody may have set its clock meanwhile.
func shown(c *Call, received time.Time, r *Reply) time.Time {
	return latest(c.at, received.Add(-max(r.Took, 0)))
}

// maxSilence bounds how long a member with a share leaves a store alone that answers pings and nothing else: the
// time of a call that fails, and the pause after it. If the store comes back empty, a member that has just come
// may be the first to call, and gets slots that begin 2*maxDeadline later. By then the others have to be back.
const maxSilence = 2*maxDeadline - 100*time.Millisecond

// failed notes that a call was not answered in time. A store may answer some calls and refuse others, because it is full or its user
// may not use a command. A refusal comes sooner than the deadline of a call that was sent after the last
// ping. So the next ping goes at once only if that deadline has passed.
func (l *link) failed(now time.Time, deadline time.Duration) {
	switch {
	case l.down:
	case l.proved && now.Sub(l.backAt) >= deadline:
		l.pingAt, l.patience = now, 0
	default: // it has only answered the ping, or little more
		l.patience = min(max(2*l.patience, pingEvery), maxSilence-deadline)
		l.pingAt = now.Add(l.patience)
	}
	l.down, l.pinging, l.beating, l.proved = true, false, false, false
}

// lead returns how long after a grant its first slot begins, so that the answer comes in time: three quarters
// of a round trip, since an answer takes half of one and may take longer, less a part of Late.
func (l *link) lead(c *Class) time.Duration {
	return min(max(l.rtt*3/4-c.Late/4, 0), c.timing().horizon/2)
}

// leadTime returns how long before the last slot in hand a lease asks for more.
func (l *link) leadTime() time.Duration { return 10*time.Millisecond + 2*l.rtt }
