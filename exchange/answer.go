package exchange

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// Bounds of what is kept of an answer to read it, in bytes: of a body, and of an event of a
// stream of events. All of it passes on, however much that is.
const (
	mostKept  = 256 << 10
	mostEvent = 64 << 10
)

// accounts remember what requests were charged until their answers say what they cost. They are
// for HTTP, where answers come in the order of the requests. They are empty until a class reads
// answers.
type accounts struct{ book *book }

// A book is what accounts remember.
type book struct {
	sent, answered uint64   // how many requests
	charges        []charge // of requests that have no answer yet, in order
	answer         answer   // that is read, or was read last
}

// A charge is what a request was charged.
type charge struct {
	request uint64 // its number
	at      time.Time
	cost    shaper.Cost
}

// charge notes that a request has left, by an item that its class has let go. before is how many requests before it
// have answers that have not ended.
func (a *accounts) charge(before int, class *shaper.Class, item *shaper.Item) {
	reads := class.Messages().ReadsAnswers()
	if a.book == nil {
		if !reads {
			return
		}
		a.book = &book{sent: uint64(before)}
	}
	if reads {
		a.book.charges = append(a.book.charges, charge{a.book.sent, item.Departed(), item.Cost})
	}
	a.book.sent++
}

// charge notes what was charged for the request that was sent last.
func (r *requests) charge(class *shaper.Class, item *shaper.Item) {
	before := r.link.InFlight() - 1
	if (r.answer.whole || r.answer.ends) && r.answer.message.Answers {
		before++ // the link has forgotten a request, and its answer has not passed
	}
	r.accounts.charge(before, class, item)
}

// forgetLast forgets what was charged for the request that has left last, since that charge was given back: an
// answer to the request would settle the charge once more.
func (a *accounts) forgetLast() {
	if b := a.book; b != nil {
		b.charges = slices.DeleteFunc(b.charges, func(c charge) bool { return c.request == b.sent-1 })
	}
}

// An answer is what is read of an answer while it passes.
type answer struct {
	reads   bool // it is being read
	class   *shaper.Class
	content *frame.Content // finds its body; nil: nobody reads that
	kept    []byte         // the body, or the last line of a stream of events
	gzipped bool
	events  bool
	lost    bool // the line or the body is too long to keep

	// While the answer is held back; see judge.
	heldFrom time.Time // when that began
	followed int       // bytes of its body that content has taken
	reserved int       // memory, in bytes

	settled [2]settlement // in messages and in tokens
	tooFast *shaper.Class // the class whose signal the answer has; nil: none
	told    bool          // its class knows what it says of the rate
	inPart  bool          // the signal may not be for all that the request asks for
	early   bool          // the signal was seen before the answer passed on
	wait    time.Duration // how long the provider wants nothing more, if it says so
}

// A settlement is what an answer says that its request costs.
type settlement struct {
	place *policy.Place // where it says that; nil: nowhere
	units int64
	said  bool
}

// begin begins to read the answer that a lane has found, if the class of its request reads answers.
func (a *accounts) begin(l *lane) {
	if a.book == nil {
		return
	}
	m := &l.found.message
	class := l.x.classes.all[m.Tag].class
	a.book.answer.begin(l, class)
	if charged, known := a.book.first(); known {
		hearHints(class, l.x.now, charged, m.Fields)
	}
}

// begin begins to read the answer that a lane has found. class is that of its request.
func (a *answer) begin(l *lane, class *shaper.Class) {
	*a = answer{kept: a.kept[:0], class: class}
	if a.reads = a.class.Messages().ReadsAnswers(); !a.reads {
		return
	}
	a.settled[0].place, a.settled[1].place = a.class.Messages().SettledBy(unit.Messages), a.class.Messages().SettledBy(unit.Tokens)
	head := Seen(&l.found.message)
	a.readHead(&head, l.x.now)
	encoding := head.Header("Content-Encoding")
	a.gzipped = bytes.EqualFold(encoding, []byte("gzip")) || bytes.EqualFold(encoding, []byte("x-gzip"))
	a.events = !a.gzipped && hasPrefixFold(head.Header("Content-Type"), "text/event-stream")
	if !l.found.whole && (a.gzipped || isPlain(encoding)) && a.wantsBody() {
		a.content = frame.NewContent(l.scan)
	}
}

