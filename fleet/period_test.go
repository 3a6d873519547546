package fleet

import "testing"

// TestPeriodAddsUp takes a slot one period after the other, and as many at once.
func TestPeriodAddsUp(t *testing.T) {
	for _, rate := range []string{"3 messages/s", "7 messages/min", "999983 messages/s", "1 message/s"} {
		p := periodOf(mustRate(t, rate))
		first := slotTime{us: 1_760_000_000_000_000}
		one := first
		for range 1000 {
			one = p.after(one, 1)
		}
		if all := p.after(first, 1000); all != one {
			t.Errorf("%s: 1000 periods one by one end at %v, and at once at %v", rate, one, all)
		}
		if length := float64(one.us-first.us) / 1000; length > p.length() || length < p.length()-0.001 {
			t.Errorf("%s: a period has %v µs, and its length is %v", rate, length, p.length())
		}
	}
	if p := periodOf(mustRate(t, "3 messages/s")); p != (period{333333, 1, 3}) {
		t.Errorf("a third of a second is %v", p)
	}
}
