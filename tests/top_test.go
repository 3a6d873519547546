package tests

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// tmux is a terminal that a test looks at.
type tmux struct {
	t      *testing.T
	socket string
}

// newTmux opens a terminal of 80x24 in which a command runs.
func newTmux(t *testing.T, command string) *tmux {
	tool(t, "tmux", "tmux")
	m := &tmux{t, filepath.Join(t.TempDir(), "tmux")}
	m.do("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command)
	t.Cleanup(func() { m.do("kill-server") })
	return m
}

func (m *tmux) do(args ...string) string {
	m.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-u", "-S", m.socket}, args...)...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// press sends keys by their names in tmux.
func (m *tmux) press(keys ...string) { m.do(append([]string{"send-keys"}, keys...)...) }

// await waits until the screen shows all texts, and returns its lines.
func (m *tmux) await(texts ...string) (lines []string) {
	m.t.Helper()
	screen := ""
	defer func() {
		if m.t.Failed() {
			m.t.Logf("the screen is\n%s", screen)
		}
	}()
	trial.Await(m.t, fmt.Sprintf("the screen shows %q", texts), func() bool {
		screen = m.do("capture-pane", "-p")
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
	return strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
}

// shaper top shows what waits and why. Keys open a class and filter; a new size is used; when the daemon
// goes it says so, and goes on when there is one again; at the end the screen is as it was.
func TestTop(t *testing.T) {
	t.Parallel()
	upstream := serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	p := start(t, plain(), fmt.Sprintf(dashboardPolicy, upstream))
	if _, err := io.WriteString(dial(t, "", p.addr("bulk")), strings.Repeat("hello\n", 50)); err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "49 messages wait", func() bool { return p.class("bulk").Backlog == 49 })
	m := newTmux(t, "PS1='ready> ' sh")
	m.await("ready>") // tmux cuts spaces at the ends of lines
	m.press(fmt.Sprintf("%s -c %s top; echo \"it ended with $?\"", plain(), p.config), "Enter")

	tree := m.await("aggregator", "    bulk ", "    otp ", "  idle ", "  1 mess", ", 59m", "4 classes, something waits in 2", "q quit")
	if len(tree) != 24 || strings.Contains(strings.Join(tree, ""), "ready>") {
		t.Errorf("the tree has %d lines: %q", len(tree), tree)
	}
	m.press("/")
	m.press("ul")
	m.press("Enter")
	if some := m.await(`only names with "ul"`, ">   bulk"); strings.Contains(strings.Join(some, ""), "idle") {
		t.Errorf("the filter shows %q", some)
	}
	m.press("Enter")
	why := strings.SplitN(p.must("why", "bulk"), "\n", 3)
	m.await("class bulk: waiting items: 49; the next leaves at", strings.TrimSpace(why[1]), "ITEMS, top 49", "last 49")
	m.do("resize-window", "-x", "132", "-y", "50")
	if page := m.await("DROPPED, REFUSED, top 0/s", "overlimits"); len(page) != 50 {
		t.Errorf("in 50 lines it shows %d", len(page))
	}
	m.press("Escape")
	m.await(`only names with "ul"`)
	m.press("Escape")
	m.await("  idle ", "REFUSED")
	m.press("s")
	m.await("by ITEMS")
	m.do("resize-window", "-x", "40", "-y", "10")
	m.await("at least", "60x12", "40x10")
	m.do("resize-window", "-x", "80", "-y", "24")
	m.await("by ITEMS", "  idle ")

	p.stop()
	m.await("old since", "the daemon is not reachable", "  idle ")
	p.run()
	m.await("4 classes, something waits in 0")
	m.press("q")
	after := m.await("it ended with 0")
	if text := strings.Join(after, "\n"); !strings.HasPrefix(text, "ready>") || strings.Contains(text, "WAITS FOR") {
		t.Errorf("after top, the screen is\n%s", text)
	}
}

// What is no terminal gets a hint to what prints anywhere.
func TestTopNeedsATerminal(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(plain(), "--socket", "/nonexistent", "top")
	cmd.Env = append(os.Environ(), "TERM=xterm")
	out, _ := cmd.CombinedOutput()
	if want := "shaper: top needs a terminal that can move the cursor; shaper classes --watch 2s prints the classes anywhere\n"; string(out) != want || cmd.ProcessState.ExitCode() != 64 {
		t.Errorf("%s: %q", cmd.ProcessState, out)
	}
}
