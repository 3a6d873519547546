package simulate

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"testing"
	"time"

	"shaper/policy"
)

// recipe returns the policy that docs/recipes.md shows under a heading.
func recipe(t *testing.T, heading string) *policy.Policy {
	t.Helper()
	text, err := os.ReadFile("../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n## " + regexp.QuoteMeta(heading) + "\n.*?```toml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("docs/recipes.md has no policy under %q", heading)
	}
	p, warnings, err := policy.Parse("recipe.toml", block[1])
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return p
}

// The quota of a day is used up at the rate of the class beneath it. What waits then leaves at
// that rate when the next day begins.
func TestRecipeOfAQuota(t *testing.T) {
	const quota, day = 100_000, 24 * time.Hour
	p := recipe(t, "A quota for each day, and a rate")
	_, left := simulated(t, p, loads(t, p, "rate=25 messages/s,count=130000"), Options{For: 25 * time.Hour})
	if len(left) != quota+500 {
		t.Fatalf("%d messages leave, want the quota and what waits for the next day", len(left))
	}
	gap := p.Classes[1].Rate.Below(p.Classes[1].Headroom).Time(1)
	for i := range left[1:] {
		if d := left[i+1] - left[i]; d < gap || d > gap+time.Millisecond && i+1 != quota {
			t.Fatalf("message %d leaves %v after the one before it, want %v", i+1, d, gap)
		}
	}
	if last := left[quota-1]; last > 86*time.Minute {
		t.Errorf("the quota is used up after %v", last)
	}
	if first := left[quota]; first != day {
		t.Errorf("the first message of the next day leaves at %v", first)
	}
}

// All limits of a contract hold at once: 20 a second, 600 in any minute, and 10,000 in each day of
// the provider.
func TestRecipeOfSeveralLimits(t *testing.T) {
	p := recipe(t, "Several limits at once, one until midnight")
	_, left := simulated(t, p, loads(t, p, "rate=25 messages/s"), Options{For: 5 * time.Minute})
	gap := p.Classes[0].Rate.Below(p.Classes[0].Headroom).Time(1)
	for i := range left {
		if i > 0 && left[i]-left[i-1] < gap {
			t.Fatalf("message %d leaves %v after the one before it", i, left[i]-left[i-1])
		}
		if i >= 600 && left[i]-left[i-600] < time.Minute {
			t.Fatalf("messages %d to %d leave within %v", i-600, i, left[i]-left[i-600])
		}
	}
	if left[600] > time.Minute+2*gap {
		t.Errorf("message 600 leaves after %v", left[600])
	}
	_, left = simulated(t, p, loads(t, p, "rate=0.5 messages/s"), Options{For: 30 * time.Hour})
	perDay := map[string]int{}
	loc := p.Classes[0].Also[1].Zone.Location()
	for _, at := range left { // the first is at 16:00 there
		perDay[Epoch.Add(at).In(loc).Format(time.DateOnly)]++
	}
	if len(perDay) != 2 || perDay["1969-12-31"] != 10_000 || perDay["1970-01-01"] != 10_000 {
		t.Errorf("%v leave", perDay)
	}
}

// A client that sends an alert each second gets through what each of four windows allows.
func TestRecipeOfAlerts(t *testing.T) {
	p := recipe(t, "Few alerts to each client, however long it rains")
	_, left := simulated(t, p, loads(t, p, "rate=1 messages/s,source=10.0.0.1"), Options{For: 6 * time.Hour})
	for _, window := range []struct {
		n    int
		span time.Duration
	}{{1, time.Minute}, {5, 15 * time.Minute}, {12, time.Hour}, {20, 3 * time.Hour}} {
		reached := false
		for i := window.n; i < len(left); i++ {
			if d := left[i] - left[i-window.n]; d < window.span {
				t.Fatalf("%d alerts leave within %v", window.n+1, d)
			} else if d < window.span+2*time.Second {
				reached = true
			}
		}
		if !reached {
			t.Errorf("the limit of %d in %v is never reached", window.n, window.span)
		}
	}
	if len(left) < 40 {
		t.Errorf("only %d alerts leave in six hours", len(left))
	}
}

// At night nothing leaves. What comes shortly before the morning waits, and the rest is refused.
func TestRecipeOfNights(t *testing.T) {
	p := recipe(t, "Slower on Sundays, and silent at night")
	r, left := simulated(t, p, loads(t, p, "rate=1 messages/s"), Options{For: 24 * time.Hour, Curves: true}) // a Thursday, UTC+1
	opens, closes, patience := 8*time.Hour, 20*time.Hour, 10*time.Minute
	if left[0] != opens || left[len(left)-1] != closes-time.Second {
		t.Errorf("the first leaves after %v, the last after %v", left[0], left[len(left)-1])
	}
	if want := int((closes - opens + patience) / time.Second); len(left) != want {
		t.Errorf("%d leave, want %d", len(left), want)
	}
	if last := left[600]; last > opens+600*time.Second/20+time.Second {
		t.Errorf("what has waited has left after %v", last)
	}
	if err := Plot(io.Discard, r); err != nil {
		t.Error(err)
	}
	const nine = 80 * time.Hour // on a Sunday
	_, left = simulated(t, p, loads(t, p, "rate=10 messages/s,start=79h"), Options{For: time.Hour + time.Minute})
	if left[0] != nine || len(left) != 300 {
		t.Errorf("on a Sunday %d leave in a minute, the first after %v", len(left), left[0])
	}
	for i := range left[1:] {
		if gap := left[i+1] - left[i]; gap != time.Second/5 {
			t.Fatalf("on a Sunday message %d leaves %v after the one before it", i+1, gap)
		}
	}
}

