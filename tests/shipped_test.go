package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaper/tests/trial"
)

// A newcomer's first steps work: a clone, `go run ./cmd/shaper run` with the shipped policy, and
// the commands that README.md says to try in a second terminal.
func TestReadmeInACleanClone(t *testing.T) {
	t.Parallel()
	tool(t, "bash", "bash")
	tool(t, "curl", "curl")
	relay, pages := freePort(t), freePort(t) // port 7007 and the default port of http may be in use
	commands, clone := readmeCommands(t), copyTree(t)
	for i := range commands {
		commands[i] = strings.NewReplacer("7007", relay, "9780", pages).Replace(commands[i])
	}
	rewrite(t, filepath.Join(clone, "shaper.toml"), strings.NewReplacer("7007", relay, "7009", "0", "[daemon]", "[daemon]\nhttp = \"127.0.0.1:"+pages+"\""))
	log := new(trial.Log)
	run := exec.Command("go", "run", "./cmd/shaper", "run")
	run.Dir, run.Stderr = clone, log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	launched := time.Now()
	t.Cleanup(func() { endGoRun(t, clone, run) })
	trial.Await(t, "the program is built and the shipped policy is in force", func() bool {
		if strings.Contains(log.String(), "error") || strings.Contains(log.String(), "exit status") {
			t.Fatalf("the program fails:\n%s", log)
		}
		return listens(relay) && listens(pages)
	})
	t.Logf("the policy is in force %v after go run", time.Since(launched).Round(100*time.Millisecond))

	watch, began := trial.Begin(), time.Now()
	if got := strings.TrimSpace(sh(t, clone, commands[0])); got != strconv.Itoa(400<<10) {
		t.Errorf("%s: %s", commands[0], got)
	}
	took := time.Since(began)
	t.Logf("%s: took %v", commands[0], took.Round(10*time.Millisecond))
	if took < 5500*time.Millisecond {
		t.Errorf("400 KiB at 64 KiB/s took %v, and README.md says six seconds", took)
	}
	watch.Below(t, "400 KiB at 64 KiB/s", took-6*time.Second, 1500*time.Millisecond)
	if got := sh(t, clone, commands[1]); !regexp.MustCompile(`(?m)^slow +64KiB/s `).MatchString(got) {
		t.Errorf("%s:\n%s", commands[1], got)
	}
	want := fmt.Sprintf(`shaper_class_sent_bytes_total{class="slow",direction="upstream"} %d`, 400<<10)
	if got := sh(t, clone, commands[2]); !strings.Contains(got, want) {
		t.Errorf("%s does not print %s:\n%s", commands[2], want, got)
	}
}

// readmeCommands returns the commands below "While it runs" in README.md, without their comments.
func readmeCommands(t *testing.T) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "While it runs")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		if command, ok := strings.CutPrefix(line, "    "); ok && !strings.HasPrefix(command, "#") {
			command, _, _ = strings.Cut(command, "  #")
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if len(commands) != 3 {
		t.Fatalf("README.md has %d commands to try, want 3: %q", len(commands), commands)
	}
	return commands
}

// copyTree returns a copy of what a clone would contain: all files that git tracks or would add.
func copyTree(t *testing.T) (dir string) {
	t.Helper()
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Skipf("this is not a git repository: %v", err)
	}
	dir = t.TempDir()
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			continue // the file was removed, and that is not committed yet
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// rewrite applies a replacer to a file.
func rewrite(t *testing.T, path string, r *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(r.Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sh runs a shell command in dir, and returns its output.
func sh(t *testing.T, dir, command string) (stdout string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
	return string(out)
}

// endGoRun stops the daemon itself, because go run does not forward SIGTERM. Then it waits for go
// run.
func endGoRun(t *testing.T, dir string, run *exec.Cmd) {
	p := &program{t: t, bin: plain(), config: filepath.Join(dir, "shaper.toml")}
	var s status
	p.read(&s, "status")
	if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := run.Wait(); err != nil {
		t.Errorf("go run: %v", err)
	}
}

// promtool finds no fault in the metrics after traffic over TCP and UDP.
func TestPromtoolFindsNothing(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool", "prometheus")
	p := start(t, plain(), echoAt10MB+`
[class.u]
rate = "1 packets/s"
queue = "1 packets"
[listener.u]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "discard:"
class = "u"
`)
	echo(t, dial(t, "", p.addr("a")), 100_000)
	send(t, p.addr("u"), 5)
	text, _ := p.get("/metrics")
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
