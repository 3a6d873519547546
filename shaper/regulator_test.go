package shaper

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/policy"
	"shaper/unit"
)

// rated is a limiter that only notes at which rate it runs.
type rated struct {
	limitless
	rate unit.Rate
}

func (l *rated) SetRate(_ time.Time, rate unit.Rate, _ int64) { l.rate = rate }

// TestRegulatorRunsAtItsPace holds, over signals, time and other policies, that the limiter of a class runs at the
// rate of the pace less what is withheld, or at what was learned, and that it never blocks.
func TestRegulatorRunsAtItsPace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r regulator
		now, l := start, new(rated)
		set := func(t *rapid.T) {
			conf := classBy(policy.FixedWindow, rapid.SampledFrom([]string{"3 messages/s", "20 messages/s", "100 messages/s"}).Draw(t, "rate"))
			switch rapid.IntRange(0, 2).Draw(t, "answer") {
			case 0:
				conf.Adapt = true
			case 1:
				conf.Learn.Floor = rateOf("1 messages/s")
			}
			p := paceOf(conf)
			l = &rated{rate: p.rate}
			r.set(now, conf, &p, l)
		}
		set(t)
		t.Repeat(map[string]func(*rapid.T){
			"set": set,
			"signal": func(t *rapid.T) {
				if r.throttle.learner == nil {
					r.throttle.until = now.Add(time.Second)
					r.withhold(now, r.throttle.afterSignal())
				}
			},
			"learn": func(t *rapid.T) {
				if r.throttle.learner != nil && r.throttle.learner.answered(now, rapid.Bool().Draw(t, "refused"), 0) {
					r.setRate(now)
				}
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
				r.regain(now)
			},
			"": func(t *rapid.T) {
				if l.rate.Compare(r.pacedRate()) != 0 || r.pace.blocks(l.rate) {
					t.Fatalf("the limiter runs at %v, and the pace is %v", l.rate, r.pacedRate())
				}
				if r.throttle.withheld > 0 && r.throttle.learner != nil {
					t.Fatalf("a class that learns has lost %d sixteenths", r.throttle.withheld)
				}
			},
		})
	})
}

// TestRegulatorWaitsForWhatLeavesAlone holds that a regulator waits for an item on its way out only while its limiter lets
// items leave alone: else nobody says when the item has left.
func TestRegulatorWaitsForWhatLeavesAlone(t *testing.T) {
	conf := leakyClass("1 messages/s")
	p := paceOf(conf)
	r := regulator{pace: p}
	r.use(p.idle(start))
	if !r.alone || r.settler == nil {
		t.Fatal("items do not leave a gap alone")
	}
	r.leavingSince = start
	if r.use(p.idle(start)); r.leavingSince.IsZero() {
		t.Error("the next gap does not wait for the item")
	}
	if r.use(new(rated)); !r.leavingSince.IsZero() || r.alone || r.settler != nil {
		t.Error("a limiter without gaps waits for the item")
	}
}
