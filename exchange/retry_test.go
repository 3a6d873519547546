package exchange_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/exchange/exchangetest"
	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
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

// Whatever the provider refuses, each message gets one answer, is accepted once at most, and in
// its order.
func TestRetryProperties(t *testing.T) {
	for seed := range uint64(400) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { retrySchedule(t, rand.New(rand.NewPCG(seed, 16))) }) {
			break
		}
	}
}

// A schedule begins half a second before the minute: then one recipient may be woken, and another
// one not any more.
const quietMinute = "quiet = [{ recipient = \"1\", to = \"00:01\" }, { recipient = \"2\", from = \"00:01\", to = \"00:02\" }]\n"

// retrySchedule plays one random schedule.
func retrySchedule(t *testing.T, x *rand.Rand) {
	protocol, inFlight := policy.SMPP, []int{1, 1, 3}[x.IntN(3)]
	keys := fmt.Sprintf("retry = { max = %d, in_flight = %d }\n", 1+x.IntN(4), inFlight)
	keys += one(x, "", "queue = \"2 messages\"\n", "overflow = \"wait\"\nqueue = \"2 messages\"\n", "max_wait = \"50ms\"\n", "in_flight = 2\n")
	keyed := x.IntN(2) == 0
	if x.IntN(3) == 0 {
		protocol, keyed = policy.HTTP, false
	}
	switch {
	case protocol == policy.HTTP:
		keys += one(x, "", "settle = { header = \"X-Id\" }\n", "cost = 2\nsettle = { json = \"n\" }\n", throttledByN, throttledByN)
	case keyed:
		keys += one(x, "per = \"recipient\"\n", quietMinute, "per = \"source\"\n"+quietMinute)
	}
	r := newRepeated(t, protocol, keys)
	odds := []int{2, 5, 50}[x.IntN(3)]
	r.keyed, r.inBody = keyed, strings.Contains(keys, throttledByN) && x.IntN(4) > 0
	r.Down.Most = []int{0, 1 + x.IntN(100)}[x.IntN(2)]
	r.refuses = func(int, int) bool { return x.IntN(odds) == 0 }
	r.latency = func() time.Duration { return time.Duration(x.IntN(30)) * time.Millisecond }
	reloads := r.play(x, keys)
	r.Up.Room = -1
	r.drive()
	broken, before := false, len(r.taken)
	switch x.IntN(4) {
	case 0:
		r.Down.Ends, r.answers, broken = []error{io.EOF, exchange.ErrCut}[x.IntN(2)], nil, true
	case 1:
		r.Up.Ends = io.EOF
	}
	r.drive()
	r.pass(3 * time.Minute)
	r.check(broken || r.Lingers || r.Over && r.Result != stats.OK)
	if r.Lingers && !broken {
		r.endsGently()
	}
	if n := r.Machine.Charges(); n > 0 && !broken && !r.Over {
		t.Fatalf("all requests are answered, and %d charges are kept", n)
	}
	if broken && slices.ContainsFunc(r.taken[before:], func(id int) bool { return r.came[id] > 1 }) {
		t.Fatal("a message is sent again after the connection has ended")
	}
	if inFlight == 1 && reloads == 0 {
		r.inOrder()
	}
	r.Finish(stats.Aborted)
	r.idle()
}

