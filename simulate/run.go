package simulate

import (
	"errors"
	"io"
	"math"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// A run is a simulation in progress. The methods stand in the order of an
// item's way: a client sends, it enters its class, its tree lets it go.
type run struct {
	Options
	policy     *policy.Policy
	classifier *policy.Classifier
	protocols  map[string]policy.Protocol // by listener
	classes    []*class                   // in the order of the policy
	byName     map[string]*class
	senders    []*sender
	sessions   map[session]uint64 // of classes with a bucket for each connection
	agenda     agenda
	start, end time.Time
	now        time.Time
	free       *parcel
	unsaid     bool  // rules look at messages of which the workload says nothing
	err        error // of Departures
}

// A class is one of the policy, with what is counted for the report: of itself
// and of all beneath it.
type class struct {
	*shaper.Class
	conf   policy.Class
	parent *class // nil: none
	tree   *tree
	tally
}

// A tree lets items go; its event is the next departure.
type tree struct {
	event
	root *shaper.Class
}

// A sender is a source at work; its event is its next item.
type sender struct {
	event
	Source
	run     *run
	arrival Arrival
	begun   bool  // of the arrival some has been sent
	left    int64 // bytes of it that have not

	last      policy.Conn         // that was classified last: most send more than once
	rules     policy.MessageRules // of that
	said      policy.Fields       // of the message that was classified last
	ofMessage *class              // the class of that; nil: there was none
	way       [2]*class           // its classes, there and back; nil: that way nothing is shaped
	class     *class              // that of the arrival
	conn      policy.Conn         // of the arrival, as a bucket is found by it
	bucket    *shaper.Class       // of the class, that the arrival is for
	protocol  policy.Protocol
	stream    bool // it is bytes over TCP, cut as the class cuts them
}

// A session is a connection as a class with a bucket for each sees it.
type session struct {
	class *class
	conn  policy.Conn
}

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

func newRun(p *policy.Policy, sources []Source, o Options) (*run, error) {
	r := &run{Options: o, policy: p, classifier: policy.Compile(p), protocols: map[string]policy.Protocol{},
		sessions: map[session]uint64{}}
	for _, l := range p.Listeners {
		r.protocols[l.Name] = l.Protocol
	}
	first := time.Time{}
	for i, source := range sources {
		s := &sender{Source: source, run: r}
		s.rank, s.do = len(p.Classes)+i, s.send
		if err := s.read(); err != nil {
			return nil, err
		}
		if s.place > 0 && (first.IsZero() || s.at.Before(first)) {
			first = s.at
		}
		r.senders = append(r.senders, s)
	}
	r.start = first.Truncate(time.Second)
	r.now = r.start
	r.end = r.start.Add(math.MaxInt64) // what leaves after three hundred years never does
	if o.For > 0 {
		r.end = r.start.Add(o.For)
	}
	r.plant()
	return r, nil
}

// plant makes the classes of the policy.
func (r *run) plant() {
	r.byName = make(map[string]*class, len(r.policy.Classes))
	trees := map[*shaper.Class]*tree{}
	for i, made := range shaper.NewTree(r.start, r.policy.Classes) {
		root := made
		for root.Parent() != nil {
			root = root.Parent()
		}
		if trees[root] == nil {
			t := &tree{root: root}
			t.rank, t.do = len(trees), func() error { return r.release(t) }
			trees[root] = t
		}
		c := &class{Class: made, conf: r.policy.Classes[i], tree: trees[root]}
		c.tally.kind = c.conf.Rate.Kind()
		r.classes = append(r.classes, c)
		r.byName[c.conf.Name] = c
	}
	for _, c := range r.classes {
		c.parent = r.byName[c.conf.Parent]
	}
}

// run has everything happen in the order of time; at one moment, items leave
// before others arrive.
func (r *run) run() error {
	for e := r.agenda.first(); e != nil && e.at.Before(r.end); e = r.agenda.first() {
		r.now = e.at
		if err := e.do(); err != nil {
			return err
		}
	}
	return nil
}

// read takes the next arrival of the source, if there is one.
func (s *sender) read() error {
	err := s.Next(&s.arrival)
	if errors.Is(err, io.EOF) {
		s.run.agenda.remove(&s.event)
		return nil
	}
	if err != nil {
		return err
	}
	at := s.arrival.At
	if at.Before(s.run.now) { // it was held back
		at = s.run.now
	}
	s.begun = false
	s.run.agenda.set(&s.event, at)
	return nil
}

// send has the next item of an arrival enter its class.
func (s *sender) send() error {
	if !s.begun && !s.begin() {
		return s.read()
	}
	p := s.run.parcel()
	s.bucket = s.class.Join(s.run.now, s.conn)
	*p = parcel{item: shaper.Item{Cost: s.take(), Patient: s.isPatient(), Settles: true, Owner: p},
		class: s.class, bucket: s.bucket, arrived: s.run.now, sender: s, conn: s.arrival.Conn}
	if p.item.Held = p.item.Cost.Bytes; p.item.Cost.Packets > 0 { // as in the proxy
		p.item.Held = policy.Holds(p.item.Cost.Bytes)
	}
	s.run.enter(p)
	switch {
	case s.run.err != nil:
		return s.run.err
	case p.holds:
		s.run.agenda.remove(&s.event)
	case s.left == 0:
		return s.read()
	}
	return nil
}

// begin finds the class of an arrival; false if it costs nothing there.
func (s *sender) begin() bool {
	if conn := s.arrival.Conn; s.way[0] == nil || conn != s.last {
		decision := s.run.classifier.Classify(conn)
		s.last, s.way = conn, [2]*class{s.run.byName[decision.Class], s.run.byName[decision.ReturnClass]}
		s.rules, s.ofMessage = s.run.classifier.Messages(conn), nil
		s.protocol = s.run.protocols[conn.Listener]
		s.stream = s.protocol == policy.TCP
	}
	s.class = s.classOf(&s.arrival)
	if s.class == nil {
		return false
	}
	if s.conn = s.last; s.class.conf.Per.By == policy.ByConnection {
		s.conn.Session = s.run.sessionOf(s)
	}
	s.left = s.arrival.Bytes
	s.begun = true
	if s.protocol != policy.UDP && s.class.Counts(unit.Connections) {
		return s.arrival.Opens
	}
	return !s.stream || s.left > 0
}

// classOf returns the class of an arrival of the connection that was classified last.
func (s *sender) classOf(a *Arrival) *class {
	switch {
	case a.Returns:
		return s.way[1]
	case len(s.rules) == 0:
		return s.way[0]
	case a.Message.IsZero():
		s.run.unsaid = true
	}
	if s.ofMessage == nil || a.Message != s.said {
		s.said, s.ofMessage = a.Message, s.way[0]
		if i := s.rules.First(a.Message.Message()); i >= 0 {
			s.ofMessage = s.run.byName[s.rules[i].Class]
		}
	}
	return s.ofMessage
}

// sessionOf returns the number of the connection that a sender's arrival is of: a
// client's address, port and listener are one. It stays open to the end.
func (r *run) sessionOf(s *sender) uint64 {
	key := session{s.class, s.last}
	id, known := r.sessions[key]
	if !known {
		id = uint64(len(r.sessions) + 1)
		r.sessions[key] = id
		conn := s.last
		conn.Session = id
		s.class.Join(r.now, conn)
	}
	return id
}

// isPatient reports whether the source is held up by what waits, rather than refused.
func (s *sender) isPatient() bool {
	return s.stream || s.protocol.HasMessages() && s.class.conf.OverflowFor(s.protocol) == policy.Wait
}

// take returns what the next item of the arrival costs: a connection, a
// datagram, a message, or a piece of a stream as the class cuts it.
func (s *sender) take() shaper.Cost {
	cost := shaper.Cost{Bytes: s.left, Messages: s.arrival.Messages}
	s.arrival.Messages = 0
	switch {
	case s.class.Counts(unit.Connections):
		s.left = 0
		return shaper.Cost{Connections: 1}
	case s.protocol.HasMessages():
		cost.Messages = max(cost.Messages, 1)
	case !s.stream:
		cost.Packets = 1
	default:
		cost.Bytes = min(cost.Bytes, s.bucket.Piece())
	}
	s.left -= cost.Bytes
	return cost
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

// release lets the item of a tree go whose time has come.
func (r *run) release(t *tree) error {
	if it := t.root.Release(r.now); it != nil {
		it.Owner.Leave(r.now)
	}
	r.expect(t)
	return r.err
}

// expect looks when the next item of a tree leaves.
func (r *run) expect(t *tree) {
	at := t.root.Next(r.now)
	if at.Before(r.now) {
		at = r.now
	}
	r.agenda.set(&t.event, at)
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

// resume goes on with what was held back.
func (s *sender) resume() {
	if s.left > 0 {
		s.run.agenda.set(&s.event, s.run.now)
	} else if err := s.read(); err != nil {
		s.run.err = err
	}
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
