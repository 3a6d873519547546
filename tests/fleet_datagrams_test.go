package tests

import (
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// TestFleetSharesDatagrams lets shapers that always have datagrams waiting share 1,000 a second. By the kernel's timestamps none
// comes sooner than a millisecond after the one before, and at least 93 % of the limit is used. It runs beside no other test: at
// such a rate, a member that waits for a processor loses slots.
func TestFleetSharesDatagrams(t *testing.T) {
	members, want := trial.Size(3, 8), trial.Size(1000, 10_000)
	store := fleettest.StartRedis(t)
	r, sink := recordUDP(t)
	fleet := fleetOf(t, members, plain(), store.Addr, "udp", sink, "rate = \"1000 packets/s\"\nheadroom = \"5%\"")
	trial.Judge(t, 200*time.Microsecond, func() *trial.Miss {
		for _, d := range fleet {
			go pace(dialUDP(t, d.addr("gateway")), 100, 2000/float64(members))
		}
		trial.Await(t, "enough has come", func() bool { return len(r.all()) >= want })
		rule := &spacing{gap: time.Millisecond}
		for _, a := range r.all()[:want] {
			rule.accepts(exactly(a.at))
		}
		accepted, refused, took := rule.score()
		used := float64(accepted-1) * float64(rule.gap) / float64(took)
		trial.Figure(t, "too soon; of the limit", "%d of %d; %.2f %%", refused, want, 100*used)
		t.Logf("%d datagrams of %d shapers in %v: %d too soon, %.2f %% of the limit; the shortest gap is %v", want, members, took, refused, 100*used, rule.closest())
		rule.checkSum(t, want, members) // one of each may be late
		return trial.Join(
			trial.Least(used, 0.93, 0.2, "%.1f %% of the limit was used, want 93 %%", 100*used),
			rule.kept())
	})
}
