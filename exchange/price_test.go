package exchange_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/exchange"
	"shaper/exchange/exchangetest"
	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// A wire is one connection in virtual time, with the classes of a policy.
type wire struct {
	*exchangetest.Host
	t       *testing.T
	classes map[string]*shaper.Class
	roots   []*shaper.Class
}

// world returns the classes of a policy by name, and their roots.
func world(t *testing.T, now time.Time, text string) (*policy.Policy, map[string]*shaper.Class, []*shaper.Class) {
	t.Helper()
	p, _, err := policy.Parse("test.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	classes, roots := map[string]*shaper.Class{}, []*shaper.Class(nil)
	for i, c := range shaper.NewTree(now, p.Classes) {
		if classes[p.Classes[i].Name] = c; c.Parent() == nil {
			roots = append(roots, c)
		}
	}
	return p, classes, roots
}

// connect opens a connection to the listener of a policy.
func connect(p *policy.Policy, classes map[string]*shaper.Class, now time.Time) *exchangetest.Host {
	l := &p.Listeners[0]
	who := policy.Conn{Listener: l.Name}
	config := exchange.Config{Protocol: l.Protocol, Link: newLink(l.Protocol), Class: classes[l.Class].Join(now, who)}
	if l.ReturnClass != "" {
		config.Back = classes[l.ReturnClass].Join(now, who)
	}
	h := exchangetest.New(now, config)
	h.Machine.Obey(now, who, policy.Compile(p).Messages(who), func(name string) *shaper.Class { return classes[name].Join(now, who) })
	return h
}

// amidAnAnswer returns a connection of HTTP, through a class "c". All has come of the answer to its first request, and
// its last piece waits in the class of what returns.
func amidAnAnswer(t *testing.T, classes string) *wire {
	t.Helper()
	now := time.Unix(0, 0)
	p, all, roots := world(t, now, classes+`
[class.back]
rate = "1KB/s"
[listener.l]
listen = "127.0.0.1:1"
protocol = "http"
upstream = "192.0.2.1:1"
class = "c"
return_class = "back"
`)
	w := &wire{connect(p, all, now), t, all, roots}
	first := fixed(ok, padded("", 8000))
	w.send(get)
	w.answer(first)
	w.wait(6 * time.Second)
	if w.Machine.InFlight() != 0 || len(w.Down.Got) == len(first) {
		t.Fatalf("%d are in flight, and %d bytes have passed", w.Machine.InFlight(), len(w.Down.Got))
	}
	return w
}

// through returns a connection through a class, which is "c", of a protocol.
func through(t *testing.T, protocol policy.Protocol, class string) *wire {
	now := time.Unix(0, 0)
	p, classes, roots := world(t, now, class+listenerOf(protocol))
	return &wire{connect(p, classes, now), t, classes, roots}
}

// listenerOf returns a listener of a protocol.
func listenerOf(protocol policy.Protocol) string {
	return fmt.Sprintf(`
[listener.l]
listen = "127.0.0.1:1"
protocol = %q
upstream = "192.0.2.1:1"
class = "c"
`, protocol)
}

// send makes the client send bytes.
func (w *wire) send(text string) {
	w.Up.In = append(w.Up.In, text...)
	w.Drive(w.Now)
}

// answer makes the provider send bytes.
func (w *wire) answer(text string) {
	w.Down.In = append(w.Down.In, text...)
	w.Drive(w.Now)
}

// next returns the next departure of some roots: which one, and when.
func next(roots []*shaper.Class, now time.Time) (first *shaper.Class, at time.Time) {
	at = limit.Never
	for _, root := range roots {
		if n := root.Next(now); n.Before(at) {
			first, at = root, n
		}
	}
	return first, at
}

// wait lets time pass, and messages leave.
func (w *wire) wait(d time.Duration) {
	for end := w.Now.Add(d); ; {
		first, at := next(w.roots, w.Now)
		if first == nil || at.After(end) {
			w.Drive(end)
			return
		}
		if at.After(w.Now) {
			w.Now = at
		}
		if it := first.Release(w.Now); it != nil {
			it.Owner.Leave(w.Now)
		}
	}
}

// free expects that the next message leaves in so long, and not before.
func (w *wire) free(want time.Duration) {
	w.t.Helper()
	sent := len(w.Up.Got)
	if w.wait(want - 1); len(w.Up.Got) > sent {
		w.t.Errorf("the next message leaves sooner than in %v", want)
	}
	if w.wait(1); len(w.Up.Got) == sent {
		w.t.Errorf("the next message does not leave in %v", want)
	}
}

const token = "rate = \"1 tokens/s\"\nqueue = \"100 messages\"\n"

func post(head, body string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
}

func chunked(head string, pieces ...string) string {
	s := head + "Transfer-Encoding: chunked\r\n\r\n"
	for _, p := range pieces {
		s += fmt.Sprintf("%x\r\n%s\r\n", len(p), p)
	}
	return s + "0\r\n\r\n"
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// A message costs what it says, in whatever way. The class lets one unit go each second, so the
// gap behind a message tells what it costs. Its bytes pass unchanged.
func TestCost(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, c := range []struct {
		name, cost, request string
		want                int
	}{
		{"a number", `3`, get, 3},
		{"json", `{ json = "max_tokens" }`, post("", `{"messages":[{"a":[1,{}]},"x"],"max_tokens":7,"n":1}`), 7},
		{"json within", `{ json = "a.b.1" }`, post("", `{"b":9,"a":{"c":{"b":[1,2]},"b":[5,6,7]}}`), 6},
		{"json of each item", `{ json = "a.*.n" }`, post("", `{"a":[{"m":4},{"n":5}]}`), 5},
		{"json as text", `{ json = "n" }`, post("", `{"n":"12"}`), 12},
		{"json with a fraction", `{ json = "n" }`, post("", `{"n":2.1}`), 3},
		{"json that is no number", `{ json = "n", default = 4 }`, post("", `{"n":[1]}`), 4},
		{"json that is negative", `{ json = "n", default = 4 }`, post("", `{"n":-3}`), 4},
		{"json that is 0", `{ json = "n", default = 4 }`, post("", `{"n":0}`), 1},
		{"json that is missing", `{ json = "n", default = 4 }`, post("", `{"m":3}`), 4},
		{"json that is missing, without default", `{ json = "n" }`, post("", `{"m":3}`), 1},
		{"json that is none", `{ json = "n", default = 4 }`, post("", `n=3`), 4},
		{"json without a body", `{ json = "n", default = 4 }`, get, 4},
		{"json above the bound", `{ json = "n", max = 10 }`, post("", `{"n":1000000000000}`), 10},
		{"json in chunks", `{ json = "max_tokens" }`, chunked("POST / HTTP/1.1\r\nHost: h\r\n", `{"max_`, `tokens":`, `31}`), 31},
		{"json before a long text", `{ json = "n" }`, post("", `{"n":8,"text":"`+long+`"}`), 8},
		{"json behind a long text", `{ json = "n", default = 4 }`, post("", `{"text":"`+long+`","n":8}`), 4},
		{"json that is compressed", `{ json = "n", default = 4 }`, post("Content-Encoding: gzip\r\n", zipped(`{"n":8}`)), 4},
		{"json that waits for 100", `{ json = "n", default = 4 }`, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n", 4},
		{"a field", `{ header = "X-Cost" }`, "GET / HTTP/1.1\r\nx-cost: 9\r\nHost: h\r\n\r\n", 9},
		{"a field that is missing", `{ header = "X-Cost", default = 2 }`, get, 2},
		{"bytes", `{ bytes = 4 }`, post("", "123456789"), 3},
		{"bytes in chunks", `{ bytes = 4 }`, chunked("POST / HTTP/1.1\r\nHost: h\r\n", "1234567", "89"), 3},
		{"many bytes in chunks", `{ bytes = 131072 }`, chunked("POST / HTTP/1.1\r\nHost: h\r\n", strings.Repeat(long, 2)), 1},
		{"no bytes", `{ bytes = 4 }`, get, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, most := range []int{0, 1000} {
				w := through(t, policy.HTTP, "[class.c]\n"+token+"cost = "+c.cost)
				w.Up.Most = most
				w.send(c.request)
				if got := string(w.Up.Got); got != c.request {
					t.Fatalf("%d bytes left as %d: %.200q", len(c.request), len(got), got)
				}
				if strings.Contains(c.request, "100-continue") {
					w = through(t, policy.HTTP, "[class.c]\n"+token+"cost = "+c.cost)
					w.send(strings.Replace(c.request, "7\r\n\r\n", "7\r\n\r\n{\"n\":8}", 1))
				}
				w.send(get)
				w.free(time.Duration(c.want) * time.Second)
			}
		})
	}
}

// priced are ways to say what a message costs, each with a most of 50.
var priced = []struct {
	protocol policy.Protocol
	cost     string
}{
	{policy.HTTP, `{ json = "n.*", default = 3, max = 50 }`}, {policy.HTTP, `{ header = "X-Cost", max = 50 }`}, {policy.HTTP, `{ bytes = 1, max = 50 }`},
	{policy.SMPP, `{ segments = true, max = 50 }`}, {policy.SMPP, `{ bytes = 4, max = 50 }`}, {policy.SMPP, `50`},
}

// Whatever a client sends, a message costs at least one unit of its class, and at most what the policy
// says for each of its recipients.
func FuzzPrice(f *testing.F) {
	for _, n := range []string{"[-1,7]", "[1e400]", "[9223372036854775807]", `["-0"]`, `["Inf"]`, `["NaN"]`, "[1e-9]"} {
		f.Add(uint8(0), false, []byte(post("", `{"n":`+n+`}`)))
		f.Add(uint8(1), true, []byte("GET / HTTP/1.1\r\nHost: h\r\nX-Cost: "+strings.Trim(n, `[]"`)+"\r\n\r\n"))
	}
	f.Add(uint8(2), true, []byte("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999999999999\r\n\r\n"))
	f.Add(uint8(2), false, []byte(chunked("POST / HTTP/1.1\r\nHost: h\r\n", "1234567", "89")))
	for which := uint8(3); which < 6; which++ {
		f.Add(which, false, []byte(pdu(4, 0, 1, "\x00\x00\x00a\x00\x00\x00b\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff")))
		f.Add(which, false, []byte(pdu(0x21, 0, 1, "\x00\x00\x00a\x00\xff")))
		f.Add(which, false, []byte(pdu(0x21, 0, 1, "\x00\x00\x00a\x00\x00")))
		f.Add(which, false, []byte(pdu(0x111, 0, 1, "")))
	}
	f.Fuzz(func(t *testing.T, which uint8, tokens bool, stream []byte) {
		by, rate := priced[int(which)%len(priced)], "rate = \"1 messages/s\"\n"
		if tokens = tokens && by.protocol == policy.HTTP; tokens {
			rate = "rate = \"1 tokens/s\"\n"
		}
		w := through(t, by.protocol, "[class.c]\n"+rate+"cost = "+by.cost)
		w.Machine.Watch(bill{t, by.protocol, tokens})
		w.send(string(stream))
		w.Finish(stats.OK)
	})
}

// A bill checks what messages cost that are found.
type bill struct {
	t        *testing.T
	protocol policy.Protocol
	tokens   bool
}

func (b bill) Found(_ time.Time, f exchange.Found) exchange.Follower {
	recipients := int64(1)
	if b.protocol == policy.SMPP {
		recipients = 255
	}
	in, units, most := "messages", f.Cost.Messages, 50*recipients
	if b.tokens {
		if units < 1 || units > recipients {
			b.t.Errorf("%+v", f.Cost)
		}
		in, units = "tokens", int64(f.Cost.Tokens)
	}
	if f.Direction == stats.Upstream && (units < 1 || units > most || f.Cost.Bytes < 1) {
		b.t.Errorf("it costs %d %s, of 1 to %d: %+v", units, in, most, f.Cost)
	}
	return nil
}

func (bill) Answered(time.Time, uint32)  {}
func (bill) Expired(_, before time.Time) {}

// However much an answer says, settling never gives back more than was charged, and never charges more
// than a message may cost.
func TestSettlementIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := &policy.Cost{Max: rapid.Int64Range(0, 1e9).Draw(t, "max")}
		charged := rapid.Int64Range(1, 255*cost.Most()).Draw(t, "charged")
		more := exchange.More(rapid.Int64Range(0, math.MaxInt64).Draw(t, "units"), cost, charged)
		if all := charged + more; all < 0 || all > max(cost.Most(), charged) {
			t.Fatalf("of %d charged, %d more are charged", charged, more)
		}
	})
}

