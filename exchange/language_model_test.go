package exchange_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"shaper/exchange/exchangetest"
	"shaper/shaper"
)

// A provider of a language model counts tokens in sub-windows of a second. It charges
// max_tokens when a request comes, and gives back in the same second what the answer did not
// use.
type llm struct {
	perSlice int64
	largest  int // tokens that a request asks for; 0: each client has sizes of its own
	slice    int64
	charged  int64 // in this slice
	total    int64 // net, in all slices
	refused  int
	byClient map[int]int64 // net

	random *rand.Rand
	now    time.Time
	jobs   []job
}

func (m *llm) at(now time.Time) {
	if s := now.Unix(); s != m.slice {
		m.slice, m.charged = s, 0
	}
}

// A job is a request that the provider works on.
type job struct {
	done   time.Time
	host   *exchangetest.Host
	client int
	slice  int64
	most   int64
	used   int64
}

const llmPolicy = `
[class.account]
algorithm = %q
rate      = "30000 tokens/min"
window    = "1s"
cost      = { json = "max_tokens", default = 100 }
settle    = { json = "usage.total_tokens" }

[class.client]
parent = "account"
rate   = "1000000 tokens/min"
algorithm = "gcra"
burst  = "1000 tokens"
per    = "header:Authorization"

[listener.l]
listen   = "127.0.0.1:1"
protocol = "http"
upstream = "192.0.2.1:1"
class    = "client"
`

// Four clients with requests of different sizes have equal shares of the tokens of a provider.
// At least 95 % of them are used, and the provider refuses nothing. That holds too if requests ask
// for up to 8 % of the tokens of a second. What is left over then is the room that the next request
// does not fit into: by the mean, E[size^2]/(2*E[size]) tokens, here 13 of 500.
func TestLanguageModel(t *testing.T) {
	for _, algorithm := range []string{"fixed-window", "sliding-log"} {
		for _, largest := range []int{0, 40} {
			t.Run(fmt.Sprintf("%s/%d", algorithm, largest), func(t *testing.T) { runLanguageModel(t, algorithm, largest) })
		}
	}
}

// runLanguageModel runs for some minutes with requests of up to so many tokens; 0: each client has
// sizes of its own.
func runLanguageModel(t *testing.T, algorithm string, largest int) {
	const minutes, connections = 1, 25
	start := time.Unix(0, 0)
	p, classes, roots := world(t, start, fmt.Sprintf(llmPolicy, algorithm))
	m := &llm{perSlice: 500, largest: largest, slice: -1, byClient: map[int]int64{}, random: rand.New(rand.NewPCG(1, 2)), now: start}
	var hosts []*exchangetest.Host
	for i := range 4 * connections {
		h, client := connect(p, classes, start), i/connections
		h.Up.Heard = func([]byte) { m.hear(h, client) }
		hosts = append(hosts, h)
		m.ask(h, client)
	}
	for _, h := range hosts {
		h.Drive(m.now)
	}
	for end := start.Add(minutes * time.Minute); m.now.Before(end); {
		m.step(roots)
	}
	m.check(t, minutes*60*m.perSlice)
}

// ask has a client write the next request on a connection.
func (m *llm) ask(h *exchangetest.Host, client int) {
	most := 5 + m.random.IntN(5+10*client)
	if m.largest > 0 {
		most = 1 + m.random.IntN(m.largest)
	}
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":%d}`, most)
	h.Up.In = append(h.Up.In, post(fmt.Sprintf("Authorization: Bearer %d\r\n", client), body)...)
}

// hear begins a request of a client as soon as all of it is there.
func (m *llm) hear(h *exchangetest.Host, client int) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(h.Up.Got)))
	if err != nil {
		return // its head is not whole
	}
	var body struct {
		Most int64 `json:"max_tokens"`
	}
	if json.NewDecoder(r.Body).Decode(&body) == nil {
		h.Up.Got = nil
		m.begin(h, client, body.Most)
	}
}

// begin takes a request, or refuses it.
func (m *llm) begin(h *exchangetest.Host, client int, most int64) {
	m.at(m.now)
	j := job{m.now.Add(time.Duration(20+m.random.IntN(300)) * time.Millisecond), h, client, m.slice, most, (most*int64(30+m.random.IntN(70)) + 50) / 100}
	if m.charged+most > m.perSlice {
		m.refused++
		j.used = -1
	} else {
		m.charge(client, most)
	}
	m.jobs = append(m.jobs, j)
}

// charge charges tokens to a client, or gives them back if the number is negative.
func (m *llm) charge(client int, tokens int64) {
	m.charged += tokens
	m.total += tokens
	m.byClient[client] += tokens
}

// step does what happens next: the provider finishes a job and its client asks for the next, or a
// request leaves its class.
func (m *llm) step(roots []*shaper.Class) {
	first, at := next(roots, m.now)
	if j, ok := m.finished(at); ok {
		m.now = j.done
		m.answer(&j)
		j.host.Drive(m.now)
		m.ask(j.host, j.client)
		j.host.Drive(m.now)
		return
	}
	if at.After(m.now) {
		m.now = at
	}
	if it := first.Release(m.now); it != nil {
		it.Owner.Leave(m.now)
	}
}

// finished takes out the job that is done first, if it is done by a time.
func (m *llm) finished(by time.Time) (first job, ok bool) {
	if len(m.jobs) == 0 {
		return job{}, false
	}
	i := 0
	for k := range m.jobs {
		if m.jobs[k].done.Before(m.jobs[i].done) {
			i = k
		}
	}
	if first = m.jobs[i]; first.done.After(by) {
		return job{}, false
	}
	m.jobs = slices.Delete(m.jobs, i, i+1)
	return first, true
}

// answer answers a request, in one of several forms.
func (m *llm) answer(j *job) {
	if j.used < 0 {
		j.host.Down.In = append(j.host.Down.In, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"...)
		return
	}
	if m.at(m.now); j.slice == m.slice {
		m.charge(j.client, j.used-j.most)
	}
	usage := fmt.Sprintf(`{"choices":[{"text":"x"}],"usage":{"total_tokens":%d}}`, j.used)
	var answer string
	switch j.used % 3 {
	case 0:
		answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(usage), usage)
	case 1:
		text := zipped(usage)
		answer = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	default:
		answer = chunked("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n", "data: {\"choices\":[]}\n\n", "data: "+usage+"\n\n", "data: [DONE]\n\n")
	}
	j.host.Down.In = append(j.host.Down.In, answer...)
}

// check compares what was used with all tokens that there were.
func (m *llm) check(t *testing.T, all int64) {
	if m.refused > 0 {
		t.Errorf("the provider refused %d requests", m.refused)
	}
	if share := float64(m.total) / float64(all); share < 0.95 || share > 1 {
		t.Errorf("%.1f %% of the tokens were used", 100*share)
	}
	mean := float64(m.total) / 4
	for client, n := range m.byClient {
		if off := float64(n)/mean - 1; off < -0.05 || off > 0.05 {
			t.Errorf("client %d got %+.1f %% of its share", client, 100*off)
		}
	}
	t.Logf("%d of %d tokens, by client %v", m.total, all, m.byClient)
}
