package conn

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/tests/trial"
)

var oneSchedule = flag.Uint64("schedule", 0, "run this schedule only, 1 to 10000, in each protocol")

// schedules returns how many schedules to play: fewer with the race detector, which takes six
// times as long.
func schedules() uint64 {
	if trial.Raced {
		return 1_000
	}
	return trial.Size[uint64](2_000, 10_000)
}

// Sessions go through random events in virtual time: peers write, read, stall, end one
// direction or both, and reset. Operations are interrupted, connections break, classes change
// their rates and go. Whatever happens:
//
//   - what a peer reads is a prefix of what the other has written; a client of HTTP may get one refusal behind all of
//     it, see declined;
//   - it reads a clean end only where the other has ended, after everything has arrived; an upstream of
//     HTTP that has ended itself need not get the requests that had not left by then;
//   - classes and listeners count as sent what was written, and as dropped what was read but
//     not written;
//   - if nothing was reset or broken, everything arrives, and both ends are clean;
//   - the session ends, and leaves nothing behind.
func TestRandomSchedules(t *testing.T) {
	protocols := []string{"tcp", "tcp", "lines", "smpp", "http"}
	const each = 100 // schedules on one server
	for first := uint64(1); first <= schedules(); first += each {
		protocol := protocols[first/each%uint64(len(protocols))]
		t.Run(fmt.Sprintf("%s %d", protocol, first), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T) {
				w := newTheatre(t, protocol)
				for seed := first; seed < first+each && !t.Failed(); seed++ {
					if *oneSchedule == 0 || *oneSchedule == seed {
						w.play(seed)
					}
				}
			})
		})
	}
}

// A theatre is a server on which schedules are played, one after another.
type theatre struct {
	*rig
	protocol string
	memory   *sock.Memory
	upstream *sock.MemoryListener
	policies []*policy.Policy
}

func newTheatre(t *testing.T, protocol string) *theatre {
	w := &theatre{rig: bare(t), protocol: protocol, memory: memoryOf(t)}
	l, err := w.memory.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.upstream = l.(*sock.MemoryListener)
	t.Cleanup(func() { l.Close() })
	slow, quick := "40 messages/s", "500 messages/s"
	if protocol == "tcp" {
		slow, quick = "200kB/s", "20MB/s"
	}
	for _, p := range []struct{ name, rate, back string }{
		{"c", slow, ""}, {"c", quick, ""}, {"c", quick, "3kB/s"}, {"c", slow, "1MB/s"}, {"d", slow, ""}, {"d", quick, "1MB/s"},
	} {
		text, more := class(p.name, p.rate, `overflow = "wait"`), []string{`listen = "127.0.0.1:80"`}
		if p.back != "" {
			text += class("back", p.back)
			more = append(more, `return_class = "back"`)
		}
		w.policies = append(w.policies, parse(t, text+listener("l", protocol, l.Addr().String(), p.name, more...)))
	}
	w.adopt(w.policies[0])
	return w
}

// A schedule is what happens to one session.
type schedule struct {
	*theatre
	*rand.Rand
	seed             uint64
	steps            []string // for people
	client, upstream *speaker
	answers          []string // to the requests that the upstream has still to hear
	rough            bool     // something was reset or broken
	refused          bool     // the client has heard a refusal
	before           totals
	gone             []*shaper.Class
}

// A speaker is one peer.
type speaker struct {
	name  string
	end   *sock.MemoryEnd
	text  string // what it says
	ends  []int  // where its messages end
	said  int    // how much of it the network has taken
	heard []byte
	ended bool // it has said that nothing more comes
	clean bool // it has heard an end
	cut   bool // it has heard a reset
	gone  bool // it has reset its end
}

// over reports whether it has heard everything it can.
func (s *speaker) over() bool { return s.clean || s.cut || s.gone }

// say writes at most n bytes.
func (s *speaker) say(n int) {
	if s.ended || s.cut || s.gone {
		return
	}
	said, err := s.end.Write([]byte(s.text[s.said:min(s.said+n, len(s.text))]))
	s.said += said
	s.failed(err)
}

// failed notes an error of a write: the network reports a reset once, and after that reads
// find an end.
func (s *speaker) failed(err error) { s.cut = s.cut || err != nil && err != unix.EAGAIN }