// A message whose body has not come waits for it, and so does its class.
func TestCostWaitsForTheBody(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\n"+token+`cost = { json = "n" }`)
	whole := post("", `{"a":1,"n":5}`) + get
	for i := range whole {
		w.send(whole[i : i+1])
		if sent := len(w.Up.Got); i < len(whole)-len(get)-1 && sent > 0 {
			t.Fatalf("after %d bytes, %d have left", i, sent)
		}
	}
	w.free(5 * time.Second)
	if string(w.Up.Got) != whole {
		t.Errorf("%q", w.Up.Got)
	}
}

// A client that ends within a body ends its connection as it would without a cost.
func TestCostOfABodyThatIsCut(t *testing.T) {
	for _, cost := range []string{"", `cost = { json = "n" }`} {
		w := through(t, policy.HTTP, "[class.c]\nrate = \"1 messages/s\"\n"+cost)
		w.Up.Ends = io.EOF
		w.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n{")
		if !w.Over || w.Up.Fault == nil {
			t.Errorf("with %q it ended: %v, with %v", cost, w.Over, w.Up.Fault)
		}
	}
}

// Each unit on the path has its own cost: here one request and its tokens.
func TestCostInTwoUnits(t *testing.T) {
	for _, classes := range []string{
		"[class.all]\nrate = \"1 messages/s\"\n[class.c]\nparent = \"all\"\n" + token + `cost = { json = "n" }`,
		"[class.all]\n" + token + "cost = { json = \"n\" }\n[class.c]\nparent = \"all\"\nrate = \"1 messages/s\"",
		"[class.all]\n" + token + "[class.c]\nparent = \"all\"\nrate = \"9 tokens/s\"\ncost = { json = \"n\" }",
	} {
		w := through(t, policy.HTTP, classes)
		w.send(post("", `{"n":5}`) + get)
		w.free(5 * time.Second)
		w.send(get)
		w.free(time.Second)
	}
}

// A refusal says when there is room for a message of this cost.
func TestRefusalOfTokens(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\nrate = \"1 tokens/s\"\nmax_wait = \"10s\"\ncost = { json = \"n\" }")
	w.send(post("", `{"n":60}`) + post("", `{"n":5}`))
	const want = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 50\r\nRateLimit-Policy: \"c\";q=1;w=1;qu=\"tokens\"\r\nRateLimit: \"c\";r=0;t=50\r\n"
	w.answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	if got := string(w.Down.Got); !strings.Contains(got, want) {
		t.Errorf("%q", got)
	}
}

