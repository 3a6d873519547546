package exchange_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/exchange/exchangetest"
	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
)

// A repeated is a connection to a provider that refuses messages. It knows nothing of how
// messages are sent again: it notes what each side sees, and check compares.
type repeated struct {
	*exchangetest.Host
	t        testing.TB
	protocol policy.Protocol
	now      time.Time
	classes  map[string]*shaper.Class
	roots    []*shaper.Class
	keyed    bool // the order holds for each recipient
	inBody   bool // the provider refuses in the body of a 200

	// The provider.
	refuses func(id, attempt int) bool // whether it refuses a message
	latency func() time.Duration
	heard   []byte
	answers []answer    // in the order in which they are due
	came    map[int]int // how often each message came
	last    map[int]bool
	taken   []int // messages that it has accepted, in order

	// The client.
	sent []int
	got  map[int][]bool // the answers to each message; true: accepted
	seen []byte
	keys map[int]string // the class and key of each message
}

// An answer is on its way from the provider.
type answer struct {
	due  time.Time
	text []byte
}

const retryPolicy = `
[class.account]
rate = "2000 messages/s"
algorithm = "token"
burst = "20 messages"
on_throttle = { pause = "20ms", max = "100ms" }
[class.a]
parent = "account"
rate = "1000 messages/s"
%s
[class.b]
parent = "account"
rate = "1000 messages/s"
%s
[listener.l]
listen = "127.0.0.1:1"
protocol = %q
upstream = "discard:"
class = "a"
[[rule]]
%s
class = "b"
`

// newRepeated returns a connection of a protocol whose classes have these keys.
func newRepeated(t testing.TB, protocol policy.Protocol, keys string) *repeated {
	r := &repeated{t: t, protocol: protocol, now: time.Unix(59, 500e6), came: map[int]int{}, last: map[int]bool{}, got: map[int][]bool{},
		keys: map[int]string{}, refuses: func(int, int) bool { return false }, latency: func() time.Duration { return time.Millisecond }}
	p := r.read(keys)
	r.Host = exchangetest.New(r.now, exchange.Config{Protocol: protocol, Link: newLink(protocol), Class: r.class("a")})
	r.obey(p)
	r.Up.Heard, r.Down.Heard = r.provider, r.client
	return r
}

// read makes the classes of a policy.
func (r *repeated) read(keys string) *policy.Policy {
	rule := `source_addr = "o*"`
	if r.protocol == policy.HTTP {
		rule = `path = "/o*"`
	}
	p, _, err := policy.Parse("p.toml", fmt.Appendf(nil, retryPolicy, keys, keys, r.protocol, rule))
	if err != nil {
		r.t.Fatal(err)
	}
	p, _ = p.Scheduled(r.now)
	r.classes = map[string]*shaper.Class{}
	for i, c := range shaper.NewTree(r.now, p.Classes) {
		if r.classes[p.Classes[i].Name] = c; c.Parent() == nil {
			r.roots = append(r.roots, c)
		}
	}
	return p
}

func (r *repeated) obey(p *policy.Policy) {
	r.Machine.Obey(r.now, repeatedConn, policy.Compile(p).Messages(repeatedConn), r.class)
}

// repeatedConn is the connection, as rules and keys see it.
var repeatedConn = policy.Conn{Listener: "l"}

// class joins a class.
func (r *repeated) class(name string) *shaper.Class { return r.classes[name].Join(r.now, repeatedConn) }

// reload gives the connection new classes.
func (r *repeated) reload(keys string) {
	if r.Over {
		return
	}
	gone := map[*shaper.Class]bool{}
	for c := range maps.Values(r.classes) {
		gone[c] = true
	}
	p := r.read(keys)
	r.Machine.Belong(r.now, r.class("a"))
	r.obey(p)
	r.Machine.Reroute(r.now, gone, nil)
	r.drive()
}

func (r *repeated) drive() {
	if !r.Over {
		r.Drive(r.now)
	}
}