// hear reads at most n bytes.
func (s *speaker) hear(n int) {
	for buf := make([]byte, 4<<10); n > 0 && !s.over(); {
		got, err := s.end.Read(buf[:min(n, len(buf))])
		s.heard = append(s.heard, buf[:got]...)
		n -= got
		switch {
		case err == unix.EAGAIN:
			return
		case err != nil:
			s.cut = true
		case got == 0:
			s.clean = true
		}
	}
}

func (s *speaker) finish() {
	if !s.ended && !s.gone && s.end.CloseWrite() == nil {
		s.ended = true
	}
}

func (s *speaker) reset() {
	s.end.Reset()
	s.gone = true
}

// totals are the values of counters.
type totals struct {
	up, down         uint64 // bytes that the listener has sent
	charged, dropped uint64 // upstream bytes of all classes
	messages         uint64 // that classes have sent
	refused          uint64 // messages that classes have refused
}

func (p *schedule) totals() (n totals) {
	sent := &p.service("l").stats.Sent
	n.up, n.down = sent[stats.Upstream].Bytes.Load(), sent[stats.Downstream].Bytes.Load()
	for _, c := range append(p.shaper.Classes(), p.gone...) {
		if c.Name() == "back" {
			continue
		}
		n.charged += c.Stats.Sent[stats.Upstream].Bytes.Load()
		n.messages += c.Stats.Sent[stats.Upstream].Messages.Load()
		for i := range c.Stats.Dropped {
			n.refused += c.Stats.Refused[i].Items.Load()
			n.dropped += c.Stats.Dropped[i].Bytes.Load() + c.Stats.Refused[i].Bytes.Load()
		}
	}
	return n
}

// play plays a schedule.
func (w *theatre) play(seed uint64) {
	p := &schedule{theatre: w, seed: seed, Rand: rand.New(rand.NewPCG(seed, 13))}
	p.before = p.totals()
	p.write()
	if !p.connect() {
		return
	}
	for range 5 + p.IntN(40) {
		p.step()
		if p.IntN(3) > 0 {
			synctest.Wait()
		}
		p.judge()
	}
	p.finish()
}

// connect connects the client, and accepts at the upstream.
func (p *schedule) connect() bool {
	p.client.end = p.memory.DialEnd(netip.MustParseAddrPort("127.0.0.1:80"), netip.Addr{})
	synctest.Wait()
	end, _, err := p.theatre.upstream.Accept()
	if err != nil {
		p.fail("the upstream gets no connection: %v", err)
		return false
	}
	p.upstream.end = end.(*sock.MemoryEnd)
	return true
}

// write writes what the peers are to say.
func (p *schedule) write() {
	p.client, p.upstream = &speaker{name: "client"}, &speaker{name: "upstream"}
	var text strings.Builder
	if p.protocol == "tcp" {
		for _, s := range []*speaker{p.client, p.upstream} {
			s.text = placed(p.IntN(1 << (4 + p.IntN(15))))
		}
		return
	}
	for i := range p.IntN(40) {
		request, answer := p.message(i)
		text.WriteString(request)
		p.client.ends = append(p.client.ends, text.Len())
		p.answers = append(p.answers, answer)
	}
	p.client.text = text.String()
}

// placed returns n bytes that show where in the text they stand.
func placed(n int) string { return places()[:n] }

const longest = 1 << 18 // bytes that a peer of TCP may say

var places = sync.OnceValue(func() string {
	var b strings.Builder
	for b.Len() < longest {
		fmt.Fprintf(&b, "%d ", b.Len())
	}
	return b.String()
})

// message returns a request and its answer.
func (p *schedule) message(i int) (request, answer string) {
	body := strings.Repeat("b", p.IntN(1<<p.IntN(13)))
	switch p.protocol {
	case "smpp":
		return submitFrom("a", uint32(i+1)), pdu(submitResp, 0, uint32(i+1), "id\x00")
	case "http":
		request = fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
		if p.IntN(2) == 0 {
			request = fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
		}
		answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if p.IntN(2) == 0 {
			answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body)+1, body+"c")
		}
		return request, answer
	}
	return fmt.Sprintf("%d %s\n", i, body), fmt.Sprintf("answer %d\n", i)
}

// answer makes the upstream answer what it has heard.
func (p *schedule) answer() {
	ends := p.client.ends
	for len(p.answers) > 0 && len(p.upstream.heard) >= ends[len(ends)-len(p.answers)] {
		p.upstream.text += p.answers[0]
		p.upstream.ends = append(p.upstream.ends, len(p.upstream.text))
		p.answers = p.answers[1:]
	}
}