// The answer says what a request really cost, and the difference is charged or given back.
func TestSettle(t *testing.T) {
	const settle = "cost = { json = \"n\", max = 100 }\nsettle = "
	usage := `{"id":"x","usage":{"total_tokens":4,"other":9}}`
	events := "event: x\ndata: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":2}}\r\n\n: total_tokens\ndata:{\"usage\":{\"total_tokens\":4}}\n\ndata: [DONE]\n\n"
	length := func(head, body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	}
	byJSON := `{ json = "usage.total_tokens" }`
	for _, c := range []struct {
		name, place, answer string
		want                int
	}{
		{"json", byJSON, length("", usage), 4},
		{"json in chunks", byJSON, chunked("HTTP/1.1 200 OK\r\n", usage[:20], usage[20:]), 4},
		{"json to the end", byJSON, "HTTP/1.0 200 OK\r\n\r\n" + usage, 10},
		{"json compressed", byJSON, length("Content-Encoding: gzip\r\n", zipped(usage)), 4},
		{"json compressed otherwise", byJSON, length("Content-Encoding: br\r\n", usage), 10},
		{"events", byJSON, chunked("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n", events[:30], events[30:90], events[90:]), 4},
		{"events, by an index", `{ json = "usage.0" }`, chunked("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n", "data: {\"usage\":[4]}\n\n"), 4},
		{"a field", `{ header = "X-Used" }`, length("x-used: 4\r\n", ""), 4},
		{"more than charged", byJSON, length("", `{"usage":{"total_tokens":25}}`), 25},
		{"more than the bound", byJSON, length("", `{"usage":{"total_tokens":250000}}`), 100},
		{"nothing", byJSON, length("", `{"usage":{"total_tokens":0}}`), 0},
		{"no number", byJSON, length("", `{"usage":{"total_tokens":"many"}}`), 10},
		{"no usage", byJSON, length("", `{}`), 10},
		{"no json", byJSON, length("", `Bad Request`), 10},
		{"no body", byJSON, "HTTP/1.1 204 No Content\r\n\r\n", 10},
		{"a long text before", byJSON, length("", `{"a":"`+strings.Repeat("x", 100<<10)+`","usage":{"total_tokens":4}}`), 4},
		{"too long a text before", byJSON, length("", `{"a":"`+strings.Repeat("x", 300<<10)+`","usage":{"total_tokens":4}}`), 10},
		{"interim answers", byJSON, "HTTP/1.1 103 Early Hints\r\n\r\n" + length("", usage), 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, most := range []int{0, 7} {
				if most > 0 && len(c.answer) > 10_000 {
					continue
				}
				w := through(t, policy.HTTP, "[class.c]\n"+token+settle+c.place)
				w.Down.Most = most
				w.send(post("", `{"n":10}`))
				w.answer(c.answer)
				if string(w.Down.Got) != c.answer {
					t.Fatalf("%q", w.Down.Got)
				}
				w.send(get)
				if c.want == 0 {
					if !strings.HasSuffix(string(w.Up.Got), get) {
						t.Error("the next message has not left")
					}
					continue
				}
				w.free(time.Duration(c.want) * time.Second)
			}
		})
	}
}