// play does random things to a connection, and returns how often it was a reload.
func (r *repeated) play(x *rand.Rand, keys string) (reloads int) {
	for id := 1; id < 60; {
		switch x.IntN(12) {
		default:
			r.send(id, one(x, "b", "o"), 1+x.IntN(2), []int{0, 5, 3000}[x.IntN(3)])
			id++
		case 0, 1, 2, 3:
			r.pass(time.Duration(x.IntN(60)) * time.Millisecond)
		case 4:
			if x.IntN(20) == 0 {
				r.reload(keys)
				reloads++
			}
		case 6:
			if x.IntN(40) == 0 && !r.Over {
				r.Machine.Retire(r.now, true)
				r.drive()
			}
		case 5:
			r.Up.Room = []int{-1, -1, 0, 100}[x.IntN(4)]
			r.drive()
		}
	}
	return reloads
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

// If a provider refuses every 50th message, the client sees no refusal, no message is accepted
// twice, and all are accepted in their order.
func TestRetryHidesRefusals(t *testing.T) {
	hidesRefusals(t, newRepeated(t, policy.SMPP, "retry = { max = 3 }\n"), 100_000)
}

// So it is if the provider refuses them in the body of a 200.
func TestRetryHidesRefusalsInBodies(t *testing.T) {
	r := newRepeated(t, policy.HTTP, "retry = { max = 3 }\n"+throttledByN)
	r.inBody = true
	hidesRefusals(t, r, 10_000)
}

func hidesRefusals(t *testing.T, r *repeated, all int) {
	came, refused := 0, 0
	r.refuses = func(int, int) bool {
		if came++; came%50 == 0 {
			refused++
		}
		return came%50 == 0
	}
	r.window(all)
	for id := 1; id <= all; id++ {
		if r.taken[id-1] != id || len(r.got[id]) != 1 || !r.got[id][0] {
			t.Fatalf("as number %d, message %d is accepted; the client gets %v", id, r.taken[id-1], r.got[id])
		}
	}
	counted := r.classes["a"].Stats.Retried.Read()
	if len(r.taken) != all || came != all+refused || counted["again"] != uint64(refused) {
		t.Errorf("%d messages came, %d were accepted and %d refused; counted: %v", came, len(r.taken), refused, counted)
	}
	if charged := r.classes["a"].Stats.Wait.Read().Count; r.Up.Cost.Messages != int64(came) || charged != uint64(came) {
		t.Errorf("%d attempts are sent and %d are charged, of %d", r.Up.Cost.Messages, charged, came)
	}
	r.Finish(stats.OK)
	r.idle()
}

// If a message is refused as often as retry allows, the client gets the last answer.
func TestRetryGivesUp(t *testing.T) {
	for _, protocol := range []policy.Protocol{policy.SMPP, policy.HTTP} {
		r := newRepeated(t, protocol, "retry = { max = 3 }\n")
		r.refuses = func(id, _ int) bool { return id == 2 }
		for id := 1; id <= 3; id++ {
			r.send(id, "b", 1, 10)
		}
		r.pass(time.Minute)
		if want := "map[1:[true] 2:[false] 3:[true]]"; fmt.Sprint(r.got) != want || r.came[2] != 4 {
			t.Errorf("%s: the client gets %v, want %s; message 2 came %d times, want 4", protocol, r.got, want, r.came[2])
		}
		if n := r.classes["a"].Stats.Retried.Read(); n["again"] != 3 || n["last"] != 1 {
			t.Errorf("%s: counted: %v", protocol, n)
		}
	}
}

// A message without an answer is not sent again, neither after a minute nor when the provider
// breaks the connection. What waits to be sent again then is refused.
func TestRetryNeedsAnAnswer(t *testing.T) {
	for _, protocol := range []policy.Protocol{policy.SMPP, policy.HTTP} {
		for _, end := range []error{io.EOF, exchange.ErrCut} {
			r := newRepeated(t, protocol, "retry = { max = 3 }\non_throttle = { pause = \"5s\" }\n")
			r.latency = func() time.Duration { return time.Hour }
			r.send(1, "b", 1, 10)
			r.pass(50 * time.Second)
			r.Machine.Tend(r.now.Add(20 * time.Second))
			r.pass(time.Second)
			if r.Down.Ends = end; r.came[1] != 1 {
				t.Errorf("%s: the message came %d times", protocol, r.came[1])
			}
			r.drive()
			r.pass(time.Minute)
			if len(r.got) != 0 || r.came[1] != 1 {
				t.Errorf("%s: it came %d times, and the client gets %v", protocol, r.came[1], r.got)
			}
			r.Finish(stats.OK)
			r = newRepeated(t, protocol, "retry = { max = 3 }\non_throttle = { pause = \"5s\" }\n")
			r.refuses = func(int, int) bool { return true }
			r.send(1, "b", 1, 10)
			r.pass(time.Second)
			if len(r.got) != 0 || r.came[1] != 1 || r.Machine.Waiting() != 1 {
				t.Fatalf("%s: it came %d times, the client gets %v, and %d wait", protocol, r.came[1], r.got, r.Machine.Waiting())
			}
			r.Down.Ends = end
			r.drive()
			r.pass(time.Minute)
			if fmt.Sprint(r.got) != "map[1:[false]]" || r.came[1] != 1 {
				t.Errorf("%s: it came %d times, and the client gets %v", protocol, r.came[1], r.got)
			}
		}
	}
}

// A message whose answer is given up is kept no longer, even if its write took a while. It would hold
// up the others for ever.
func TestKeptMessageIsGivenUpWithItsAnswer(t *testing.T) {
	r := newRepeated(t, policy.SMPP, "retry = { max = 3 }\n")
	r.latency = func() time.Duration { return time.Hour }
	r.Up.Heard = func(p []byte) {
		r.provider(p)
		r.Now = r.Now.Add(10 * time.Millisecond)
	}
	r.send(1, "b", 1, 10)
	r.pass(time.Minute + 5*time.Millisecond)
	r.Machine.Tend(r.now)
	r.send(2, "b", 1, 10)
	r.pass(time.Second)
	if r.came[1] != 1 || r.came[2] != 1 {
		t.Errorf("they came %d and %d times", r.came[1], r.came[2])
	}
	r.Finish(stats.OK)
}

// A connection does not rest while something that was read waits for its next turn.
func TestRest(t *testing.T) {
	r := newRepeated(t, policy.SMPP, "")
	for i := range uint32(200) {
		r.Up.In = append(r.Up.In, pdu(0x15, 0, i, "")...) // enquire_link
	}
	r.Machine.Drive(r.now)
	if r.Machine.Rests() {
		t.Error("it rests")
	}
	if r.drive(); !r.Machine.Rests() {
		t.Errorf("it does not rest, and holds %d and %d bytes", r.Machine.Held(stats.Upstream), r.Machine.Held(stats.Downstream))
	}
}

// A reload moves a request that waits to be sent again, with its body. That is no field of its head.
func TestReloadMovesRequestsWithBodies(t *testing.T) {
	for _, keys := range []string{"cost = 2\n", "per = \"path\"\n"} {
		keys += "retry = { max = 3 }\n"
		r := newRepeated(t, policy.HTTP, keys)
		r.refuses = func(_, attempt int) bool { return attempt == 1 }
		r.send(1, "b", 1, 10)
		r.pass(5 * time.Millisecond)
		if r.came[1] != 1 || r.Machine.Waiting() != 1 {
			t.Fatalf("the request came %d times, and %d wait", r.came[1], r.Machine.Waiting())
		}
		r.reload(keys)
		r.pass(time.Second)
		if r.came[1] != 2 || fmt.Sprint(r.got) != "map[1:[true]]" {
			t.Errorf("with %q, the request came %d times, and the client gets %v", keys, r.came[1], r.got)
		}
		r.Finish(stats.OK)
	}
}

// A message that is too large, or would have to wait too long, is not sent again, and neither is
// one for which there is no memory.
func TestRetryKeepsWithinBounds(t *testing.T) {
	refuseFirst := func(_, attempt int) bool { return attempt == 1 }
	for _, c := range []struct {
		keys    string
		size    int
		outcome string
	}{
		{"", 200 << 10, "again"}, {"", 300 << 10, "not_kept"}, {"max_wait = \"5ms\"\n", 10, "too_long"},
	} {
		r := newRepeated(t, policy.HTTP, "retry = { max = 3 }\n"+c.keys)
		r.refuses = refuseFirst
		r.send(1, "b", 1, c.size)
		r.pass(time.Minute)
		if n := r.classes["a"].Stats.Retried.Read(); n[c.outcome] != 1 || len(n) != 1 || r.got[1][0] != (c.outcome == "again") {
			t.Errorf("with %q and %d bytes: %v, and the client gets %v", c.keys, c.size, n, r.got)
		}
		r.Finish(stats.OK)
	}
	var all []*repeated
	for exchange.KeptMemory()+int64(policy.Holds(200<<10)) <= int64(policy.RetriesHolds) {
		r := newRepeated(t, policy.HTTP, "retry = { max = 3 }\n")
		r.send(1, "b", 1, 200<<10)
		all = append(all, r)
	}
	r := newRepeated(t, policy.HTTP, "retry = { max = 3 }\n")
	r.refuses = refuseFirst
	r.send(1, "b", 1, 200<<10)
	r.pass(time.Second)
	if n := r.classes["a"].Stats.Retried.Read(); n["not_kept"] != 1 {
		t.Errorf("after %d messages of 200 KiB, another one is kept: %v", len(all), n)
	}
	for _, r := range all {
		r.Finish(stats.OK)
	}
	r.Finish(stats.OK)
	if n := exchange.KeptMemory(); n != 0 {
		t.Errorf("%d bytes are still kept", n)
	}
}

// What must not overtake waits for the answers to all that may have to be sent again, and so
// does the end of the stream.
func TestRetryHoldsUpTheEnd(t *testing.T) {
	r := newRepeated(t, policy.SMPP, "retry = { max = 3 }\n")
	r.refuses = func(_, attempt int) bool { return attempt < 3 }
	r.send(1, "b", 1, 10)
	r.Up.In = append(r.Up.In, pdu(6, 0, 9, "")...) // unbind
	r.Up.Ends = io.EOF
	r.drive()
	r.pass(10 * time.Millisecond)
	if bytes.Contains(r.Up.Got, []byte(pdu(6, 0, 9, ""))) || r.Up.Told {
		t.Fatal("an unbind or the end overtakes a message that was refused")
	}
	r.pass(time.Second)
	if !bytes.HasSuffix(r.Up.Got, []byte(pdu(6, 0, 9, ""))) || !r.Up.Told || r.came[1] != 3 || !r.got[1][0] {
		t.Errorf("the message came %d times; then the provider got %q", r.came[1], r.Up.Got)
	}
}

// A refused message is used by another connection at once, so nobody looks at it any more.
func TestRefusedMessagesAreNotRead(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				r := newRepeated(t, policy.HTTP, "max_wait = \"1ns\"\n")
				for range 50 {
					r.Up.In = append(r.Up.In, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"...)
					r.drive() // the body has not come
					r.Up.In = append(r.Up.In, 'b')
					r.drive()
				}
				r.Finish(stats.OK)
			}
		})
	}
	all.Wait()
}
