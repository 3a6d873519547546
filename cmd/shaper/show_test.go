package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shaper/daemon"
	"shaper/policy"
	"shaper/tests/trial"
)

// withStdin runs a command line with a text on the standard input.
func withStdin(text string, args ...string) (code int, stdout, stderr string) {
	cmd := exec.Command(os.Args[0], args...)
	var out, errs bytes.Buffer
	cmd.Env = append(os.Environ(), asShaper+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &errs
	cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// check prints the keys that the file has, and with --all every key.
func TestCheckPrints(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "shaper.toml", base)
	written := want(t, 0, []string{"class slow\n│     rate  64KiB/s\n├─ class guest", "drain    1m\n"}, "check")
	if strings.Contains(written, "algorithm") || strings.Contains(written, "(default)") {
		t.Errorf("check prints keys that the file does not have:\n%s", written)
	}
	want(t, 0, []string{"algorithm        leaky", "max_sessions        65536", "(default)"}, "check", "--all")
}

func TestCheckStrict(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "shaper.toml", base)
	want(t, 0, nil, "check", "--strict")
	write(t, "shaper.toml", base+"[class.unused]\nrate = \"1mbit\"\n")
	want(t, 0, nil, "check")
	code, out, errs := do("check", "--strict")
	if code != 65 || out != "" || errs != "shaper.toml:16:2: class.unused: it is never used; name it in a listener or a rule\n" {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

// Each command that reads a policy takes "-" for the standard input.
func TestStandardInput(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, out, errs := withStdin(base, "check", "-"); code != 0 || !strings.HasPrefix(out, "<stdin>  ") || errs != "" {
		t.Errorf("check: %d\n%s%s", code, out, errs)
	}
	if code, _, errs := withStdin(strings.Replace(base, "64KiB/s", "fast", 1), "check", "-"); code != 65 || !strings.HasPrefix(errs, "<stdin>:6:8: class.slow.rate: ") {
		t.Errorf("check of a mistake: %d\n%s", code, errs)
	}
	if code, out, errs := withStdin(base, "simulate", "-c", "-", "--load", "rate=1KiB/s", "--for", "10s"); code != 0 || !strings.HasPrefix(out, "<stdin>  ") {
		t.Errorf("simulate: %d\n%s%s", code, out, errs)
	}
	if code, _, errs := withStdin(base, "run", "-c", "-"); code != 64 || !strings.Contains(errs, "run takes no policy from the standard input") {
		t.Errorf("run: %d\n%s", code, errs)
	}
	p := begin(t, base)
	if code, out, errs := withStdin(base, "shadow", "-", "-c", p.path); code != 0 || !strings.HasPrefix(out, "<stdin>  ") {
		t.Errorf("shadow: %d\n%s%s", code, out, errs)
	}
}

// With --socket a command needs no policy file.
func TestSocketFlag(t *testing.T) {
	p := begin(t, base)
	socket := filepath.Join(filepath.Dir(p.path), "c.sock")
	t.Chdir(t.TempDir())
	want(t, 0, []string{"slow", "guest"}, "classes", "--socket", socket)
	want(t, 0, []string{"slow", "guest"}, "--socket="+socket, "classes", "-c", "none.toml")
	t.Setenv("SHAPER_SOCKET", socket)
	want(t, 0, []string{"class guest: rule 1"}, "explain", "127.0.0.2")
}

func TestUnreachable(t *testing.T) {
	t.Chdir(t.TempDir())
	code, _, errs := do("status", "--socket", "none.sock")
	if wanted := "the daemon is not reachable at none.sock: connect: no such file or directory\n" +
		"shaper run starts one; -c FILE asks the daemon of another policy, --socket PATH that of another socket\n"; code != 69 || errs != wanted {
		t.Errorf("%d\n%s", code, errs)
	}
}

func TestOneClass(t *testing.T) {
	p := begin(t, base)
	p.dial()
	out := want(t, 0, []string{"class            slow\n", "algorithm        leaky\n", "rate             64KiB/s\n", "sessions         1\n", "sent upstream    1B, 0 packets, 0 messages, 1 connection\n"}, "classes", "slow", "-c", p.path)
	if strings.Contains(out, "guest") || strings.Contains(out, "dropped, ") {
		t.Errorf("the output has other classes, or losses that did not happen:\n%s", out)
	}
	var all []daemon.Class
	if err := json.Unmarshal([]byte(want(t, 0, nil, "classes", "slow", "--json", "-c", p.path)), &all); err != nil || len(all) != 1 || all[0].Name != "slow" {
		t.Errorf("%v, %+v", err, all)
	}
	want(t, 64, []string{`shaper: there is no class "slo"; did you mean "slow"?`}, "classes", "slo", "-c", p.path)
	want(t, 0, []string{"CLASS"}, "classes", "--sort", "now", "-c", p.path)
	want(t, 64, []string{`shaper: --sort: there is no column "size"; columns: class, rate, `}, "classes", "--sort", "size", "-c", p.path)
}

func TestUpstreams(t *testing.T) {
	p := begin(t, base)
	p.dial()
	want(t, 0, []string{"LISTENER  UPSTREAM  ADDRESS  STATE", "echo      echo:     -        unchecked", "SESSIONS"}, "upstreams", "-c", p.path)
	var all []daemon.Upstream
	if err := json.Unmarshal([]byte(want(t, 0, nil, "upstreams", "--json", "-c", p.path)), &all); err != nil || len(all) != 1 || all[0].Sessions != 1 || all[0].TTL != nil {
		t.Errorf("%v, %+v", err, all)
	}
	want(t, 0, []string{"LISTENER"}, "upstreams", "--sort", "sessions", "-c", p.path)
	want(t, 64, []string{`--sort: there is no column "size"`}, "upstreams", "--sort", "size", "-c", p.path)
}

func TestFleet(t *testing.T) {
	p := begin(t, base)
	want(t, 0, []string{"no class is shared: this process has all budgets"}, "fleet", "-c", p.path)
	want(t, 0, []string{"[]"}, "fleet", "--json", "-c", p.path)
	want(t, 64, []string{`no class uses a fleet "prod"`}, "fleet", "prod", "-c", p.path)
	// The store of this one does not run: the class is there, and nothing leaves.
	shared := strings.Replace(base, "rate = \"64KiB/s\"\n", "rate = \"64KiB/s\"\nshared = \"prod\"\n", 1) + "\n[fleet.prod]\naddress = \"127.0.0.1:1\"\n"
	p = begin(t, shared)
	want(t, 0, []string{"fleet prod  127.0.0.1:1  AWAY  0 members", "CLASS  LIMIT", "slow "}, "fleet", "-c", p.path)
	want(t, 0, []string{"SHARED", "prod"}, "classes", "-c", p.path)
	want(t, 64, []string{`did you mean "prod"`}, "fleet", "prd", "-c", p.path)
}

// pages collects what a command prints, and says when it has so many tables.
type pages struct {
	mu     sync.Mutex
	text   strings.Builder
	enough func()
	many   int
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.Write(b)
	if strings.Count(p.text.String(), "CLASS ") >= p.many {
		p.enough()
	}
	return len(b), nil
}

// In a pipe, --watch prints one table after another until a signal ends it.
func TestWatch(t *testing.T) {
	d := begin(t, base)
	ctx, cancel := context.WithCancel(t.Context())
	out := &pages{enough: cancel, many: 3}
	if code := run(ctx, []string{"shaper", "classes", "--watch", "1ms", "-c", d.path}, out, io.Discard); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if text := out.text.String(); !strings.HasPrefix(text, "CLASS ") || strings.Count(text, "\n\nCLASS ") < 2 || strings.Contains(text, "\x1b") {
		t.Errorf("the output is\n%q", text)
	}
	want(t, 64, []string{"--watch: \"0s\" leaves no time"}, "status", "--watch", "0s")
	want(t, 64, []string{"--watch shows a policy"}, "shadow", "--stop", "--watch", "1s")
}

// --watch goes on while the daemon restarts, until ctrl-C.
func TestWatchGoesOn(t *testing.T) {
	d := begin(t, base)
	ctx, cancel := context.WithCancel(t.Context())
	printed, out := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"shaper", "classes", "--watch", "1ms", "-c", d.path}, out, out)
		out.Close()
	}()
	lines := bufio.NewScanner(printed)
	await := func(part string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), part) {
				return
			}
		}
		t.Fatalf("the command ends before it prints %q", part)
	}
	await("CLASS ")
	d.Process.Kill()
	d.exitCode()
	await("the daemon is not reachable")
	begin(t, base, func(cmd *exec.Cmd) { cmd.Args[len(cmd.Args)-1] = d.path })
	await("CLASS ")
	cancel()
	go io.Copy(io.Discard, printed)
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}