// Each pair of sender and recipient gets 45 messages as fast as the account allows, and one
// every 6 seconds after that. Another pair does not wait for it.
func TestRecipeOfPairs(t *testing.T) {
	p := recipe(t, "One message per recipient every 6 seconds, 45 at once")
	_, left := simulated(t, p, loads(t, p, "rate=50 messages/s,count=50,source_addr=acme,recipient=4917"), Options{For: time.Minute})
	if len(left) != 50 {
		t.Fatalf("%d messages leave", len(left))
	}
	for i, at := range left[45:] {
		if want := time.Duration(i+1) * 6 * time.Second; at < want || at > want+time.Second {
			t.Errorf("message %d leaves at %v, want %v", 46+i, at, want)
		}
	}
	if at := left[44]; at > time.Second {
		t.Errorf("45 leave within %v", at)
	}
	_, left = simulated(t, p, loads(t, p, "rate=50 messages/s,count=50,source_addr=acme,recipient=4917", "rate=1 messages/s,count=5,start=2s,source_addr=acme,recipient=4918"), Options{For: time.Minute})
	if at := left[49]; len(left) != 55 || at > 7*time.Second {
		t.Errorf("%d messages leave, the last one within the bursts at %v", len(left), at)
	}
}

// Each endpoint has 25 requests in a second, all together have 100.
func TestRecipeOfEndpoints(t *testing.T) {
	p := recipe(t, "100 requests a second, and 25 for each endpoint")
	const load = "rate=60 messages/s,count=60,method=POST,path=/v1/"
	_, left := simulated(t, p, loads(t, p, load+"charges"), Options{For: time.Minute})
	if n := within(left, time.Second); len(left) != 60 || n < 24 || n > 26 {
		t.Errorf("of %d requests for one endpoint, %d leave in the first second", len(left), n)
	}
	_, left = simulated(t, p, loads(t, p, load+"a", load+"b", load+"c", load+"d", load+"e", load+"f"), Options{For: time.Minute})
	if n := within(left, time.Second); len(left) != 360 || n < 98 || n > 101 {
		t.Errorf("of %d requests for six endpoints, %d leave in the first second", len(left), n)
	}
}

// Each API key has its own limit.
func TestRecipeOfAPIKeys(t *testing.T) {
	p := recipe(t, "A limit for each API key")
	const load = "rate=100 messages/s,count=50,header:X-Api-Key="
	for keys, most := range map[int]int{1: 30, 3: 90} {
		var all []string
		for i := range keys {
			all = append(all, load+string(rune('a'+i)))
		}
		_, left := simulated(t, p, loads(t, p, all...), Options{For: time.Minute})
		if n := within(left, time.Second); n < most-4 || n > most {
			t.Errorf("with %d keys, %d requests leave in the first second, want %d", keys, n, most)
		}
	}
}

// within returns how many of the times are below a bound.
func within(left []time.Duration, bound time.Duration) (n int) {
	for _, at := range left {
		if at < bound {
			n++
		}
	}
	return n
}

// Each customer has 20 messages a second and no more, those whose campaigns wait take turns, and a passcode waits for one message of its
// customer and one of each other customer.
func TestRecipeOfPasscodesForEachCustomer(t *testing.T) {
	p := recipe(t, "Passcodes before bulk, for each customer")
	const own, others = 50 * time.Millisecond, 10 * time.Millisecond
	for customers := range 8 {
		customers++
		var of []string
		for i := range customers {
			of = append(of, fmt.Sprintf("rate=50 messages/s,system_id=%c,source_addr=ACME", 'a'+i))
		}
		r, left := simulated(t, p, loads(t, p, append(of, "rate=4 messages/s,system_id=a,source_addr=OTP1")...), Options{For: time.Minute})
		passcodes, _ := r.Class("passcodes")
		if want := min(20*customers, 100) * 60; len(left) < want || len(left) > want+customers {
			t.Errorf("%d customers: %d messages leave in a minute, want %d", customers, len(left), want)
		}
		turn := max(own, time.Duration(customers)*others) // how often a customer has its turn
		if longest := time.Duration(passcodes.WaitMax); passcodes.Left.Items < 238 || longest > turn+time.Duration(customers)*others {
			t.Errorf("%d customers: %d passcodes leave, after %v at most", customers, passcodes.Left.Items, longest)
		}
	}
}

// Passcodes wait for one message of a campaign, however many wait, or for each other.
func TestRecipeOfPasscodes(t *testing.T) {
	p := recipe(t, "Passcodes before bulk")
	gap := p.Classes[0].Rate.Below(p.Classes[0].Headroom).Time(1)
	r, left := simulated(t, p, loads(t, p, "rate=150 messages/s,source_addr=ACME", "rate=15 messages/s,source_addr=OTP1"), Options{For: time.Minute})
	for i := range left[1:] {
		if d := left[i+1] - left[i]; d < gap || d > gap+time.Millisecond {
			t.Fatalf("message %d leaves %v after the one before it, want %v", i+1, d, gap)
		}
	}
	passcodes, _ := r.Class("passcodes")
	bulk, _ := r.Class("bulk")
	if longest := time.Duration(passcodes.WaitMax); passcodes.Left.Items < 899 || longest > gap+time.Millisecond {
		t.Errorf("%d passcodes leave, after %v at most, want 15 a second after %v", passcodes.Left.Items, longest, gap)
	}
	if bulk.Waiting.Items < 3000 {
		t.Errorf("only %d messages of the campaign wait", bulk.Waiting.Items)
	}
}