// step lets one event happen.
func (p *schedule) step() {
	one, other := p.client, p.upstream
	if p.IntN(2) == 0 {
		one, other = other, one
	}
	amount := 1 + p.IntN(1<<(1+p.IntN(18)))
	events := []struct {
		weight int
		name   string
		do     func()
	}{
		{30, "says", func() { one.say(amount) }},
		{30, "hears", func() { one.hear(amount); p.answer() }},
		{10, "pauses", func() { time.Sleep(time.Duration(p.IntN(2000)) * time.Millisecond) }},
		{4, "ends", one.finish},
		{6, "is interrupted", func() {
			errs := []error{unix.EINTR, unix.EAGAIN}
			one.end.Other().Interrupt(sock.Op(p.IntN(2)), errs[p.IntN(2)], errs[p.IntN(2)])
		}},
		{4, "sends urgent data", func() {
			if p.protocol == "tcp" && !one.ended && !one.over() {
				one.failed(one.end.WriteUrgent('!'))
			}
		}},
		{5, "sees a reload", p.change},
		{1, "resets", func() { p.rough = true; one.reset() }},
		{1, "breaks", func() {
			p.rough = true
			other.end.Other().Break([]error{unix.ETIMEDOUT, unix.ECONNRESET, unix.EPIPE}[p.IntN(3)])
		}},
	}
	sum := 0
	for _, e := range events {
		sum += e.weight
	}
	at := p.IntN(sum)
	for _, e := range events {
		if at -= e.weight; at < 0 {
			p.steps = append(p.steps, fmt.Sprintf("%s %s (%d)", one.name, e.name, amount))
			e.do()
			return
		}
	}
}

// change puts another policy in force. A class may be gone.
func (p *schedule) change() {
	before := p.shaper.Classes()
	next := p.policies[p.IntN(len(p.policies))]
	p.adopt(next)
	for _, c := range before {
		if p.shaper.Class(c.Name()) != c {
			p.gone = append(p.gone, c)
		}
	}
	p.gone = slices.DeleteFunc(p.gone, func(c *shaper.Class) bool { return p.shaper.Class(c.Name()) == c }) // they have come back
}

// judge checks what must be true at any time.
func (p *schedule) judge() {
	p.answer()
	for _, way := range []struct{ from, to *speaker }{{p.client, p.upstream}, {p.upstream, p.client}} {
		said, heard := way.from.text[:way.from.said], string(way.to.heard)
		if p.protocol == "tcp" { // only the last of the urgent bytes is outside of the stream
			heard = strings.ReplaceAll(heard, "!", "")
		}
		if refusal, found := strings.CutPrefix(heard, said); found && refusal != "" && p.protocol == "http" && way.to == p.client {
			p.declined(refusal)
			heard = said
		}
		switch {
		case !strings.HasPrefix(said, heard):
			p.fail("the %s hears %d bytes that are no prefix of the %d that were said", way.to.name, len(heard), len(said))
		case way.to.clean && !way.from.ended:
			p.fail("the %s hears an end that nobody has said", way.to.name)
		case way.to.clean && heard != said && !(p.protocol == "http" && way.to == p.upstream && way.to.ended):
			p.fail("the %s hears an end behind %d bytes of %d", way.to.name, len(heard), len(said))
		case way.to.clean && !p.mayEnd(way.from, len(heard)):
			p.fail("the %s hears a clean end amid a message", way.to.name)
		}
	}
}

// declined checks a refusal that the client hears behind all that the upstream has said. The upstream has ended, or
// its connection has broken, behind whole answers to all requests that have left; and the request that comes next has
// reached its class.
func (p *schedule) declined(refusal string) {
	said, left := p.upstream.said, int(p.upstream.end.Other().Passed(sock.OnWrite))
	next := slices.Index(p.client.ends, left) + 1
	switch {
	case !p.upstream.ended && !p.rough:
		p.fail("the client hears a refusal, and the upstream goes on")
	case !p.mayEnd(p.upstream, said) || said != len(p.upstream.text):
		p.fail("the client hears a refusal amid an answer")
	case left > 0 && next == 0 || len(p.upstream.ends) != next:
		p.fail("the client hears a refusal behind %d answers, and %d bytes have left", len(p.upstream.ends), left)
	case !strings.Contains(p.client.text[left:min(len(p.client.text), int(p.client.end.Other().Passed(sock.OnRead)))], "\r\n\r\n"):
		p.fail("the client hears a refusal of nothing")
	case !strings.HasPrefix(refusal, tooMany[:min(len(tooMany), len(refusal))]):
		p.fail("the client hears %q", refusal)
	case p.client.clean && !isLast(refusal):
		p.fail("the client hears an end behind %q", refusal)
	}
	p.refused = true
}

