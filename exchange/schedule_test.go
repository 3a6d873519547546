package exchange_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/exchange/exchangetest"
	"shaper/frame"
	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// A schedule is one connection, to which things happen in the order of a script. It checks
// what has to hold meanwhile. Index 0 is upstream, and index 1 downstream.
type schedule struct {
	*exchangetest.Host
	t *testing.T

	// The connection, and the policy of the last reload.
	protocol policy.Protocol
	who      policy.Conn
	now      time.Time
	policy   *policy.Policy
	keyed    bool // some policies have buckets or groups that messages tell apart
	classes  map[string]*shaper.Class
	joined   [2]*shaper.Class // the classes of the connection
	roots    []*shaper.Class
	all      []*shaper.Class // all classes that there have been

	// What happened.
	in, out   [2][]byte   // what each sender will send, and what it has sent
	texts     [2][]string // the messages of both streams; nil: unknown
	refused   int         // bytes of refused requests
	refusals  int         // refused requests
	reloads   int
	found     int
	sent      []time.Time
	undecided int                         // messages of which no follower method was called yet
	lastSent  map[origin]int              // the number of the last message that left
	seen      map[classKey]bool           // the keys of messages to the provider
	came      freeMessages                // from the client
	left      freeMessages                // to the provider
	free      map[*shaper.Class]time.Time // when the gap ends after the last message that was found since the last reload
	dropped   [2]int
}

// A classKey is a key in a class.
type classKey struct {
	class *shaper.Class
	key   shaper.Key
}

// An origin is what messages share if none of them may overtake another: their class and their
// key there, until a reload.
type origin struct {
	class   *shaper.Class
	key     string
	reloads int
	up      bool
}

var protocols = [...]policy.Protocol{policy.SMPP, policy.HTTP, policy.ISO8583, policy.Lines}

// Keys of the class of a connection: a short queue, and its overflow.
const (
	short = "queue = \"2 messages\"\n"
	wait  = short + "overflow = \"wait\"\n"
	fail  = short + "overflow = \"refuse\"\n"
)

// perOf gives messages of a protocol buckets of their own, if they have what that takes.
func perOf(protocol policy.Protocol) string {
	switch protocol {
	case policy.SMPP:
		return "per = [\"source\", \"recipient\"]\nmax_keys = 2\n"
	case policy.HTTP:
		return "per = \"path\"\nmax_keys = 2\n"
	}
	return ""
}

// quietOf makes a class quiet in the first minute, for one recipient or for all.
func quietOf(protocol policy.Protocol) string {
	switch protocol {
	case policy.SMPP:
		return "quiet = [{ recipient = \"1\", to = \"00:01\" }, { recipient = \"2*\", from = \"00:01\", to = \"00:02\" }]\n"
	case policy.HTTP:
		return "quiet = [{ to = \"00:01\" }]\n"
	}
	return ""
}

// policyOf returns a policy for a protocol. The class of the connection has this name and
// these keys. If they have per, so has the class of the rule.
func policyOf(t *testing.T, protocol policy.Protocol, name, keys string) *policy.Policy {
	more, rule := "", ""
	switch protocol {
	case policy.ISO8583:
		more = "length_prefix = \"binary2\"\n"
	case policy.SMPP:
		rule = "[[rule]]\nsource_addr = \"o*\"\nclass = \"otp\"\n"
	case policy.HTTP:
		rule = "[[rule]]\npath = \"/o*\"\nclass = \"otp\"\n"
	}
	other := ""
	if strings.Contains(keys, "per") {
		other = perOf(protocol)
	}
	inFlight, back := "", "rate = \"30 messages/s\"\nqueue = \"2 messages\"\n"
	if protocol.Refuses() {
		inFlight = "in_flight = 3\n"
	}
	if protocol == policy.HTTP {
		back = "rate = \"3KB/s\"\n"
	}
	text := fmt.Sprintf("[class.link]\nrate = \"2MB/s\"\n[class.%s]\nparent = \"link\"\nrate = \"20 messages/s\"\n%s%s"+
		"[class.otp]\nrate = \"50 messages/s\"\nmax_wait = \"60ms\"\n%s[class.back]\n%s"+
		"[listener.l]\nlisten = \"127.0.0.1:1\"\nprotocol = %q\nupstream = \"discard:\"\nclass = %q\nreturn_class = \"back\"\n%s%s",
		name, keys, inFlight, other, back, protocol, name, more, rule)
	if p, ok := policies.Load(text); ok {
		return p.(*policy.Policy)
	}
	p, _, err := policy.Parse("p.toml", []byte(text))
	if err != nil {
		t.Fatal(err, text)
	}
	policies.Store(text, p)
	return p
}