// readHead reads the fields of the answer.
func (a *answer) readHead(head *policy.Message, now time.Time) {
	for i := range a.settled {
		if s := &a.settled[i]; s.place != nil && s.place.Header != "" {
			s.units, s.said = policy.Number(string(head.Header(s.place.Header)))
		}
	}
	a.eachSignal(func(class *shaper.Class, s *policy.Signal) {
		if s.Header != "" && slices.Contains(s.Equals, string(head.Header(s.Header))) {
			a.tooFast = class
		}
	})
	a.wait = frame.HTTPThrottle(429, head.Header("Retry-After")).Pause(now)
}

// eachSignal calls f for the signals of the classes of the request, the nearest first, until
// one was seen.
func (a *answer) eachSignal(f func(*shaper.Class, *policy.Signal)) {
	for class := a.class; class != nil && a.tooFast == nil; class = class.Parent() {
		if r := class.Reads(); r != nil && r.ThrottledBy != nil {
			f(class, r.ThrottledBy)
		}
	}
}

// wantsBody reports whether something is looked for in the body.
func (a *answer) wantsBody() (wants bool) {
	a.eachPath(func(policy.Path) { wants = true })
	return wants
}

// eachPath calls f for each path that leads to something in the body.
func (a *answer) eachPath(f func(policy.Path)) {
	for i := range a.settled {
		if p := a.settled[i].place; p != nil && p.JSON != "" {
			f(p.JSON)
		}
	}
	a.eachSignal(func(_ *shaper.Class, s *policy.Signal) {
		if s.JSON != "" {
			f(s.JSON)
		}
	})
}

// hear reads a piece of the body of the answer, which is about to pass.
func (a *accounts) hear(piece []byte) {
	if a.book == nil || a.book.answer.content == nil {
		return
	}
	if n, _ := a.book.answer.hear(piece); n < len(piece) {
		a.book.answer.content = nil // it is not framed, which the lane notices itself
	}
}

// hear reads as much of a piece of the body as it can. It returns how many bytes it has read,
// and whether the body ends with them.
func (a *answer) hear(piece []byte) (n int, ended bool) {
	for !ended {
		var taken int
		var data []byte
		if taken, data, ended = a.content.Next(piece[n:]); taken == 0 {
			break
		}
		if n += taken; a.events {
			a.hearEvents(data)
		} else {
			a.keep(data, mostKept)
		}
	}
	return n, ended
}

// keep keeps more of the body, unless it becomes too long.
func (a *answer) keep(data []byte, most int) {
	if a.lost = a.lost || len(a.kept)+len(data) > most; !a.lost {
		a.kept = append(a.kept, data...)
	}
}

// hearEvents reads the lines of a stream of events (HTML, 9.2). What several events say, the
// last one says.
func (a *answer) hearEvents(data []byte) {
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		a.keep(line, mostEvent)
		if data = rest; !whole {
			return
		}
		a.readLine()
	}
}

// readLine reads the line that was kept, which is whole.
func (a *answer) readLine() {
	if document, ok := bytes.CutPrefix(a.kept, []byte("data:")); ok && !a.lost && a.mayHave(document) {
		a.read(document)
	}
	a.kept, a.lost = a.kept[:0], false
}

// mayHave reports whether a document may have something that is looked for: the last name of a
// path stands in it, or the path ends with an index, which does not. Most events have nothing, and this is quicker than
// to read them.
func (a *answer) mayHave(document []byte) (may bool) {
	a.eachPath(func(p policy.Path) {
		last := string(p[strings.LastIndexByte(string(p), '.')+1:])
		may = may || last == "*" || strings.Trim(last, "0123456789") == "" || bytes.Contains(document, []byte(last))
	})
	return may
}

