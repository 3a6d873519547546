package trial

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// NotJudged begins the reason of each skip that is due to a busy machine. The test
// command counts these.
const NotJudged = "not judged: the machine was busy"

// Bounds within which a machine counts as quiet.
const (
	// mostWaiting is the share of the time in which the programs of a test want to run and
	// wait for a processor: their own threads wait for one another. Only more than mostWaited
	// of the whole time counts: a program that sleeps waits for some microseconds each time.
	mostWaiting, mostWaited = 0.3, 0.05
	// mostStolen is the share of the processors that the hypervisor gives to others.
	mostStolen = 0.01
)

// Judge runs a measurement and a reference beside it. The measurement returns an error
// if something was too slow or uneven. That fails the test if the machine was quiet in the
// same seconds. If it was busy, the test goes on, and a subtest is skipped that says so.
//
// The machine was busy if one of these holds: a timed wake-up of the reference was later
// than slack, which is what the bounds of the measurement allow for; the programs of the
// test waited too long for a processor; the hypervisor took too much.
//
// What a busy machine cannot spoil (counts, order, gaps that are too short, rates that are
// too high) is not for Judge: the measurement reports it with t.Error.
func Judge(t *testing.T, slack time.Duration, measure func() error) {
	t.Helper()
	w := Begin()
	wrong := measure()
	w.Judge(t, slack, wrong)
}

// Judge ends the watch, and judges what was measured meanwhile as the function Judge does.
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
		first, _, _ := strings.Cut(wrong.Error(), "\n") // the log has them all
		t.Skipf("%s: %s: %s", NotJudged, busy, first)
	})
}

// Below is Judge for a time that something took, which is to be below a limit. Half of
// the limit is slack.
func (w *Watch) Below(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	var wrong error
	if took > limit {
		wrong = fmt.Errorf("%s took %v, and may take %v", what, took, limit)
	}
	w.Judge(t, limit/2, wrong)
}

// busy returns why the machine was busy; "" if it was quiet.
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