// policies holds what policyOf has parsed, by the text: a script may reload it a thousand times.
var policies sync.Map

func newSchedule(t *testing.T, protocol policy.Protocol, keys string, up, down []byte) *schedule {
	s := &schedule{t: t, protocol: protocol, who: policy.Conn{Listener: "l"}, now: time.Unix(0, 0), in: [2][]byte{up, down}, lastSent: map[origin]int{}, seen: map[classKey]bool{}, free: map[*shaper.Class]time.Time{}}
	s.came.scan, s.left.scan = newLink(protocol).Up(), newLink(protocol).Up()
	s.makeClasses(policyOf(t, protocol, "c", keys))
	s.joined = [2]*shaper.Class{s.classes["c"], s.classes["back"]}
	s.Host = exchangetest.New(s.now, exchange.Config{
		Protocol: protocol, Link: newLink(protocol), Class: s.joined[0], Back: s.joined[1],
	})
	s.Machine.Watch(s)
	s.obey()
	return s
}

func newLink(protocol policy.Protocol) frame.Link {
	settings := frame.Settings{Protocol: frame.Protocol(protocol)}
	if protocol == policy.ISO8583 {
		settings.Prefix = frame.Binary2
	}
	return frame.NewLink(settings)
}

// makeClasses makes the classes of a policy.
func (s *schedule) makeClasses(p *policy.Policy) {
	p, _ = p.Scheduled(s.now)
	s.policy, s.classes = p, map[string]*shaper.Class{}
	for i, c := range shaper.NewTree(s.now, p.Classes) {
		s.classes[p.Classes[i].Name] = c
		s.all = append(s.all, c)
		if c.Parent() == nil {
			s.roots = append(s.roots, c)
		}
	}
}

func (s *schedule) obey() {
	s.Machine.Obey(s.now, s.who, policy.Compile(s.policy).Messages(s.who), func(name string) *shaper.Class { return s.classes[name] })
}

// reload gives the connection new classes by the same rules.
func (s *schedule) reload(name, keys string) {
	s.reloads++
	gone := map[*shaper.Class]bool{}
	for c := range maps.Values(s.classes) {
		gone[c] = true
	}
	s.makeClasses(policyOf(s.t, s.protocol, name, keys))
	s.joined = [2]*shaper.Class{s.classes[name], s.classes["back"]}
	s.Machine.Belong(s.now, s.joined[0])
	s.obey()
	s.Machine.Reroute(s.now, gone, s.joined[1])
	s.drive()
}

func (s *schedule) drive() {
	if !s.Over {
		s.Drive(s.now)
	}
	s.check()
}

// checkPasses checks that what waits holds up neither reading nor the messages to the provider
// that cost nothing, while both receivers take all that they get.
func (s *schedule) checkPasses() {
	if s.Over || s.Lingers || s.Up.Room+s.Down.Room > -2 || s.Up.Fault != nil || s.isForsaken() ||
		s.protocol != policy.SMPP && s.protocol != policy.ISO8583 {
		return
	}
	if n := len(s.Up.In); n > 0 {
		s.t.Fatalf("%d bytes to the provider are not read, while %d messages wait", n, s.Machine.Waiting())
	}
	if came, left := s.came.in(s.out[0]), s.left.in(s.Up.Got); left != came {
		s.t.Fatalf("%d messages that cost nothing came, and %d have left, while %d messages wait", came, left, s.Machine.Waiting())
	}
}

// freeMessages counts the messages of a stream to the provider that cost nothing and may overtake.
type freeMessages struct {
	scan  frame.Scanner
	at, n int  // bytes that were read, and messages that were counted
	ended bool // what follows cannot be counted
}

// in counts on to the end of the stream, which has grown since the last call.
func (f *freeMessages) in(stream []byte) int {
	for !f.ended {
		size, event, err := f.scan.Next(stream[f.at:])
		if err == nil && event == frame.More {
			break
		}
		if f.ended = err != nil || event != frame.Whole; f.ended {
			break
		}
		if m := f.scan.Message(); m.Kind != frame.Counted && !m.InOrder {
			f.n++
		}
		f.at += size
	}
	return f.n
}