// With --json, --watch prints a stream of whole values, even in a terminal of few lines.
func TestWatchJSON(t *testing.T) {
	d := begin(t, base)
	terminal, far := trial.OpenTerminal(t, 70, 5)
	cmd := exec.Command(os.Args[0], "classes", "--watch", "1ms", "--json", "-c", d.path)
	cmd.Env = append(os.Environ(), asShaper+"=1")
	cmd.Stdout = far
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	far.Close()
	terminal.SetReadDeadline(time.Now().Add(patience))
	values := json.NewDecoder(terminal)
	for range 3 {
		var all []daemon.Class
		if err := values.Decode(&all); err != nil || len(all) != 2 {
			t.Fatalf("%v: %+v", err, all)
		}
	}
}

// In a terminal, --watch draws each page over the last, as wide as the terminal. After ctrl-C it
// exits with 0.
func TestWatchInATerminal(t *testing.T) {
	d := begin(t, base)
	terminal, far := trial.OpenTerminal(t, 70, 24)
	cmd := exec.Command(os.Args[0], "classes", "--watch", "1ms", "-c", d.path)
	cmd.Env = append(os.Environ(), asShaper+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	terminal.SetReadDeadline(time.Now().Add(patience))
	var drawn strings.Builder
	part := make([]byte, 4096)
	for strings.Count(drawn.String(), home) < 3 {
		n, err := terminal.Read(part)
		if err != nil {
			t.Fatalf("%v after %q", err, drawn.String())
		}
		drawn.Write(part[:n])
	}
	terminal.Write([]byte{3}) // ctrl-C
	go io.Copy(io.Discard, terminal)
	if err := cmd.Wait(); err != nil {
		t.Errorf("ctrl-C: %v", err)
	}
	page := strings.Split(drawn.String(), home)[1]
	for line := range strings.SplitSeq(page, clearLine+"\r\n") {
		if len(line) > 70 {
			t.Errorf("%q is wider than the terminal", line)
		}
	}
	if !strings.HasSuffix(page, clearRest) {
		t.Errorf("the rest of the screen is not cleared: %q", page)
	}
}

// classes and explain say which of several limits is waited for.
func TestWhichLimitIsWaitedFor(t *testing.T) {
	p := begin(t, strings.Replace(base, `rate = "64KiB/s"`, "rate = \"2 connections/s\"\nalgorithm = \"token\"\nburst = \"3 connections\"\n"+
		`also = ["1 connections/h", { rate = "500 connections/day", zone = "Europe/Paris" }]`+"\noverflow = \"wait\"", 1))
	p.dial()
	address := p.status().Listeners[0].Addresses[0]
	waiting, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	for deadline := time.Now().Add(patience); ; {
		if _, out, _ := do("classes", "-c", p.path); strings.Contains(out, "1 connections/h, ") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("no connection waits:\n%s", out)
		}
	}
	want(t, 0, []string{"WAITS FOR"}, "classes", "-c", p.path)
	want(t, 0, []string{`also             { rate = "1 connections/h", algorithm = "sliding-log" }`,
		`also             { rate = "500 connections/day", algorithm = "fixed-window", window = "day", zone = "Europe/Paris" }`, "waits for        1 connections/h, "}, "classes", "slow", "-c", p.path)
	want(t, 0, []string{"  an item that comes now leaves at about ", "; items that wait before it: 1\n", "    class slow: the window is full: it allows 1 connections/h, until "}, "explain", "127.0.0.1", "-c", p.path)
	var all []policy.Explanation
	if err := json.Unmarshal([]byte(want(t, 0, nil, "explain", "127.0.0.1", "--json", "-c", p.path)), &all); err != nil || len(all[0].Holds) != 1 || all[0].Holds[0].Cause != "limit" || time.Until(all[0].WaitsUntil) < 50*time.Minute {
		t.Errorf("%v, %+v", err, all)
	}
	var classes []daemon.Class
	if err := json.Unmarshal([]byte(want(t, 0, nil, "classes", "slow", "--json", "-c", p.path)), &classes); err != nil || classes[0].WaitsFor == nil || classes[0].WaitsFor.Limit != "1 connections/h" {
		t.Errorf("%v, %+v", err, classes)
	}
}