// Answers of pipelined requests settle their own requests, also if a reload begins to read them
// while some are on their way.
func TestSettleInOrder(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\nalgorithm = \"gcra\"\nrate = \"1 tokens/s\"\nburst = \"100 tokens\"\ncost = { json = \"n\" }\nsettle = { json = \"u\" }")
	w.send(post("", `{"n":10}`) + post("", `{"n":20}`) + post("", `{"n":30}`))
	for _, u := range []int{1, 2, 3} {
		body := fmt.Sprintf(`{"u":%d}`, u)
		w.answer(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	}
	w.send(post("", `{"n":100}`)) // a full bucket
	w.free(6 * time.Second)
}

// An answer settles its own request, also if the request before it has an answer whose end has come and has not passed.
func TestSettleBehindAnAnswerThatWaits(t *testing.T) {
	w := amidAnAnswer(t, `
[class.c]
rate = "1000 messages/s"
[class.priced]
algorithm = "gcra"
rate = "1 tokens/s"
burst = "100 tokens"
cost = { json = "n" }
settle = { json = "u" }
[[rule]]
method = "POST"
class = "priced"
`)
	w.send(post("", `{"n":50}`))
	w.wait(10 * time.Second)
	w.answer(fixed(ok, `{"u":1}`))
	w.wait(10 * time.Second)
	w.send(post("", `{"n":100}`)) // a full bucket
	if sent := strings.Count(string(w.Up.Got), "POST"); sent != 2 {
		t.Errorf("%d requests are sent, and %d charges are kept", sent, w.Machine.Charges())
	}
}