// send makes a sender send n more bytes.
func (s *schedule) send(direction, n int) {
	n = min(n, len(s.in[direction]))
	to := [...]*exchangetest.Stream{&s.Up, &s.Down}[direction]
	if to.Ends != nil {
		return
	}
	to.In = append(to.In, s.in[direction][:n]...)
	s.out[direction] = append(s.out[direction], s.in[direction][:n]...)
	s.in[direction] = s.in[direction][n:]
	s.drive()
	s.checkPasses()
}

// pass lets time pass, and messages leave.
func (s *schedule) pass(d time.Duration) {
	for end := s.now.Add(d); ; {
		var first *shaper.Class
		next := limit.Never
		for _, root := range s.roots {
			if at := root.Next(s.now); at.Before(next) {
				first, next = root, at
			}
		}
		if first == nil || next.After(end) {
			s.now = end
			break
		}
		if next.After(s.now) {
			s.now = next
		}
		if it := first.Release(s.now); it != nil {
			it.Owner.Leave(s.now)
		}
		s.check()
	}
	s.drive()
}

// Found implements exchange.Watcher.
func (s *schedule) Found(_ time.Time, f exchange.Found) exchange.Follower {
	s.found++
	s.undecided++
	if c := f.Class.Named(); f.Direction == stats.Upstream && c.Messages().HaveKeys() {
		m := exchange.Seen(f.Message)
		s.seen[classKey{c, c.Messages().Key(&s.who, &m)}] = true
	}
	key := ""
	if s.keyed { // now, or after a reload
		key = string(f.Message.Submit().Recipient) + string(f.Message.Path)
	}
	return &follower{schedule: s, origin: origin{f.Class.Named(), key, s.reloads, f.Direction == stats.Upstream}, number: s.found, size: f.Size, cost: f.Cost.Messages}
}

// Answered implements exchange.Watcher.
func (s *schedule) Answered(time.Time, uint32) {}

// Expired implements exchange.Watcher.
func (s *schedule) Expired(time.Time, time.Time) {}

// A follower checks that exactly one of its methods is called, once.
type follower struct {
	*schedule
	origin
	number, size int
	cost         int64
	over         bool
}

func (f *follower) end() {
	if f.over {
		f.t.Fatal("two follower methods were called for a message")
	}
	f.over = true
	f.undecided--
}

func (f *follower) Sent(now time.Time) {
	f.end()
	f.sent = append(f.sent, now)
	if f.number < f.lastSent[f.origin] {
		f.t.Fatalf("message %d leaves after message %d", f.number, f.lastSent[f.origin])
	}
	f.lastSent[f.origin] = f.number
	f.checkGap(now)
}

// checkGap checks that no two messages leave a class of messages closer together than its rate and
// the cost of the first one allow. It leaves out classes with buckets, which have a gap for each, and messages that a
// reload has given another class.
func (f *follower) checkGap(now time.Time) {
	c := f.class
	if c == nil || f.keyed || f.origin.reloads != f.schedule.reloads || c.Rate().Kind() != unit.Messages {
		return
	}
	if free := f.free[c]; now.Before(free) {
		f.t.Fatalf("message %d leaves %s %v before the gap ends", f.number, c.Name(), free.Sub(now))
	}
	f.free[c] = now.Add(c.Rate().Time(f.cost))
}

func (f *follower) Dropped(time.Time, stats.Reason) {
	f.end()
	if f.up {
		f.dropped[0]++
	} else {
		f.dropped[1]++
	}
}

func (f *follower) Refused(time.Time, stats.Reason) {
	f.end()
	f.refused += f.size
	f.refusals++
}

// check checks what holds at any moment while the connection is open: no byte is lost, and
// none is invented.
func (s *schedule) check() {
	if s.Over || s.protocol == policy.HTTP {
		return
	}
	read := [...]int{len(s.out[0]) - len(s.Up.In), len(s.out[1]) - len(s.Down.In)}
	answers := 0
	if s.protocol == policy.SMPP {
		answers = 16 * s.refusals
	}
	// After bytes that are no message, what waits is dropped. So is what waits for a provider that is dead.
	if got := len(s.Up.Got) + s.Machine.Held(stats.Upstream) + s.refused; got > read[0] || got < read[0] && s.Up.Fault == nil && !s.isForsaken() {
		s.t.Fatalf("of %d bytes to the provider, %d have left, %d are held, and %d are refused", read[0], len(s.Up.Got), s.Machine.Held(stats.Upstream), s.refused)
	}
	if got := len(s.Down.Got) + s.Machine.Held(stats.Downstream); got > read[1]+answers || got < read[1]+answers && s.Down.Fault == nil {
		s.t.Fatalf("of %d bytes to the client, %d have left and %d are held, with %d bytes of refusals", read[1], len(s.Down.Got), s.Machine.Held(stats.Downstream), answers)
	}
}