// send makes the client send a message, to a class and with a key.
func (r *repeated) send(id int, class string, key int, size int) {
	switch {
	case r.keyed:
		r.keys[id] = class + strconv.Itoa(key)
	case r.protocol == policy.SMPP:
		r.keys[id] = class
	}
	r.sent = append(r.sent, id)
	from, to := class+strings.Repeat("x", key), fmt.Sprint(key)
	if r.protocol == policy.HTTP {
		body := strings.Repeat("b", size)
		r.Up.In = fmt.Appendf(r.Up.In, "POST /%s/%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", from, id, size, body)
	} else {
		r.Up.In = append(r.Up.In, pdu(4, 0, uint32(id), "\x00\x00\x00"+from+"\x00\x00\x00"+to+"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"+strings.Repeat("x", size))...)
	}
	r.drive()
}

// provider hears what was written to it.
func (r *repeated) provider(p []byte) {
	r.heard = append(r.heard, p...)
	for {
		id, n := r.message()
		if n == 0 {
			return
		}
		r.heard = r.heard[n:]
		r.came[id]++
		refused := r.refuses(id, r.came[id])
		if !refused {
			r.taken = append(r.taken, id)
		}
		due := r.now.Add(r.latency())
		if last := len(r.answers) - 1; r.protocol == policy.HTTP && last >= 0 && r.answers[last].due.After(due) {
			due = r.answers[last].due
		}
		r.answers = append(r.answers, answer{due, r.answerTo(id, refused)})
		slices.SortStableFunc(r.answers, func(a, b answer) int { return a.due.Compare(b.due) })
	}
}

// message reads the message that the provider has heard first, and returns its length; 0 if it
// has not heard all of it.
func (r *repeated) message() (id, n int) {
	if r.protocol == policy.SMPP {
		if len(r.heard) < 16 || len(r.heard) < int(binary.BigEndian.Uint32(r.heard)) {
			return 0, 0
		}
		return int(binary.BigEndian.Uint32(r.heard[12:])), int(binary.BigEndian.Uint32(r.heard))
	}
	from := bufio.NewReaderSize(bytes.NewReader(r.heard), len(r.heard))
	request, err := http.ReadRequest(from)
	if err != nil {
		return 0, 0
	}
	if body, err := io.ReadAll(request.Body); err != nil || int64(len(body)) < request.ContentLength {
		return 0, 0
	}
	id, _ = strconv.Atoi(request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:])
	return id, len(r.heard) - from.Buffered()
}

func (r *repeated) answerTo(id int, refused bool) []byte {
	switch {
	case r.protocol == policy.SMPP && refused:
		return []byte(pdu(0x80000004, 0x58, uint32(id), ""))
	case r.protocol == policy.SMPP:
		return []byte(pdu(0x80000004, 0, uint32(id), "id\x00"))
	case refused && r.inBody:
		return refusedInBody(id)
	case refused && id%3 == 0:
		return fmt.Appendf(nil, "HTTP/1.1 429 No\r\nTransfer-Encoding: chunked\r\nX-Id: %d\r\n\r\n3\r\nno!\r\n0\r\n\r\n", id)
	case refused:
		return fmt.Appendf(nil, "HTTP/1.1 429 No\r\nContent-Length: %d\r\nX-Id: %d\r\n\r\n%s", id%2, id, "!"[:id%2])
	}
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Id: %d\r\n\r\nok", id)
}

// throttledByN is what refusedInBody matches. The class that has it pauses itself.
const throttledByN = "throttled_by = { json = \"n\", equals = [\"1\"] }\non_throttle = { pause = \"20ms\", max = \"100ms\" }\n"

// refusedInBody returns an answer that refuses a message in its body, in one of several forms. A
// field says so too, for the client of the test.
func refusedInBody(id int) []byte {
	head, body := fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Id: %d\r\nX-Refused: yes\r\n", id), `{"n":1}`
	switch id % 4 {
	case 0:
		return []byte(chunked(head, body[:1], body[1:4], body[4:]))
	case 1:
		head, body = head+"Content-Encoding: gzip\r\n", zipped(body)
	case 2:
		head, body = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+head, body+strings.Repeat(" ", 20_000)
	}
	return fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
}

