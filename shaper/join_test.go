package shaper

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
	"shaper/unit"
)

// Limits without windows are kept as one if neither loses a burst that lasts long.
func TestLimitsThatJoin(t *testing.T) {
	burst := func(l policy.Limit, n int64) policy.Limit {
		l.Burst = policy.Burst{N: n, Kind: unit.Messages}
		return l
	}
	fast := 50*ms + 63*time.Microsecond // with a headroom of 2 %, of which a sixteenth remains
	leaky10, gcra10 := limitBy(policy.Leaky, "600 messages/min"), limitBy(policy.GCRA, "600 messages/min")
	for name, c := range map[string]struct {
		also  policy.Limit
		joins bool
		rate  string
		least time.Duration // between two items
	}{
		"slower":         {leaky10, true, "600 messages/min", 98 * ms},
		"faster":         {limitBy(policy.Leaky, "100 messages/s"), true, "20 messages/s", fast},
		"a short burst":  {burst(gcra10, 3), true, "600 messages/min", 98 * ms},
		"a long burst":   {burst(gcra10, 4), false, "20 messages/s", fast},
		"a slack burst":  {burst(limitBy(policy.Token, "30 messages/s"), 1000), true, "20 messages/s", fast},
		"a window":       {limitBy(policy.FixedWindow, "600 messages/min"), false, "20 messages/s", fast},
		"a rate of zero": {limitBy(policy.Leaky, "0 messages/s"), true, "0 messages/s", 0},
	} {
		conf := with(shared20(), c.also)
		all := Limits(conf)
		if len(all) != 2 || all[0].Joined || all[1].Joined != c.joins {
			t.Errorf("%s: the limits are %+v; want that they join: %v", name, all, c.joins)
			continue
		}
		want := rateOf(c.rate)
		if c.rate == "20 messages/s" {
			want = want.Below(conf.Headroom)
		}
		if all[0].Rate.Compare(want) != 0 || all[0].Burst != 1 {
			t.Errorf("%s: the limit of the class is %v with a burst of %d, want %v", name, all[0].Rate, all[0].Burst, want)
		}
		if gap := all[0].gap(); c.least > 0 && (gap < c.least || gap > c.least+time.Microsecond) {
			t.Errorf("%s: items are %v apart, want %v", name, gap, c.least)
		}
	}
}

// A limit that others have joined promises what each of them promises.
func TestJoinedLimitsPromiseWhatEachDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conf := shared20()
		conf.Rate = unit.NewRate(unit.Messages, rapid.Int64Range(1, 3000).Draw(t, "rate"), time.Second)
		conf.Headroom = unit.Percent(rapid.Int64Range(0, 500_000).Draw(t, "headroom"))
		conf.Also = anyAlso(t, unit.Messages)
		p := paceOf(conf)
		kept := p.limits()
		for r := range p.restraints() {
			if r.window > 0 {
				continue
			}
			own := Limit{Rate: r.rate, Burst: r.atOnce, Late: r.late()}
			held := false
			for i := range kept {
				l := &kept[i]
				fits := !l.Joined && l.Window == 0 && l.Late > 0 && l.Rate.Compare(own.Rate) <= 0 && l.Burst <= own.Burst
				held = held || fits && (l.Burst > 1 && l.Late <= own.Late || l.Burst == 1 && (own.Burst > 1 || l.gap() >= own.gap()))
			}
			if !held {
				t.Fatalf("%+v: nothing of %+v keeps it", own, kept)
			}
		}
	})
}

// A class with adapt slows down as far as that takes effect. A limit that has joined stays.
func TestAdaptOfJoinedLimits(t *testing.T) {
	for also, want := range map[string]string{"600 messages/min": "9.8 messages/s", "300 messages/min": "5 messages/s"} {
		conf := with(shared20(), limitBy(policy.Leaky, also))
		conf.Adapt = true
		withMember(t, conf, func(_ *Shaper, member *fakeMember, c *Class) {
			if len(member.budgets) != 1 || member.budgets["0"].rate.Compare(rateOf(also)) != 0 {
				t.Fatalf("the budgets are %+v, want one of %s", member.budgets, also)
			}
			c.Provider().Throttled(time.Now(), time.Second, "0x58")
			if got := member.budgets["0"].rate; got.Time(10) != rateOf(want).Time(10) {
				t.Errorf("beside %s, half of the rate is %v, want %s", also, got, want)
			}
		})
	}
}
