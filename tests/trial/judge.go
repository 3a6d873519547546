package trial

import (
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
)

// Judge runs a measurement, and a Watch beside it. The measurement returns an error if
// something was too slow or uneven. If the machine was quiet meanwhile, that error fails the
// test. If the machine was busy, Judge skips a subtest named "time" and the test goes on.
//
// The machine was busy if a timed wake-up was late by more than slack, if the programs of the
// test waited too long for a processor, or if the hypervisor took too much time. Slack is how
// much lateness the bounds of the measurement allow for.
//
// A busy machine cannot spoil counts, order, gaps that are too short and rates that are too
// high. The measurement reports these with t.Error, not with its result.
func Judge(t *testing.T, slack time.Duration, measure func() error) {
	t.Helper()
	w := Begin()
	wrong := measure()
	w.Judge(t, slack, wrong)
}

// Judge ends the watch, and judges wrong as the function Judge does. Wrong is the error of a
// measurement that ran since Begin; nil means that it was good.
func (w *Watch) Judge(t *testing.T, slack time.Duration, wrong error) {
	t.Helper()
	w.End().judge(t, slack, wrong)
}

func (m Machine) judge(t *testing.T, slack time.Duration, wrong error) {
	t.Helper()
	if wrong == nil {
		return
	}
	t.Logf("%v; meanwhile %v", wrong, m)
	busy := m.busy(slack)
	if busy == "" {
		t.Error(wrong)
		return
	}
	t.Run("time", func(t *testing.T) {
		first, _, _ := strings.Cut(wrong.Error(), "\n") // the log has all lines
		t.Skipf("%s: %s: %s", NotJudged, busy, first)
	})
}

// Below ends the watch, and judges that took does not exceed limit. Slack is half of limit.
func (w *Watch) Below(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	var wrong error
	if took > limit {
		wrong = fmt.Errorf("%s took %v, want at most %v", what, took, limit)
	}
	w.Judge(t, limit/2, wrong)
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