const limited = "HTTP/1.1 429 Too Many Requests\r\n"

// A request that is sent again is charged each time, and each time its answer settles it, also the
// one that the client does not see.
func TestSettleOfRepeatedRequests(t *testing.T) {
	for _, c := range []struct{ settle, first string }{
		{`{ header = "X-Used" }`, "X-Used: 0\r\nContent-Length: 0\r\n\r\n"},
		{`{ header = "X-Used" }`, "X-Used: 0\r\nContent-Length: 2\r\n\r\n{}"},
		{`{ json = "u" }`, "Content-Length: 7\r\n\r\n{\"u\":0}"},
	} {
		w := through(t, policy.HTTP, `
[class.c]
algorithm = "gcra"
rate = "1 tokens/s"
burst = "100 tokens"
cost = { json = "n" }
retry = { max = 1 }
on_throttle = { pause = "1s" }
settle = `+c.settle)
		request := post("", `{"n":10}`)
		w.send(request)
		w.answer(limited + c.first)
		w.wait(time.Second)
		w.answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		if string(w.Up.Got) != request+request || w.Machine.Charges() != 0 {
			t.Errorf("with %s, %q is sent, and %d charges are kept; counted: %v", c.settle, w.Up.Got, w.Machine.Charges(), w.classes["c"].Stats.Read().Retried)
		}
		w.send(post("", `{"n":100}`)) // a full bucket
		w.free(10 * time.Second)
		w.Finish(stats.OK)
	}
}

