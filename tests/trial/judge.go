package trial

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"
)

// NotJudged begins the reason of each skip that a busy machine causes. Command tally counts
// these skips apart.
const NotJudged = "not judged: the machine was busy"

// Bounds within which a machine counts as quiet.
const (
	// mostWaiting bounds Machine.Waiting. It is not 0, because a program's own threads wait for
	// each other.
	mostWaiting = 0.3
	// mostWaited bounds Machine.Waited. Below it, Waiting does not count: a program that sleeps
	// waits some microseconds at each wake-up.
	mostWaited = 0.05
	// mostStolen bounds Machine.Stolen.
	mostStolen = 0.01
	// mostStarving bounds Machine.Waiting of a machine on which bounds are sure. Programs of tests that run side by
	// side, eight on two processors, wait for up to 87 % of the time.
	mostStarving = 0.9
)

// A Miss says how a measurement is out of its bounds. It comes from Least, Most and Join; a nil
// *Miss says that the measurement is good.
type Miss struct {
	text string
	far  bool // no busy machine explains it
}

// Least returns a Miss with a text if got is below want. A busy machine excuses it if got is not
// below sure, which any machine keeps to.
func Least[N cmp.Ordered](got, want, sure N, format string, args ...any) *Miss {
	return missUnless(got >= want, got >= sure, format, args)
}

// Most returns a Miss with a text if got is above want. A busy machine excuses it if got is not
// above sure, which any machine keeps to.
func Most[N cmp.Ordered](got, want, sure N, format string, args ...any) *Miss {
	return missUnless(got <= want, got <= sure, format, args)
}

func missUnless(good, excusable bool, format string, args []any) *Miss {
	if good {
		return nil
	}
	return &Miss{fmt.Sprintf(format, args...), !excusable}
}

// Join returns a Miss of all that are not nil, with a line for each. If a busy machine does not
// excuse one of them, it does not excuse their Miss.
func Join(all ...*Miss) (joined *Miss) {
	for _, m := range all {
		switch {
		case m == nil:
		case joined == nil:
			joined = m
		default:
			joined = &Miss{joined.text + "\n" + m.text, joined.far || m.far}
		}
	}
	return joined
}

// Judge runs a measurement, and a Watch beside it. If the measurement returns a Miss and the
// machine was quiet meanwhile, the test fails. If the machine was busy, Judge skips a subtest named
// "time" and the test goes on, unless a sure bound is missed: the test fails then, too. Nothing is sure if the programs of
// the test hardly got a processor.
//
// The machine was busy if a timed wake-up was late by more than slack, if the programs of the
// test waited too long for a processor, or if the hypervisor took too much time. Slack is how
// much lateness the bounds of the measurement allow for.
//
// A busy machine cannot spoil counts, order, gaps that are too short and rates that are too
// high. The measurement reports these with t.Error, not with its result.
func Judge(t *testing.T, slack time.Duration, measure func() *Miss) {
	t.Helper()
	w := Begin()
	wrong := measure()
	w.Judge(t, slack, wrong)
}

// Judge ends the watch, and judges wrong as the function Judge does. Wrong is the result of a
// measurement that ran since Begin.
func (w *Watch) Judge(t *testing.T, slack time.Duration, wrong *Miss) {
	t.Helper()
	w.End().judge(t, slack, wrong)
}

func (m Machine) judge(t *testing.T, slack time.Duration, wrong *Miss) {
	t.Helper()
	if wrong == nil {
		return
	}
	t.Logf("%s; meanwhile %v", wrong.text, m)
	busy := m.busy(slack)
	if busy == "" {
		t.Error(wrong.text)
		return
	}
	if wrong.far && m.Waiting <= mostStarving {
		t.Errorf("%s; the machine was busy (%s), but that does not explain it", wrong.text, busy)
		return
	}
	t.Run("time", func(t *testing.T) {
		first, _, _ := strings.Cut(wrong.text, "\n") // the log has all lines
		t.Skipf("%s: %s: %s", NotJudged, busy, first)
	})
}

// Below ends the watch, and judges that took does not exceed limit, and surely not three times the
// limit and half a second. Slack is half of limit.
func (w *Watch) Below(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	w.Judge(t, limit/2, Most(took, limit, 3*limit+time.Second/2, "%s took %v, want at most %v", what, took, limit))
}

// busy returns why the machine counts as busy, or "" if it was quiet.
func (m Machine) busy(slack time.Duration) string {
	switch {
	case m.Late > slack:
		return fmt.Sprintf("a timed wake-up came %v late", m.Late.Round(10*time.Microsecond))
	case m.Waiting > mostWaiting && m.Waited > mostWaited:
		return fmt.Sprintf("for %.0f %% of the time the programs waited for a processor", 100*m.Waiting)
	case m.Stolen > mostStolen:
		return fmt.Sprintf("%.1f %% of the processors were stolen", 100*m.Stolen)
	}
	return ""
}