// client sees what was written to it. A 429 of shaper does not say to which request it is.
func (r *repeated) client(p []byte) {
	r.seen = append(r.seen, p...)
	if r.protocol == policy.SMPP {
		for len(r.seen) >= 16 {
			id, status := int(binary.BigEndian.Uint32(r.seen[12:])), binary.BigEndian.Uint32(r.seen[8:])
			if r.seen[7] == 0x04 {
				r.got[id] = append(r.got[id], status == 0)
			}
			r.seen = r.seen[binary.BigEndian.Uint32(r.seen):]
		}
		return
	}
	for {
		from := bufio.NewReaderSize(bytes.NewReader(r.seen), len(r.seen))
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			return
		}
		if body, err := io.ReadAll(response.Body); err != nil || response.ContentLength > int64(len(body)) {
			return
		}
		r.seen = r.seen[len(r.seen)-from.Buffered():]
		if response.StatusCode == 103 {
			continue
		}
		next := r.sent[0]
		for _, id := range r.sent { // answers come in the order of the requests
			if next = id; len(r.got[id]) == 0 {
				break
			}
		}
		if id := response.Header.Get("X-Id"); id != "" && id != strconv.Itoa(next) {
			r.t.Fatalf("the answer to request %s comes where that to %d belongs", id, next)
		}
		r.got[next] = append(r.got[next], response.StatusCode == 200 && response.Header.Get("X-Refused") == "")
	}
}

// pass lets time pass: messages leave, and answers come.
func (r *repeated) pass(d time.Duration) {
	end := r.now.Add(d)
	for {
		next, root := limit.Never, (*shaper.Class)(nil)
		for _, one := range r.roots {
			if at := one.Next(r.now); at.Before(next) {
				next, root = at, one
			}
		}
		if len(r.answers) > 0 && !r.Over && !r.answers[0].due.After(next) {
			next, root = r.answers[0].due, nil
		}
		if next.After(end) {
			break
		}
		if next.After(r.now) {
			r.now = next
		}
		if root == nil {
			r.Down.In = append(r.Down.In, r.answers[0].text...)
			r.answers = r.answers[1:]
			r.drive()
		} else if it := root.Release(r.now); it != nil {
			it.Owner.Leave(r.now)
		}
	}
	r.now = end
	r.drive()
}

// check checks what holds whatever happens: no answer without a message or twice, nothing
// accepted twice, and nothing accepted that the client takes for refused.
func (r *repeated) check(ended bool) {
	accepted := map[int]bool{}
	for _, id := range r.taken {
		if accepted[id] {
			r.t.Fatalf("message %d was accepted twice", id)
		}
		accepted[id] = true
	}
	for _, id := range r.sent {
		got := r.got[id]
		switch {
		case len(got) > 1, len(got) == 0 && !ended:
			r.t.Fatalf("message %d has %d answers", id, len(got))
		case len(got) == 1 && got[0] != accepted[id]:
			r.t.Fatalf("message %d is accepted: %t, and the client is told %t", id, accepted[id], got[0])
		}
	}
}

// endsGently checks that a connection which has ended because it is old ends without a message that
// the provider has got and the client has no answer to.
func (r *repeated) endsGently() {
	for _, id := range r.sent {
		if r.came[id] > 0 && len(r.got[id]) == 0 {
			r.t.Fatalf("the connection has ended, and message %d came without an answer", id)
		}
	}
}

// inOrder checks that the provider accepts the messages of each class and key in the order in
// which they came.
func (r *repeated) inOrder() {
	last := map[string]int{}
	for _, id := range r.taken {
		if key := r.keys[id]; id < last[key] {
			r.t.Fatalf("message %d of %s was accepted after message %d", id, key, last[key])
		} else {
			last[key] = id
		}
	}
}

// idle checks that nothing is left of the connection in its classes, nor in memory.
func (r *repeated) idle() {
	r.pass(time.Second)
	for _, c := range r.roots {
		if n, waits := c.InFlight(), c.Backlog().Items; n != 0 || waits != 0 {
			r.t.Fatalf("%d requests of %s are in flight, and %d wait", n, c.Name(), waits)
		}
	}
	if n := exchange.KeptMemory(); n != 0 {
		r.t.Fatalf("%d bytes are still kept", n)
	}
}

// window sends so many messages, and waits for answers while ten have none.
func (r *repeated) window(all int) {
	next := 1
	for len(r.got) < all {
		for ; next <= all && next-len(r.got) <= 10; next++ {
			r.send(next, "b", 1, 20)
		}
		r.pass(5 * time.Millisecond)
	}
}