// isForsaken reports whether the connection to the provider may be known to be dead.
func (s *schedule) isForsaken() bool {
	return s.Down.Fault != nil || s.Down.Ends == exchange.ErrCut && len(s.Down.In) == 0
}

// end ends the connection, and checks what has to hold then.
func (s *schedule) end() {
	for _, stream := range []*exchangetest.Stream{&s.Up, &s.Down} {
		if stream.Told && stream.Ends == io.EOF && stream.Fault == nil && !s.Lingers && len(stream.In) > 0 {
			s.t.Fatalf("the end overtook what was sent: %q", stream.In)
		}
	}
	s.settle()
	for direction, stream := range [...]*exchangetest.Stream{&s.Up, &s.Down} {
		noAnswers := direction == 0 && (s.protocol == policy.HTTP && s.Down.Told || s.isForsaken()) // so no request waits
		if stream.Told && stream.Ends == exchange.ErrCut && stream.Fault == nil && s.dropped[direction] > 0 && !noAnswers {
			s.t.Fatalf("a fault overtook %d messages that waited", s.dropped[direction])
		}
	}
	s.checkOrder()
	s.checkTexts()
	s.checkEnd()
	s.Finish(stats.Aborted)
	if s.undecided != 0 {
		s.t.Fatalf("of %d messages, %d were neither sent nor refused nor dropped", s.found, s.undecided)
	}
	s.pass(time.Second)
	for _, c := range s.all {
		if n, waits := c.InFlight(), c.Backlog().Items; n != 0 || waits != 0 {
			s.t.Fatalf("%d requests of %s are in flight, and %d wait", n, c.Name(), waits)
		}
		if n := c.Buckets().Keys(s.now.Add(time.Hour)); n != 0 {
			s.t.Fatalf("%d buckets of %s are still in use", n, c.Name())
		}
	}
	s.checkKeys()
}

// checkKeys checks that no message is counted any more in the bucket that the last keys of a class share: each key has one of
// its own again.
func (s *schedule) checkKeys() {
	now := s.now.Add(time.Hour)
	for in := range s.seen {
		before := in.class.Stats.KeysShared.Load()
		in.class.JoinKey(now, in.key).QuitKey(now, in.key)
		if in.class.Stats.KeysShared.Load() != before {
			s.t.Fatalf("a key of %s has no bucket of its own, although no message of it is left", in.class.Name())
		}
	}
}

func (s *schedule) tend() {
	if !s.Over {
		s.Machine.Tend(s.now)
	}
	s.drive()
}

// settle removes all obstacles, and checks that everything leaves in time. Each class sends at
// least 20 messages a second, or three for each answer. HTTP is left out, because its provider
// does not answer here.
func (s *schedule) settle() {
	s.Up.Room, s.Down.Room, s.Up.Most, s.Down.Most = -1, -1, 0, 0
	s.drive()
	for range 20 {
		if s.Over || s.protocol == policy.HTTP {
			return
		}
		s.pass(3 * time.Second)
		if s.protocol != policy.SMPP {
			break
		}
		s.pass(time.Minute)
		s.tend()
	}
	if n := s.Machine.Waiting(); !s.Over && n+len(s.Up.In)+len(s.Down.In) > 0 {
		s.t.Fatalf("%d messages wait without a reason, before %d and %d unread bytes", n, len(s.Up.In), len(s.Down.In))
	}
}

