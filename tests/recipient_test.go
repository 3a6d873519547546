package tests

import (
	"fmt"
	"testing"
	"time"

	"shaper/tests/trial"
)

// docs/recipes.md shows recipientPolicy.
const recipientPolicy = `
[class.account]
rate     = "20 messages/s"
headroom = "2%%"

[class.pair]
parent    = "account"
algorithm = "gcra"
rate      = %q
burst     = "%d messages"
per       = ["source_addr", "recipient"]

[listener.gateway]
listen   = "127.0.0.1:0"
protocol = "smpp"
upstream = %q
class    = "pair"
`

// pairs is what a provider allows each pair of sender and recipient: one message each gap, and
// burst at once.
type pairs struct {
	rate  string
	gap   time.Duration
	burst int
}

// TestKannelByRecipient has Kannel send to several recipients, to some of them more than they
// may get at once. None of these gets them too close, each gets them in the order in which Kannel
// sent them, and none waits for another; and the account's gap is never short.
//
// The order is that of Kannel's sequence numbers. The texts may be in another order: of messages
// that wait within it, Kannel sends those of a later second first (sms_priority_compare in gw/sms.c).
func TestKannelByRecipient(t *testing.T) {
	t.Parallel()
	limit := trial.Size(pairs{"100 messages/min", 600 * time.Millisecond, 6}, pairs{"10 messages/min", 6 * time.Second, 45})
	counts := trial.Size([]int{9, 8, 5, 4, 4}, append([]int{49, 47, 46}, evenly(258, 17)...))
	trial.Judge(t, 5*time.Millisecond, func() *trial.Miss { return kannelByRecipient(t, limit, counts) })
}

// evenly returns n messages spread over so many recipients.
func evenly(n, recipients int) (counts []int) {
	for i := range recipients {
		counts = append(counts, (n+i)/recipients)
	}
	return counts
}

// kannelByRecipient sends counts[i] messages to the recipient i, by turns.
func kannelByRecipient(t *testing.T, limit pairs, counts []int) *trial.Miss {
	rule := &spacing{gap: 50 * time.Millisecond}
	p := spacedProvider(t, rule)
	d := start(t, plain(), fmt.Sprintf(recipientPolicy, limit.rate, limit.burst, p.addr))
	k := newKannel(t, d.addr("gateway"))
	all := 0
	for n := 0; n < 60; n++ {
		for i, count := range counts {
			if n < count {
				k.smsTo(recipient(i), "acme", fmt.Sprintf("message %d.", n))
				all++
			}
		}
	}
	trial.Await(t, "all have arrived", func() bool { return len(p.got()) == all })
	last, seen, arrived := map[string]uint32{}, map[string]bool{}, map[string][]time.Time{}
	for _, s := range p.got() {
		if s.sequence <= last[s.to] {
			t.Errorf("%s gets the submit %d after %d", s.to, s.sequence, last[s.to])
		}
		if seen[s.to+s.body] {
			t.Errorf("%s gets %q twice", s.to, s.body)
		}
		last[s.to], seen[s.to+s.body] = s.sequence, true
		arrived[s.to] = append(arrived[s.to], s.by)
	}
	var slowest, fastest, earliest time.Duration
	for i, count := range counts {
		at := arrived[recipient(i)]
		if len(at) != count {
			t.Fatalf("%s gets %d messages, want %d", recipient(i), len(at), count)
		}
		earliest = max(earliest, tooClose(at, limit))
		took := at[len(at)-1].Sub(at[0])
		if slowest = max(slowest, took); count < limit.burst {
			fastest = max(fastest, took)
		}
	}
	over := time.Duration(counts[0]-limit.burst) * limit.gap
	t.Logf("%d recipients get %d messages, the slowest within %v; those within their burst within %v; the account's shortest gap is %v",
		len(counts), all, slowest, fastest, rule.closest())
	paced := time.Duration(all) * rule.gap * 107 / 100
	most := max(over, paced) + limit.gap
	rule.check(t, all)
	return trial.Join(
		trial.Most(slowest, most, 3*most, "all get theirs within %v, want %v", slowest, most),
		trial.Most(fastest, paced, 3*paced, "those within their burst get theirs within %v, want %v", fastest, paced),
		trial.Most(earliest, 5*time.Millisecond, 2*limit.gap, "a message comes %v too early", earliest))
}

func recipient(i int) string { return fmt.Sprintf("4477009%05d", i) }

// tooClose returns by how much a message comes sooner than the limit allows: in any window of
// n gaps, at most burst+n messages.
func tooClose(at []time.Time, limit pairs) (early time.Duration) {
	for i := range at {
		for j := i + limit.burst; j < len(at); j++ {
			due := at[i].Add(time.Duration(j-i+1-limit.burst) * limit.gap)
			early = max(early, due.Sub(at[j]))
		}
	}
	return early
}