// read reads a document of JSON.
func (a *answer) read(document []byte) {
	for i := range a.settled {
		s := &a.settled[i]
		if s.place == nil || s.place.JSON == "" {
			continue
		}
		if n, ok := firstNumber(document, string(s.place.JSON)); ok {
			s.units, s.said = n, true
		}
	}
	a.eachSignal(func(class *shaper.Class, s *policy.Signal) {
		if s.JSON == "" {
			return
		}
		others := false
		all := eachValue(document, string(s.JSON), func(value string) bool {
			if slices.Contains(s.Equals, value) {
				a.tooFast = class
			} else {
				others = true
			}
			return a.tooFast == nil || !others
		})
		a.inPart = others || !all
	})
}

// end reads what was kept of an answer that has passed.
func (a *answer) end() {
	switch {
	case a.content == nil:
	case a.events:
		a.readLine()
	case a.lost:
	case a.gzipped:
		if r, err := gzip.NewReader(bytes.NewReader(a.kept)); err == nil {
			document, _ := io.ReadAll(io.LimitReader(r, 4*mostKept))
			a.read(document)
		}
	default:
		a.read(a.kept)
	}
	a.content = nil
	if cap(a.kept) > mostEvent {
		a.kept = nil // an idle connection holds little
	}
}

// end settles the request whose answer has ended, and tells the class whose signal it has. late
// says that this signal refuses all of the request, and was seen only after the answer, or a part of
// it, had passed on.
func (a *accounts) end(now time.Time) (late bool) {
	b := a.book
	if b == nil {
		return false
	}
	charged, known := b.next()
	if !b.answer.reads {
		return false
	}
	b.answer.end()
	b.answer.reads = false
	if known {
		b.answer.settle(now, charged)
	}
	return b.answer.tell(now) && !b.answer.inPart && !b.answer.early
}

// pass notes that the answer passes on now, unless its request is sent again. It reports whether
// what was read of the answer refuses all of the request as too fast.
func (a *accounts) pass() (tooFast bool) {
	if a.book == nil {
		return false
	}
	b := &a.book.answer
	b.early = b.tooFast != nil
	return b.early && !b.inPart
}

// tell tells the class whose signal the last answer has, once. It reports whether it has one.
func (a *accounts) tell(now time.Time) bool { return a.book != nil && a.book.answer.tell(now) }

// silence makes the last answer say nothing more of the rate, whatever its body will say.
func (a *accounts) silence() {
	if a.book != nil {
		a.book.answer.told = true
	}
}

// next returns what was charged for the request whose answer has ended; known is false if that was
// not noted.
func (b *book) next() (charged charge, known bool) {
	if charged, known = b.first(); known {
		b.charges = slices.Delete(b.charges, 0, 1)
	}
	b.answered++
	return charged, known
}

// first returns what was charged for the request that is answered next; see next.
func (b *book) first() (charged charge, known bool) {
	if len(b.charges) == 0 || b.charges[0].request != b.answered {
		return charge{}, false
	}
	return b.charges[0], true
}

// settle corrects what a request was charged, by what its answer says.
func (a *answer) settle(now time.Time, charged charge) {
	var more shaper.Cost
	more.Messages = a.settled[0].more(a.class.Messages().Cost(unit.Messages), charged.cost.Messages)
	more.Tokens = int32(a.settled[1].more(a.class.Messages().Cost(unit.Tokens), int64(charged.cost.Tokens)))
	if more != (shaper.Cost{}) {
		a.class.Provider().Settle(now, charged.at, more)
	}
}

// tell tells the class whose signal the answer has, once. It reports whether there is one.
func (a *answer) tell(now time.Time) bool {
	if a.tooFast != nil && !a.told {
		a.told = true
		a.tooFast.Provider().ThrottledHere(now, a.wait, stats.SignalInAnswer)
	}
	return a.tooFast != nil
}

// more returns how much more a request costs than it was charged; less than 0 if it costs less.
func (s *settlement) more(cost *policy.Cost, charged int64) int64 {
	if !s.said {
		return 0
	}
	return cost.More(charged, s.units)
}

// hasPrefixFold reports whether text begins with a prefix, whatever the case of its letters.
func hasPrefixFold(text []byte, prefix string) bool {
	return len(text) >= len(prefix) && bytes.EqualFold(text[:len(prefix)], []byte(prefix))
}
