package simulate

import (
	"io"
	"strings"
	"testing"
	"time"
)

// In the hours of a night nothing leaves to the recipients who are quiet, on the connection on which
// messages to others go on. What comes a moment before leaves; what comes then waits, or is refused.
func TestRecipeOfQuietHours(t *testing.T) {
	p := recipe(t, "Silent at night, where the recipient is")
	opens, closes := 3*time.Hour+30*time.Minute, 15*time.Hour+30*time.Minute // 9:00 and 21:00 in India, in UTC
	const to = "rate=1 messages/s,recipient=919812345678"
	_, left := simulated(t, p, loads(t, p, to), Options{For: 24 * time.Hour})
	if left[0] != opens || left[len(left)-1] != closes-time.Second {
		t.Errorf("the first leaves after %v, the last after %v", left[0], left[len(left)-1])
	}
	if want := int((closes - opens + 10*time.Minute) / time.Second); len(left) != want {
		t.Errorf("%d leave, want %d", len(left), want)
	}
	r, all := simulated(t, p, loads(t, p, to, "rate=1 messages/s,recipient=447700900123"), Options{For: 24 * time.Hour, Curves: true})
	if want := len(left) + 24*60*60; len(all) != want {
		t.Errorf("with others %d leave, want %d", len(all), want)
	}
	c, _ := r.Class("promotions")
	if c.WaitP50 > 0 || len(c.Refused) == 0 {
		t.Errorf("the median wait is %v, and %v are refused", c.WaitP50, c.Refused)
	}
	var plot strings.Builder
	if err := Plot(&plot, r); err != nil {
		t.Error(err)
	}
	for _, hour := range []string{">0h<", ">6h<", ">18h<", ">24h<"} {
		if !strings.Contains(plot.String(), hour) {
			t.Errorf("the picture of the day has no %s", hour)
		}
	}
	if err := Plot(io.Discard, r); err != nil {
		t.Error(err)
	}
	_, left = simulated(t, p, loads(t, p, "rate=1 messages/h,recipient=33612345678"), Options{For: 7 * 24 * time.Hour})
	for _, at := range left { // Epoch is a Thursday, and France is an hour ahead
		there := Epoch.Add(at).Add(time.Hour)
		if h := there.Hour(); there.Weekday() == time.Sunday || h < 10 || h >= 20 {
			t.Errorf("a message leaves to France at %v", there)
		}
	}
	if len(left) != 6*10 {
		t.Errorf("%d leave to France in a week, want 60", len(left))
	}
}

// Without max_wait, all that comes at night waits and leaves in the morning at the rate of the class,
// beside what comes then for others.
func TestQuietHoursInAMorning(t *testing.T) {
	p := parse(t, `
[class.promotions]
rate  = "2 messages/s"
queue = "5000 messages"
[[class.promotions.quiet]]
recipient = "91*"
from = "00:00"
to   = "01:00"
[listener.x]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = "discard:"
class    = "promotions"
`)
	_, left := simulated(t, p, loads(t, p, "rate=1 messages/s,count=3000,recipient=91", "rate=0.5 messages/s,count=3600,recipient=44"), Options{For: 3 * time.Hour})
	if len(left) != 6600 {
		t.Fatalf("%d leave, want 6600", len(left))
	}
	for i := range left[1:] {
		if gap := left[i+1] - left[i]; gap < time.Second/2 {
			t.Fatalf("message %d leaves %v after the one before it", i+1, gap)
		}
	}
	if n := within(left, time.Hour); n != 1800 {
		t.Errorf("%d leave in the quiet hour, want 1800", n)
	}
	if last := within(left, time.Hour+2000*time.Second+2*time.Second); last < 1800+3000+1000 {
		t.Errorf("%d have left when the backlog should be gone", last)
	}
}
