package simulate

import (
	"testing"
	"time"
)

// allows is what a contract lets leave in any time of a length.
type allows struct {
	n    int
	span time.Duration
}

// Each contract of docs/recipes.md holds, whatever comes, and what it allows is used.
func TestRecipesOfContracts(t *testing.T) {
	for _, c := range []struct {
		heading string
		loads   []string
		length  time.Duration
		limits  []allows
	}{
		{"30 a second over two binds", []string{"rate=50 messages/s"}, time.Minute, []allows{{30, time.Second}, {1, time.Second / 30}}},
		{"Refusals in the body of a 200", []string{"rate=50 messages/s"}, time.Minute, []allows{{30, time.Second}, {1, time.Second / 30}}},
		{"50 a second, and 20 for each sender", []string{"rate=30 messages/s,source_addr=1"}, time.Minute, []allows{{20, time.Second}, {1, time.Second / 20}}},
		{"50 a second, and 20 for each sender", []string{"rate=30 messages/s,source_addr=1", "rate=30 messages/s,source_addr=2", "rate=30 messages/s,source_addr=3"},
			time.Minute, []allows{{50, time.Second}, {1, time.Second / 50}}},
		{"5 in each second, and 100 open", []string{"rate=20 messages/s"}, time.Minute, []allows{{5, 1020 * time.Millisecond}}},
		{"Parts of messages, of each number and in all", []string{"rate=5 messages/s,source_addr=1"}, time.Minute, []allows{{3, time.Second}, {1, time.Second / 3}}},
		{"Parts of messages, of each number and in all", []string{"rate=5 messages/s,source_addr=1", "rate=15 messages/s,source_addr=2", "rate=20 messages/s,source_addr=3", "rate=20 messages/s,source_addr=4",
			"rate=20 messages/s,source_addr=5", "rate=20 messages/s,source_addr=6", "rate=20 messages/s,source_addr=7", "rate=20 messages/s,source_addr=8"},
			time.Minute, []allows{{20, time.Second}, {1, time.Second / 20}}},
		{"20 a second, and 20,000 in any 15 minutes", []string{"rate=30 messages/s"}, 20 * time.Minute, []allows{{20, time.Second}, {20000, 15 * time.Minute}}},
		{"1,800 for each sub-account, and 3,000 in all", []string{"rate=2500 messages/s,path=/api/v1/subaccounts/a/messages"}, 2 * time.Second, []allows{{1800, time.Second}}},
		{"1,800 for each sub-account, and 3,000 in all", []string{"rate=2500 messages/s,path=/api/v1/subaccounts/a/messages", "rate=2500 messages/s,path=/api/v1/subaccounts/b/messages"},
			2 * time.Second, []allows{{3000, time.Second}}},
		{"A limit for each operation, and none for a minute", []string{"listener=klarna,rate=60 messages/s,method=GET,path=/orders"}, time.Minute, []allows{{40, time.Second}}},
		{"A limit for each operation, and none for a minute", []string{"listener=paymongo,rate=5 messages/s"}, 5 * time.Minute, []allows{{120, time.Minute}}},
		{"Requests in any 10 seconds", []string{"rate=20 messages/s"}, 5 * time.Minute, []allows{{50, 10 * time.Second}}},
		{"Few alerts to each recipient", []string{"rate=1 messages/s,recipient=4477"}, 6 * time.Hour, []allows{{1, time.Minute}, {5, 15 * time.Minute}, {12, time.Hour}, {20, 3 * time.Hour}}},
	} {
		p := recipe(t, c.heading)
		_, left := simulated(t, p, loads(t, p, c.loads...), Options{For: c.length})
		for _, limit := range c.limits {
			most := 0
			for i, first := 0, 0; i < len(left); i++ {
				for left[i]-left[first] >= limit.span {
					first++
				}
				most = max(most, i-first+1)
			}
			if most > limit.n || most*100 < limit.n*85 {
				t.Errorf("%s, %d loads: %d leave within %v, want at most %d and nearly as many", c.heading, len(c.loads), most, limit.span, limit.n)
			}
		}
	}
}
