package conn

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shaper/shaper"
	"shaper/sock"
	"shaper/tests/trial"
)

// Clients send messages, and a provider refuses some of them. Each peer ends, closes or resets its connection at any
// moment, also amid a message or an answer, or reads no more; the keys of the class change. Whatever happens:
//
//   - a message comes again only behind a refusal that the provider has written;
//   - soon after both peers of each session have gone, no session is left, nothing waits in a class, and nothing counts
//     as in flight.
func TestRandomSchedulesOfDepartures(t *testing.T) {
	const each = 50 // departures on one server
	last := trial.Size[uint64](1000, 4000)
	if trial.Raced {
		last = 400
	}
	for first := uint64(1); first <= last; first += each {
		protocol := []string{"smpp", "http"}[first/each%2]
		t.Run(fmt.Sprintf("%s %d", protocol, first), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T) {
				w := newParting(t, protocol)
				for seed := first; seed < first+each && !t.Failed(); seed++ {
					if *oneSchedule == 0 || *oneSchedule == seed {
						w.play(seed)
					}
				}
			})
		})
	}
}

// mostAfterwards is how long a session may stay after both its peers have gone. If they have ended cleanly, what waits
// leaves first: 80 messages at 10 a second, after a pause of 3 s. If a peer has reset its connection, the janitor may
// need two checks to find out, 8 s.
const mostAfterwards = 20 * time.Second

// A parting is a server whose clients and provider part at random.
type parting struct {
	*rig
	*rand.Rand
	protocol string
	seed     uint64
	steps    []string // for people
	all      []*peers
	memory   *sock.Memory
	upstream *sock.MemoryListener
	odds     int // the provider refuses one message in so many
}

func newParting(t *testing.T, protocol string) *parting {
	w := &parting{rig: bare(t), protocol: protocol, memory: memoryOf(t)}
	l, err := w.memory.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.upstream = l.(*sock.MemoryListener)
	t.Cleanup(func() { l.Close() })
	return w
}

// peers are those of one session: a client and a provider.
type peers struct {
	w                *parting
	client, provider *speaker
	came             map[int]int // how often each message came
	refusals         map[int]int // where the last refusal of each message is known, in what the provider says
	read             int         // bytes of messages that the provider has heard and understood
}

// play plays one departure.
func (w *parting) play(seed uint64) {
	w.seed, w.Rand, w.steps, w.all = seed, rand.New(rand.NewPCG(seed, 31)), nil, nil
	w.odds = 1 + w.IntN(6)
	w.adopt(parse(w.t, w.policy()))
	for range 1 + w.IntN(4) {
		if w.all = append(w.all, w.connect()); w.t.Failed() {
			return
		}
	}
	for range w.IntN(80) {
		w.step()
		if w.IntN(3) > 0 {
			synctest.Wait()
		}
	}
	for _, one := range w.all {
		one.part()
	}
	time.Sleep(mostAfterwards)
	w.judge()
}

// policy returns a policy with random keys of the class.
func (w *parting) policy() string {
	pick := func(keys ...string) string { return keys[w.IntN(len(keys))] }
	keys := []string{
		fmt.Sprintf("retry = { max = %d, in_flight = %d }", 1+w.IntN(3), 1+w.IntN(4)),
		pick("", `queue = "3 messages"`, `queue = "20 messages"`),
		pick("", `overflow = "wait"`),
		pick(`on_throttle = { pause = "1s", max = "3s" }`, `on_throttle = { pause = "20ms", max = "1s" }`),
		pick("", "", "in_flight = 1", "in_flight = 3"),
		pick("", "", `max_wait = "200ms"`),
	}
	if w.protocol == "http" && w.IntN(3) == 0 {
		keys = append(keys, `throttled_by = { json = "n", equals = ["1"] }`)
	}
	if w.IntN(6) == 0 {
		keys[0] = ""
	}
	w.steps = append(w.steps, keys...)
	return class("c", pick("10 messages/s", "40 messages/s", "500 messages/s"), keys...) +
		listener("l", w.protocol, w.upstream.Addr().String(), "c", `listen = "127.0.0.1:80"`)
}

// connect begins a session.
func (w *parting) connect() *peers {
	p := &peers{w, &speaker{name: "client"}, &speaker{name: "provider"}, map[int]int{}, map[int]int{}, 0}
	p.client.end = w.memory.DialEnd(netip.MustParseAddrPort("127.0.0.1:80"), netip.Addr{})
	synctest.Wait()
	end, _, err := w.upstream.Accept()
	if err != nil {
		w.fail("the provider gets no connection: %v", err)
		return p
	}
	p.provider.end = end.(*sock.MemoryEnd)
	for i := range w.IntN(20) {
		p.client.text += w.message(i + 1)
	}
	if w.protocol == "smpp" && w.IntN(3) == 0 {
		p.client.text += pdu(unbind, 0, 1000, "")
	}
	return p
}

// message returns the message with a number.
func (w *parting) message(id int) string {
	switch body := strings.Repeat("b", w.IntN(1<<w.IntN(13))); {
	case w.protocol == "smpp" && w.IntN(8) == 0:
		return pdu(enquire, 0, uint32(1000+id), "")
	case w.protocol == "smpp":
		return submitFrom("a", uint32(id))
	case w.IntN(2) == 0:
		return fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", id)
	default:
		return fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
	}
}

