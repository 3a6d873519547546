package tests

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/tests/trial"
)

// docs/recipes.md shows a policy like modelPolicy.
// It has ten times the rate of the contract there, so that a few seconds have many requests.
// TestLanguageModel in package exchange has the rate of the contract, in virtual time.
// The account is paced evenly. A sliding log would let the tokens of the first burst come free
// together in each second, and in a burst, clients with small requests are slow to ask again.
const modelPolicy = `
[class.model]
algorithm = "gcra"
rate      = "300000 tokens/min"
burst     = "100 tokens"
headroom  = "3%%"
cost      = { json = "max_tokens", default = 1000, max = 8000 }
settle    = { json = "usage.total_tokens" }

[class.team]
parent    = "model"
algorithm = "gcra"
rate      = "300000 tokens/min"
burst     = "1000 tokens"
per       = "header:X-Team"

[listener.model]
listen   = "127.0.0.1:0"
protocol = "http"
upstream = %q
class    = "team"
`

// A model is a provider of a language model. It counts tokens in each second of the clock, by
// when requests reach the machine: max_tokens when a request comes; when it is answered in the
// same second, the provider gives back what it has not used.
type model struct {
	perSecond int64

	mu      sync.Mutex // guards the fields below
	seconds map[int64]int64
	teams   map[string]int64 // in whole seconds
	refused int
}

// serve answers a request after a while, as JSON or as a stream of events.
func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Most int64 `json:"max_tokens"`
	}
	text, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(text, &asked); err != nil || asked.Most == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	at := r.Context().Value(connKey{}).(*watchedConn).arrived().Unix()
	if !m.charge(at, asked.Most, r.Header.Get("X-Team")) {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(time.Duration(asked.Most) * time.Millisecond) // it works on the answer
	used := (asked.Most*6 + 5) / 10
	if time.Now().Unix() == at {
		m.charge(at, used-asked.Most, r.Header.Get("X-Team"))
	}
	usage := fmt.Sprintf(`{"text":"%s","usage":{"total_tokens":%d}}`, strings.Repeat("x", 1000), used)
	if asked.Most%2 > 0 {
		io.WriteString(w, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{`{"text":"a"}`, usage, "[DONE]"} {
		fmt.Fprintf(w, "data: %s\n\n", event)
		w.(http.Flusher).Flush()
	}
}

// charge charges tokens to a second. It returns false if there are too many.
func (m *model) charge(second, n int64, team string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seconds[second]+n > m.perSecond {
		m.refused++
		return false
	}
	m.seconds[second] += n
	m.teams[team] += n
	return true
}

// Four teams share the tokens of a provider that refuses whoever sends too many in a second. It
// refuses none, most of the tokens are used, and the teams have equal shares.
//
// If answers gave nothing back, 59 % would be used. The account saves up only 20 ms of its rate, since more
// would not fit into the provider's seconds. What is later than that is lost, so no other test runs beside
// this one.
func TestTokensOfAModel(t *testing.T) {
	trial.Judge(t, 10*time.Millisecond, func() *trial.Miss { return shareModel(t, int64(trial.Size(4, 30))) })
}

func shareModel(t *testing.T, seconds int64) *trial.Miss {
	m := &model{perSecond: 5000, seconds: map[int64]int64{}, teams: map[string]int64{}}
	_, addr := httpServer(t, m.serve)
	d := start(t, plain(), fmt.Sprintf(modelPolicy, addr))
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}}
	defer client.CloseIdleConnections()
	url := "http://" + d.addr("model") + "/v1/chat"
	from := time.Now().Unix() + 1
	end := time.Unix(from+seconds, 0)
	var all sync.WaitGroup
	for i := range 100 {
		team := fmt.Sprint(i % 4)
		all.Go(func() {
			for n := i; time.Now().Before(end.Add(200 * time.Millisecond)); n++ {
				if err := askModel(client, url, team, 5+n%(10+10*(i%4))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var used, total int64
	for s := from; s < from+seconds; s++ {
		used += m.seconds[s]
	}
	for _, n := range m.teams {
		total += n
	}
	share := 100 * float64(used) / float64(seconds*m.perSecond)
	trial.Figure(t, "tokens used; refused; by team", "%.1f %%; %d; %v", share, m.refused, m.teams)
	wrong := trial.Join(
		trial.Most(m.refused, 0, 20, "%d requests were refused", m.refused),
		trial.Least(share, 95, 62, "%.1f %% of the tokens were used", share))
	for team, n := range m.teams {
		off := 4*float64(n)/float64(total) - 1
		wrong = trial.Join(wrong, trial.Most(math.Abs(off), 0.05, 0.2, "team %s got %+.1f %% of its share", team, 100*off))
	}
	return wrong
}

// askModel asks for so many tokens, and checks that the answer is whole.
func askModel(client *http.Client, url, team string, most int) error {
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":%d}`, strings.Repeat("hello ", 200), most)
	var text io.Reader = strings.NewReader(body)
	if most%3 == 0 {
		text = io.MultiReader(text) // in chunks
	}
	r, err := http.NewRequest("POST", url, text)
	if err != nil {
		return err
	}
	r.Header.Set("X-Team", team)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode == http.StatusOK && !strings.Contains(string(got), strings.Repeat("x", 1000)):
		return fmt.Errorf("the answer is %q", got)
	case answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests:
		return fmt.Errorf("the answer is %s", answer.Status)
	}
	return nil
}

// A long SMS costs its parts: the gap behind it is as long as those of its parts together.
func TestSMSCostTheirParts(t *testing.T) {
	t.Parallel()
	const gap = 20 * time.Millisecond
	p := newProvider(t, func(moment) uint32 { return 0 })
	d := start(t, raced(t), fmt.Sprintf(`
[class.acme]
rate = "50 messages/s"
cost = { segments = true }

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "acme"
`, p.addr))
	e := bind(t, d.addr("gateway"), "acme")
	parts, sum := []int{7, 1, 3, 1, 7, 3, 1}, 0
	for i, n := range parts {
		e.write(appendPDU(nil, 4, 0, uint32(1000+i), longSMS(n)))
		sum += n
	}
	trial.Await(t, "all have arrived", func() bool { return len(p.got()) == len(parts) })
	for i, first := range p.got() {
		want := time.Duration(0)
		for j, last := range p.got()[i+1:] {
			want += time.Duration(parts[i+j]) * gap
			if took := last.by.Sub(first.after); took < want-slew(want) {
				t.Errorf("%v from number %d to number %d, want at least %v", took, i, i+1+j, want)
			}
		}
	}
	if n := d.metric(`shaper_class_sent_messages_total{class="acme",direction="upstream"}`); n != float64(sum) {
		t.Errorf("%v parts were counted, want %d", n, sum)
	}
	if n := d.metric(`shaper_class_sent_requests_total{class="acme",direction="upstream"}`); n != float64(len(parts)) {
		t.Errorf("%v messages were counted, want %d", n, len(parts))
	}
}

// longSMS returns the body of a submit_sm whose text is sent in so many parts.
func longSMS(parts int) string {
	text := strings.Repeat("x", 153*parts)
	tlv := binary.BigEndian.AppendUint16([]byte{0x04, 0x24}, uint16(len(text)))
	return "\x00\x01\x01acme\x00\x01\x0149170\x00" + strings.Repeat("\x00", 10) + string(tlv) + text
}