// A refusal that the client gets after all, because the request would wait for too long, settles its
// own request, and no later one.
func TestSettleOfRequestsNotRepeated(t *testing.T) {
	w := through(t, policy.HTTP, `
[class.c]
algorithm = "gcra"
rate = "1 tokens/s"
burst = "100 tokens"
max_wait = "2s"
cost = { json = "n" }
retry = { max = 1 }
on_throttle = { pause = "5s" }
settle = { header = "X-Used" }`)
	for _, used := range []string{"X-Used: 0\r\n", ""} {
		w.send(post("", `{"n":100}`))
		sent := len(w.Up.Got)
		w.answer(limited + used + "Content-Length: 2\r\n\r\n{}")
		w.wait(5 * time.Second)
		if len(w.Up.Got) != sent || !strings.HasSuffix(string(w.Down.Got), used+"Content-Length: 2\r\n\r\n{}") {
			t.Fatalf("the client gets %q", w.Down.Got)
		}
	}
	if sent := strings.Count(string(w.Up.Got), "POST"); sent != 2 {
		t.Fatalf("%d requests are sent: the first one costs nothing, by its answer", sent)
	}
	w.wait(time.Minute) // the second one costs 100, of which 65 are paid back
	w.send(post("", `{"n":65}`))
	w.send(get)
	if sent := strings.Count(string(w.Up.Got), "POST"); sent != 3 {
		t.Errorf("%d requests are sent", sent)
	}
	if strings.Contains(string(w.Up.Got), get) {
		t.Error("the second request costs less than it was charged")
	}
	w.Finish(stats.OK)
}

// A refusal that the client does not see makes the class pause whose signal it has.
func TestThrottledByOfRepeatedRequests(t *testing.T) {
	for _, by := range []string{`{ header = "X-Why", equals = ["account"] }`, `{ json = "why", equals = ["account"] }`} {
		w := through(t, policy.HTTP, `
[class.all]
rate = "100 messages/s"
on_throttle = { pause = "10s" }
throttled_by = `+by+`
[class.c]
parent = "all"
rate = "10 messages/s"
retry = { max = 1 }
on_throttle = { pause = "1s" }`)
		w.send(get)
		w.answer(limited + "X-Why: account\r\nContent-Length: 17\r\n\r\n{\"why\":\"account\"}")
		w.free(10 * time.Second)
		w.Finish(stats.OK)
	}
}