// step lets one thing happen.
func (w *parting) step() {
	p := w.all[w.IntN(len(w.all))]
	amount := 1 + w.IntN(1<<(1+w.IntN(12)))
	var name string
	var do func()
	switch n := w.IntN(100); {
	case n < 25:
		name, do = "the client says", func() { p.client.say(amount) }
	case n < 35:
		name, do = "the client hears", func() { p.client.hear(amount) }
	case n < 60:
		name, do = "the provider hears", func() { p.provider.hear(amount); p.answer() }
	case n < 80:
		name, do = "the provider says", func() { p.provider.say(amount) }
	case n < 92:
		name, do = "time passes", func() { time.Sleep(time.Duration(w.IntN(400)) * time.Millisecond) }
	case n < 94:
		name, do = "the client ends", p.client.finish
	case n < 96:
		name, do = "the provider ends", p.provider.finish
	case n < 97:
		name, do = "the client goes", func() { w.leave(p.client) }
	case n < 99:
		name, do = "the policy changes", func() { w.adopt(parse(w.t, w.policy())) }
	default:
		name, do = "the provider goes", func() { w.leave(p.provider) }
	}
	w.steps = append(w.steps, fmt.Sprintf("%p: %s (%d)", p, name, amount))
	do()
}

// leave lets a peer go: it closes or resets its connection.
func (w *parting) leave(s *speaker) {
	if s.gone {
		return
	}
	if s.gone = true; w.IntN(2) == 0 {
		s.end.Close()
	} else {
		s.end.Reset()
	}
}

// part lets both peers go, at different times.
func (p *peers) part() {
	w := p.w
	one, other := p.client, p.provider
	if w.IntN(2) == 0 {
		one, other = other, one
	}
	if w.steps = append(w.steps, fmt.Sprintf("%p: the %s goes, and then the other", p, one.name)); w.IntN(2) == 0 {
		one.finish()
	}
	if w.IntN(3) > 0 {
		time.Sleep(time.Duration(w.IntN(100)) * time.Millisecond)
	}
	w.leave(one)
	if w.IntN(3) > 0 {
		time.Sleep(time.Duration(w.IntN(3000)) * time.Millisecond)
	}
	w.leave(other)
}

// answer makes the provider answer what it has heard.
func (p *peers) answer() {
	for {
		id, n := p.next(p.provider.heard[p.read:])
		if n == 0 {
			return
		}
		if p.read += n; id == 0 {
			continue
		}
		if p.came[id]++; p.came[id] > 1 && (p.refusals[id] == 0 || p.refusals[id] > p.provider.said) {
			p.w.fail("message %d comes again, and the provider has not refused it", id)
		}
		refuses := p.w.IntN(p.w.odds) == 0
		answer := p.w.answerTo(id, refuses)
		if p.refusals[id] = 0; refuses {
			p.refusals[id] = len(p.provider.text) + knownAt(answer)
		}
		p.provider.text += answer
	}
}

// next finds the message that a text begins with, and returns its number, 0 if it does not count, and its length; 0 if it
// is not whole.
func (p *peers) next(heard []byte) (id, n int) {
	if p.w.protocol == "smpp" {
		if len(heard) < 16 || len(heard) < int(binary.BigEndian.Uint32(heard)) {
			return 0, 0
		}
		if n = int(binary.BigEndian.Uint32(heard)); heard[7] == submit {
			id = int(binary.BigEndian.Uint32(heard[12:]))
		}
		return id, n
	}
	from := bufio.NewReaderSize(bytes.NewReader(heard), len(heard)+16)
	request, err := http.ReadRequest(from)
	if err != nil {
		return 0, 0
	}
	if body, err := io.ReadAll(request.Body); err != nil || int64(len(body)) < request.ContentLength {
		return 0, 0
	}
	id, _ = strconv.Atoi(request.URL.Path[1:])
	return id, len(heard) - from.Buffered()
}

// answerTo returns an answer to a message.
func (w *parting) answerTo(id int, refuses bool) string {
	switch {
	case w.protocol == "smpp" && refuses:
		return pdu(submitResp, 0x58, uint32(id), "")
	case w.protocol == "smpp":
		return pdu(submitResp, 0, uint32(id), "id\x00")
	case refuses && w.IntN(2) == 0:
		return "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" + `{"n":1}`
	case refuses:
		return "HTTP/1.1 429 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno!\r\n0\r\n\r\n"
	}
	return "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" + `{"n":0}`
}

// knownAt returns behind how many bytes it is known that an answer is a refusal: all, or the head of a 429.
func knownAt(answer string) int {
	if strings.HasPrefix(answer, "HTTP/1.1 429 ") {
		return strings.Index(answer, "\r\n\r\n") + len("\r\n\r\n")
	}
	return len(answer)
}

// judge checks that nothing is left.
func (w *parting) judge() {
	for _, one := range w.Sessions() {
		w.fail("a session remains, with %d bytes", one.Waiting)
	}
	for _, c := range w.shaper.Classes() {
		if c.Backlog() != (shaper.Backlog{}) || c.InFlight() != 0 {
			w.fail("class %s has %d items waiting and %d in flight", c.Name(), c.Backlog().Items, c.InFlight())
		}
	}
}

func (w *parting) fail(format string, about ...any) {
	w.t.Helper()
	w.t.Fatalf("departure %d of %s: %s\n%s", w.seed, w.protocol, fmt.Sprintf(format, about...), strings.Join(w.steps, "\n"))
}