// tooMany is how a refusal begins.
const tooMany = "HTTP/1.1 429 Too Many Requests\r\n"

// isLast reports whether a text is one whole answer that ends the connection.
func isLast(text string) bool {
	in := bufio.NewReader(strings.NewReader(text))
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err == nil && answer.Close && in.Buffered() == 0
}

// mayEnd reports whether what a speaker says may end after n bytes, not amid a message.
func (p *schedule) mayEnd(s *speaker, n int) bool {
	return p.protocol == "tcp" || p.protocol == "lines" || n == 0 || slices.Contains(s.ends, n)
}

// finish lets both peers say everything, hear everything and end. Then it judges the session.
func (p *schedule) finish() {
	p.steps = append(p.steps, "both go on to the end")
	for range 3000 {
		for _, s := range []*speaker{p.client, p.upstream} {
			s.hear(1 << 20)
			p.answer()
			s.say(1 << 20)
		}
		if p.client.said == len(p.client.text) {
			p.client.finish()
		}
		if p.upstream.over() && p.upstream.said == len(p.upstream.text) {
			p.upstream.finish()
		}
		if p.client.over() && p.upstream.over() {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.judge()
	if !p.rough && p.mayEnd(p.client, p.client.said) && p.mayEnd(p.upstream, p.upstream.said) && !(p.client.clean && p.upstream.clean) {
		p.fail("nothing went wrong, but not everything has ended cleanly")
	}
	for _, s := range []*speaker{p.client, p.upstream} {
		s.reset()
	}
	time.Sleep(10 * time.Second)
	if n := len(p.Sessions()); n != 0 {
		p.fail("%d sessions remain", n)
	}
	p.count()
}

// count checks the counters.
func (p *schedule) count() {
	now := p.totals()
	in, out := p.client.end.Other(), p.upstream.end.Other()
	if n := now.up - p.before.up; n != out.Passed(sock.OnWrite) {
		p.fail("the listener counts %d bytes to the upstream, want %d", n, out.Passed(sock.OnWrite))
	}
	if n := now.down - p.before.down; n != in.Passed(sock.OnWrite) {
		p.fail("the listener counts %d bytes to the client, want %d", n, in.Passed(sock.OnWrite))
	}
	charged, dropped := now.charged-p.before.charged, now.dropped-p.before.dropped
	if p.protocol == "tcp" && charged != out.Passed(sock.OnWrite) {
		p.fail("%d bytes are charged, and %d have left", charged, out.Passed(sock.OnWrite))
	}
	if p.protocol == "tcp" && charged+dropped != in.Passed(sock.OnRead) {
		p.fail("%d bytes are charged and %d dropped, and %d were read", charged, dropped, in.Passed(sock.OnRead))
	}
	if n := now.refused - p.before.refused; n > 1 || p.refused && n != 1 {
		p.fail("%d messages are refused; the client has heard a refusal: %v", n, p.refused)
	}
	heard, said := 0, 0
	for _, end := range p.client.ends {
		if end <= len(p.upstream.heard) {
			heard++
		}
		if end <= p.client.said {
			said++
		}
	}
	if n := int(now.messages - p.before.messages); p.protocol != "tcp" && (n < heard || n > said+1) {
		p.fail("%d messages are charged, %d were said and %d heard", n, said, heard)
	}
	for _, c := range append(p.shaper.Classes(), p.gone...) {
		if c.Backlog() != (shaper.Backlog{}) || c.InFlight() != 0 {
			p.fail("class %s has %d items waiting and %d in flight", c.Name(), c.Backlog().Items, c.InFlight())
		}
	}
}

func (p *schedule) fail(format string, about ...any) {
	p.t.Helper()
	p.t.Fatalf("schedule %d of %s: %s\n%s", p.seed, p.protocol, fmt.Sprintf(format, about...), strings.Join(p.steps, "\n"))
}