// An answer that says "too fast" as the policy describes makes its class pause, and only that.
func TestThrottledBy(t *testing.T) {
	classes := `
[class.all]
rate = "100 messages/s"
throttled_by = { json = "code", equals = ["blocked"] }
[class.c]
parent = "all"
rate = "10 messages/s"
per = "header:To"
on_throttle = { pause = "5s", max = "20s" }
throttled_by = { json = "messages.*.status", equals = ["1", "2"] }
`
	to := func(name string) string { return "GET / HTTP/1.1\r\nHost: h\r\nTo: " + name + "\r\n\r\n" }
	for _, c := range []struct {
		head, body   string
		same, others time.Duration
	}{
		{"", `{"messages":[{"status":"0"},{"status":"1"}]}`, 5 * time.Second, 0},
		{"", `{"messages":[{"status":2}]}`, 5 * time.Second, 0},
		{"Retry-After: 7\r\n", `{"messages":[{"status":"1"}]}`, 7 * time.Second, 0},
		{"Retry-After: 100\r\n", `{"messages":[{"status":"1"}]}`, 20 * time.Second, 0},
		{"", `{"messages":[{"status":"0"}]}`, 0, 0},
		{"", `{"code":"blocked"}`, time.Second, time.Second},
	} {
		for _, name := range []string{"a", "b"} {
			w := through(t, policy.HTTP, classes)
			w.send(to("a"))
			w.wait(time.Second)
			w.answer(fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", c.head, len(c.body), c.body))
			w.send(to(name))
			want := c.same
			if name == "b" {
				want = c.others
			}
			if left := strings.Count(string(w.Up.Got), "GET") == 2; left != (want == 0) {
				t.Errorf("%s, then %s: it left: %v", c.body, name, left)
			} else if !left {
				w.free(want)
			}
		}
	}
}

// SMS cost their parts.
func TestCostOfSMS(t *testing.T) {
	w := through(t, policy.SMPP, "[class.c]\nrate = \"1 messages/s\"\nqueue = \"100 messages\"\ncost = { segments = true }")
	for i, parts := range []int{1, 3, 7} {
		text := strings.Repeat("x", 153*parts-6) // one part holds 160
		payload := "\x04\x24" + string(rune(len(text)>>8)) + string([]byte{byte(len(text))}) + text
		w.send(pdu(4, 0, uint32(i), "\x00\x01\x01a\x00\x01\x01b\x00"+"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"+payload))
		w.send(pdu(4, 0, uint32(100+i), "\x00\x01\x01a\x00\x01\x01b\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
		w.free(time.Duration(parts) * time.Second)
		w.wait(time.Hour)
	}
	if n := w.Up.Cost.Messages; n != 1+3+7+3 {
		t.Errorf("%d messages were counted", n)
	}
}

// A message that comes into another class by a reload costs what it costs there, also if the class before
// had a price and the new one has none.
func TestMovedMessagesCostWhatTheirClassSays(t *testing.T) {
	for _, c := range []struct {
		before, after string
		want          int64 // what two messages that move cost
	}{
		{"cost = 3\n", "", 2}, {"", "cost = 3\n", 6}, {"cost = 3\n", "cost = 2\n", 4}, {"", "", 2},
	} {
		r := newRepeated(t, policy.SMPP, c.before)
		for id := range 3 {
			r.send(id, "b", 1, 10)
		}
		first := r.Up.Cost.Messages
		r.reload(c.after)
		r.pass(time.Second)
		if got := r.Up.Cost.Messages - first; got != c.want || len(r.sent) != len(r.taken) {
			t.Errorf("from %q to %q: two messages cost %d, want %d; %d have left", c.before, c.after, got, c.want, len(r.taken))
		}
		r.Finish(stats.OK)
	}
}

// A request that waits may move more than once. What its body said counts in each class that asks for that,
// and nothing else of the classes before; one that has no body is known to have none.
func TestMovedRequestsCostWhatTheirBodySaid(t *testing.T) {
	const byBody = "cost = { json = \"n\", default = 10 }\n"
	const byBytes = "cost = { bytes = 1000, default = 50 }\n"
	says, silent := post("", `{"n":7}`), post("", `{"m":7}`)
	for _, c := range []struct {
		request string
		classes []string
		want    int64
	}{
		{says, []string{byBody, byBody}, 7},
		{says, []string{byBody, ""}, 1},
		{says, []string{byBody, "cost = 3\n", byBody}, 7},
		{says, []string{"cost = { json = \"n\", max = 5 }\n", byBody}, 7},
		{says, []string{"cost = 3\n", byBody}, 10},
		{says, []string{"", byBody}, 10},
		{silent, []string{"cost = { json = \"n\", default = 4 }\n", byBody}, 10},
		{get, []string{"cost = 3\n", byBody}, 10},
		{get, []string{byBytes, byBytes}, 1},
		{get, []string{"cost = 3\n", byBytes}, 1},
		{says, []string{"cost = 3\n", byBytes}, 1},
		{chunked("POST / HTTP/1.1\r\nHost: h\r\n", "body"), []string{"cost = 3\n", byBytes}, 50},
	} {
		text, name := "", "c"
		for i, keys := range c.classes {
			text += fmt.Sprintf("[class.%s]\nrate = \"1 messages/s\"\n%s", name, keys)
			name = fmt.Sprintf("c%d", i+1)
		}
		w := through(t, policy.HTTP, text)
		w.classes["c"].Pass(w.Now, shaper.Cost{Messages: 1})
		w.send(c.request)
		from := w.classes["c"]
		for i := range c.classes[1:] {
			to := w.classes[fmt.Sprintf("c%d", i+1)]
			if i+2 < len(c.classes) {
				to.Pass(w.Now, shaper.Cost{Messages: 1})
			}
			w.Machine.Belong(w.Now, to.Join(w.Now, policy.Conn{}))
			w.Machine.Reroute(w.Now, map[*shaper.Class]bool{from: true}, nil)
			from = to
		}
		if w.Drive(w.Now); string(w.Up.Got) != c.request || w.Up.Cost.Messages != c.want {
			t.Errorf("%.30q through %q: %d bytes have left, and cost %d, want %d", c.request, c.classes, len(w.Up.Got), w.Up.Cost.Messages, c.want)
		}
		w.Finish(stats.OK)
	}
}

// A line of a chunk may stand across the bound of what is read of a body: the request leaves. If its
// chunks are broken, the connection fails at once.
func TestCostOfChunksAtTheBound(t *testing.T) {
	const bound = 128 << 10
	line := len(fmt.Sprintf("%x\r\n", bound))
	for across := range line + 2 {
		first := strings.Repeat(" ", bound-line-2-across)
		w := through(t, policy.HTTP, "[class.c]\n"+token+"cost = { json = \"n\", default = 1 }\n")
		request := chunked("POST / HTTP/1.1\r\nHost: h\r\n", first, strings.Repeat("x", 200_000))
		w.send(request)
		w.wait(time.Minute)
		if string(w.Up.Got) != request {
			t.Errorf("%d bytes before the bound: %d bytes of %d have left", across, len(w.Up.Got), len(request))
		}
		w.Finish(stats.OK)
	}
	w := through(t, policy.HTTP, "[class.c]\n"+token+"cost = { json = \"n\" }\n")
	w.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\noops\r\n")
	if w.Up.Fault == nil {
		t.Error("a request whose chunks are broken waits for more")
	}
}
