package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// quietPolicy is quiet for 44* from an hour ago until an hour from now.
const quietPolicy = `
[class.promotions]
rate = "50 messages/s"
max_wait = %q
[[class.promotions.quiet]]
recipient = "44*"
from = %q
to   = %q
[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "promotions"
`

// submitToPDU is submitPDU to another recipient than 4477.
func submitToPDU(to string, sequence uint32) []byte {
	return appendPDU(nil, smppSubmit, 0, sequence, strings.Replace(string(submitPDU(nil, "acme", sequence)[16:]), "4477", to, 1))
}

// In quiet hours a message is refused at once or waits, as max_wait says, and the others on the same
// connection go on. explain and why tell the end.
func TestQuietHours(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	from, to := now.Add(-time.Hour).Format("15:04"), now.Add(time.Hour).Truncate(time.Minute)
	provider := newProvider(t, func(moment) uint32 { return 0 })
	policy := func(maxWait string) string {
		return fmt.Sprintf(quietPolicy, maxWait, from, to.Format("15:04"), provider.addr)
	}
	p := start(t, plain(), policy("10s"))
	e := bind(t, p.addr("gateway"), "acme")
	e.write(submitToPDU("4477", 2))
	e.write(submitToPDU("3377", 3))
	answers := map[uint32]uint32{}
	for range 2 {
		_, status, sequence := e.read()
		answers[sequence] = status
	}
	if answers[2] != smppThrottled || answers[3] != 0 {
		t.Fatalf("the answers are %v", answers)
	}
	if text := p.must("explain", "127.0.0.1", "--recipient", "4499"); !strings.Contains(text, "class promotions: quiet hours of ") {
		t.Errorf("explain says %q", text)
	}

	p.write(policy("3h"))
	p.must("reload")
	for n := range 20 {
		e.write(submitToPDU("4477", uint32(10+2*n)))
		e.write(submitToPDU("3377", uint32(11+2*n)))
	}
	for range 20 {
		if _, status, sequence := e.read(); status != 0 || sequence%2 == 0 {
			t.Fatalf("number %d is answered with %#x", sequence, status)
		}
	}
	e.enquire()
	if got := len(provider.got()); got != 21 {
		t.Errorf("%d messages have reached the provider, want 21", got)
	}
	if text := p.must("why", "promotions"); !strings.Contains(text, "quiet hours of 44*, until "+to.Local().Format("2006-01-02 15:04:05.000")) {
		t.Errorf("why says %q", text)
	}
	if n := p.metric(`shaper_class_backlog_items{class="promotions"}`); n != 20 {
		t.Errorf("%v wait, want 20", n)
	}
	p.write(strings.Replace(policy("3h"), "44*", "45*", 1)) // now they may leave
	p.must("reload")
	for range 20 {
		if _, status, sequence := e.read(); status != 0 || sequence%2 != 0 {
			t.Fatalf("number %d is answered with %#x", sequence, status)
		}
	}
}

// A request has no recipient, so quiet hours without one hold for all of them. Retry-After tells the
// end.
func TestQuietHoursOfRequests(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	now := time.Now().UTC()
	end := now.Add(time.Hour).Truncate(time.Minute)
	p := start(t, plain(), fmt.Sprintf(`
[class.api]
rate = "50 messages/s"
max_wait = "10s"
[[class.api.quiet]]
from = %q
to   = %q
[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "http"
upstream = %q
class    = "api"
`, now.Add(-time.Hour).Format("15:04"), end.Format("15:04"), server.Listener.Addr()))
	answer, err := http.Get("http://" + p.addr("gateway") + "/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	off := time.Until(end) - time.Duration(seconds)*time.Second
	if answer.StatusCode != http.StatusTooManyRequests || err != nil || off.Abs() > 5*time.Second {
		t.Errorf("%s with the header %v; the quiet hours end in %v", answer.Status, answer.Header, time.Until(end))
	}
	if got := answer.Header.Get("X-RateLimit-Limit"); got != "50" {
		t.Errorf("X-RateLimit-Limit is %q, want 50", got)
	}
}
