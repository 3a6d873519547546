package trial

import (
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

// A measurement that is too slow fails on a quiet machine, and is skipped on a busy one. The
// test runs itself as a process for each outcome.
func TestJudge(t *testing.T) {
	how := map[string]struct {
		m     Machine
		wrong error
	}{"quick": {Machine{}, nil}, "slow": {Machine{}, os.ErrDeadlineExceeded}, "busy": {Machine{Late: time.Second}, os.ErrDeadlineExceeded}}
	if as, ok := how[os.Getenv("AS")]; ok {
		as.m.judge(t, time.Millisecond, as.wrong)
		t.Log("the test goes on")
		return
	}
	for as, want := range map[string]string{"quick": "PASS: TestJudge", "slow": "FAIL: TestJudge", "busy": "SKIP: TestJudge/time"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestJudge$", "-test.v")
		cmd.Env = append(os.Environ(), "AS="+as)
		out, err := cmd.CombinedOutput()
		text := string(out)
		if (err != nil) != (as == "slow") || !strings.Contains(text, want) || !strings.Contains(text, "the test goes on") || strings.Contains(text, NotJudged) != (as == "busy") {
			t.Errorf("%s: %v\n%s", as, err, text)
		}
	}
}
