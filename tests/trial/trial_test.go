package trial

import (
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// If other programs hold the processors, Watch sees it in late wake-ups, and in the time that
// the programs of the test wait.
func TestWatchSeesABusyMachine(t *testing.T) {
	var loops []*exec.Cmd
	for range 2 * runtime.NumCPU() {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		loops = append(loops, loop)
	}
	w := Begin()
	time.Sleep(500 * time.Millisecond)
	m := w.End()
	for _, loop := range loops {
		loop.Process.Kill()
		loop.Wait()
	}
	t.Log(m)
	if m.Late < 500*time.Microsecond || m.Waiting < 0.4 || m.busy(500*time.Microsecond) == "" {
		t.Errorf("two busy loops on each processor: %+v, which does not look busy", m)
	}
}

func TestBusy(t *testing.T) {
	for _, test := range []struct {
		m    Machine
		want string
	}{
		{Machine{}, ""},
		{Machine{Late: 5 * time.Millisecond, Waiting: mostWaiting, Waited: 1, Stolen: mostStolen}, ""},
		{Machine{Late: 5*time.Millisecond + 10*time.Microsecond}, "a timed wake-up came 5.01ms late"},
		{Machine{Waiting: 0.5, Waited: 0.01}, ""},
		{Machine{Waiting: 0.5, Waited: 0.1}, "for 50 % of the time the programs waited for a processor"},
		{Machine{Stolen: 0.02}, "2.0 % of the processors were stolen"},
	} {
		if got := test.m.busy(5 * time.Millisecond); got != test.want {
			t.Errorf("%+v: busy returns %q, want %q", test.m, got, test.want)
		}
	}
}

// A measurement that is too slow fails on a quiet machine, and is skipped on a busy one, unless it
// is slower than any machine is. The test runs itself as a process for each outcome.
func TestJudge(t *testing.T) {
	took := func(seconds int) *Miss {
		return Join(nil, Most(seconds, 1, 3, "it took %d s", seconds), Least(seconds, 0, 0, "it took no time"))
	}
	quiet, busy, starving := Machine{}, Machine{Late: time.Second}, Machine{Late: time.Second, Waiting: 0.95, Waited: 9}
	outcomes := map[string]struct {
		m    Machine
		took int
		want string
	}{
		"quick":           {quiet, 1, "PASS: TestJudge"},
		"slow":            {quiet, 2, "FAIL: TestJudge"},
		"slow, busy":      {busy, 3, "SKIP: TestJudge/time"},
		"very slow, busy": {busy, 4, "FAIL: TestJudge"},
		"starving":        {starving, 4, "SKIP: TestJudge/time"},
	}
	if o, ok := outcomes[os.Getenv("AS")]; ok {
		o.m.judge(t, time.Millisecond, took(o.took))
		t.Log("the test goes on")
		return
	}
	for as, o := range outcomes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestJudge$", "-test.v")
		cmd.Env = append(os.Environ(), "AS="+as)
		out, err := cmd.CombinedOutput()
		text := string(out)
		fails, skips := strings.HasPrefix(o.want, "FAIL"), strings.HasPrefix(o.want, "SKIP")
		if (err != nil) != fails || !strings.Contains(text, o.want) || !strings.Contains(text, "the test goes on") || strings.Contains(text, NotJudged) != skips {
			t.Errorf("%s: %v\n%s", as, err, text)
		}
	}
}

func TestMisses(t *testing.T) {
	within, bad, far := Least(2, 2, 1, ""), Least(1, 2, 1, "a %d", 1), Most(math.NaN(), 2, 3, "b")
	if within != nil || *bad != (Miss{"a 1", false}) || *far != (Miss{"b", true}) {
		t.Errorf("%v, %v, %v", within, bad, far)
	}
	if both := Join(bad, nil, far); *both != (Miss{"a 1\nb", true}) || Join(nil, bad) != bad || Join(within) != nil {
		t.Errorf("joined: %v", both)
	}
}