// checkTexts checks that messages of HTTP and lines leave whole and in order, with refusals
// between them.
func (s *schedule) checkTexts() {
	if s.protocol == policy.SMPP && s.texts[0] != nil {
		s.checkPlaces()
	}
	if s.texts[0] == nil || s.protocol != policy.HTTP && s.protocol != policy.Lines {
		return
	}
	for direction, got := range [...][]byte{s.Up.Got, s.Down.Got} {
		rest := string(got)
		for _, text := range s.texts[direction] {
			for refusal := isRefusal(rest); refusal > 0; refusal = isRefusal(rest) {
				rest = rest[refusal:]
			}
			if strings.HasPrefix(text, rest) {
				rest = ""
			}
			rest = strings.TrimPrefix(rest, text)
		}
		for refusal := isRefusal(rest); refusal > 0; refusal = isRefusal(rest) {
			rest = rest[refusal:]
		}
		if rest != "" {
			s.t.Fatalf("%q left of %q, and %q was not sent", got, s.texts[direction], rest)
		}
	}
}

// checkPlaces checks that no query overtakes earlier messages.
func (s *schedule) checkPlaces() {
	places := map[string]int{}
	for i, m := range s.messages(s.Up.Got) {
		places[string(m)] = i
	}
	last := 0
	for _, text := range s.texts[0] {
		place, left := places[text]
		if text[7] == query && left && place < last {
			s.t.Fatalf("a query left as number %d, before number %d", place, last)
		}
		last = max(last, place)
	}
}

// isRefusal returns the length of the 429 that text begins with, or of the part of one that
// text consists of; 0 if there is none.
func isRefusal(text string) int {
	const begin = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: "
	if strings.HasPrefix(begin, text) {
		return len(text)
	}
	if !strings.HasPrefix(text, begin) {
		return 0
	}
	if end := strings.Index(text, "\r\n\r\n"); end >= 0 {
		return end + 4
	}
	return len(text)
}

// checkEnd checks that a connection that ended cleanly has passed everything on, and has
// charged all that left.
func (s *schedule) checkEnd() {
	if !s.Over || s.Result != stats.OK {
		return
	}
	if s.Machine.Waiting() > 0 || len(s.Up.In)+len(s.Down.In) > 0 {
		s.t.Fatalf("the connection ended, and %d messages wait", s.Machine.Waiting())
	}
	if s.protocol == policy.HTTP {
		return
	}
	if got := len(s.Up.Got) + s.refused; got != len(s.out[0]) {
		s.t.Fatalf("of %d bytes, %d have left or were refused", len(s.out[0]), got)
	}
	if s.Up.Cost.Bytes != int64(len(s.Up.Got)) || s.Down.Cost.Bytes != int64(len(s.out[1])) {
		s.t.Fatalf("upstream %v are charged for %d bytes, and downstream %v for %d", s.Up.Cost, len(s.Up.Got), s.Down.Cost, len(s.out[1]))
	}
}

// checkOrder checks that only what came has left. Lines and HTTP leave in order; of the other
// protocols, each message leaves at most as often as it came.
func (s *schedule) checkOrder() {
	switch s.protocol {
	case policy.Lines, policy.HTTP:
		s.inOrder(s.Up.Got, s.out[0])
		s.inOrder(withoutRefusals(s.Down.Got), s.out[1])
		return
	}
	came := s.messages(s.out[0])
	for _, m := range s.messages(s.Up.Got) {
		i := slices.IndexFunc(came, func(c []byte) bool { return bytes.Equal(c, m) })
		if i < 0 {
			s.t.Fatalf("%q left, and never came", m)
		}
		came = slices.Delete(came, i, i+1)
	}
}

func (s *schedule) messages(stream []byte) (all [][]byte) {
	for scan := newLink(s.protocol).Up(); ; {
		n, event, err := scan.Next(stream)
		if err != nil || event != frame.Whole {
			return all
		}
		all = append(all, stream[:n])
		stream = stream[n:]
	}
}

// inOrder checks that got is what came, in the same order, perhaps with gaps.
func (s *schedule) inOrder(got, came []byte) {
	for i, b := range got {
		at := bytes.IndexByte(came, b)
		if at < 0 {
			s.t.Fatalf("%q left, and its end %q never came", got, got[i:])
		}
		came = came[at+1:]
	}
}

// withoutRefusals removes all 429 responses, and the part of one at the end.
func withoutRefusals(p []byte) (rest []byte) {
	for len(p) > 0 {
		if n := isRefusal(string(p)); n > 0 {
			p = p[n:]
			continue
		}
		next := bytes.IndexByte(p[1:], 'H') + 1
		if next == 0 {
			next = len(p)
		}
		rest, p = append(rest, p[:next]...), p[next:]
	}
	return rest
}