// classes says of a class with one limit, too, what the next item or session waits for, in words and not as a key of the policy.
func TestWhatIsWaitedFor(t *testing.T) {
	p := begin(t, strings.Replace(base, `rate = "64KiB/s"`, "rate = \"64KiB/s\"\nmax_connections = 1\noverflow = \"wait\"", 1))
	p.dial()
	waiting, err := net.Dial("tcp", p.status().Listeners[0].Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	out := ""
	for deadline := time.Now().Add(patience); !strings.Contains(out, "sessions to end"); {
		if time.Now().After(deadline) {
			t.Fatalf("no session waits:\n%s", out)
		}
		_, out, _ = do("classes", "-c", p.path)
	}
	if !strings.Contains(out, "WAITS FOR") {
		t.Errorf("there is no column WAITS FOR:\n%s", out)
	}
}

// In a time with a rate of 0, a request that would wait too long is refused, and told when to come
// again.
func TestRefusedUntilTheScheduleOpens(t *testing.T) {
	now := time.Now().UTC()
	opens := now.Add(2 * time.Hour).Truncate(time.Minute)
	p := begin(t, fmt.Sprintf(`[daemon]
control = "c.sock"
http = ""
[class.quiet]
rate = "10 messages/s"
max_wait = "1min"
[[class.quiet.at]]
from = "%s"
to = "%s"
rate = "0 messages/s"
[listener.api]
listen = "127.0.0.1:0"
protocol = "http"
upstream = "discard:"
class = "quiet"
`, now.Add(-time.Hour).Format("15:04"), opens.Format("15:04")))
	response, err := http.Get("http://" + p.status().Listeners[0].Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	after, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if want := time.Until(opens) - time.Minute; response.StatusCode != 429 || err != nil || (time.Duration(after)*time.Second-want).Abs() > patience {
		t.Errorf("%s, Retry-After %q, want %v", response.Status, response.Header.Get("Retry-After"), want)
	}
	want(t, 0, []string{"SCHEDULED", "0 messages/s until " + opens.Local().Format("Mon 15:04")}, "classes", "-c", p.path)
	want(t, 0, []string{" in UTC: rate 0 messages/s"}, "classes", "quiet", "-c", p.path)
	want(t, 0, []string{`"text": "0 messages/s"`}, "classes", "quiet", "--json", "-c", p.path)
	want(t, 0, []string{"    class quiet: a time in which nothing may leave, until "}, "explain", "127.0.0.1", "-c", p.path)
}
