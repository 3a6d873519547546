package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shaper/simulate"
)

// tenAndTwenty writes a trace and two policies that differ in one rate.
func tenAndTwenty(t *testing.T) {
	t.Helper()
	t.Setenv("COLUMNS", "132")
	t.Chdir(t.TempDir())
	for name, rate := range map[string]string{"ten.toml": "10", "twenty.toml": "20"} {
		write(t, name, "[class.a]\nrate = \""+rate+" packets/s\"\nqueue = \"20 packets\"\n"+
			"[listener.in]\nlisten = \"127.0.0.1:53\"\nprotocol = \"udp\"\nupstream = \"discard:\"\nclass = \"a\"\n")
	}
	lines := "time,client,bytes\n"
	for range 40 {
		lines += "7.5,10.0.0.1,100\n"
	}
	write(t, "burst.csv", lines)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSimulate(t *testing.T) {
	tenAndTwenty(t)
	want(t, 0, []string{"ten.toml  ", ", 2.5s\n", "a      10 packets/s       40    21  19 queue_full        0        0   1s   2s   2s  8.08 packets/s"},
		"simulate", "-c", "ten.toml", "--trace", "burst.csv", "--departures", "left.csv", "--plot", "a.svg")
	left, err := os.ReadFile("left.csv")
	lines := strings.Split(string(left), "\n")
	if err != nil || len(lines) != 23 || lines[1] != "7.500000000,0.000000000,a,10.0.0.1,100" || lines[21] != "9.500000000,2.000000000,a,10.0.0.1,100" {
		t.Errorf("%v\n%s", err, left)
	}
	if plot, err := os.ReadFile("a.svg"); err != nil || !strings.HasPrefix(string(plot), "<svg ") {
		t.Errorf("%v\n%.100s", err, plot)
	}
	want(t, 0, []string{"     600   100  480 queue_full        0       20"}, "simulate", "-c", "ten.toml", "--load", "rate=60 packets/s", "--for", "10s", "--seed=7")
	want(t, 65, []string{"burst.csv:1:5: syntax: "}, "simulate", "-c", "burst.csv", "--trace", "ten.toml")
	want(t, 65, []string{"ten.toml: trace: "}, "simulate", "-c", "ten.toml", "--trace", "ten.toml")
	want(t, 66, []string{"none.csv"}, "simulate", "-c", "ten.toml", "--trace", "none.csv")
	want(t, 64, []string{`"ten.toml" is one argument too many; the policy is -c FILE: shaper simulate -c ten.toml`}, "simulate", "ten.toml", "--load", "rate=1 packets/s")
	want(t, 64, []string{`--load: there is no listener "out"; listeners: in`}, "simulate", "-c", "ten.toml", "--load", "rate=1 packets/s,listener=out")
}

// After an error the files of simulate are as they were. What is no regular file is written, and not replaced.
func TestSimulateWritesWholeFiles(t *testing.T) {
	tenAndTwenty(t)
	bad := "time,client,bytes\n7.5,10.0.0.1,100\nnone\n"
	write(t, "bad.csv", bad)
	write(t, "left.csv", "old")
	simulate := []string{"simulate", "-c", "ten.toml", "--departures"}
	want(t, 65, []string{"bad.csv:3"}, append(simulate, "left.csv", "--trace", "bad.csv")...)
	want(t, 65, []string{"bad.csv:3"}, append(simulate, "new.csv", "--trace", "bad.csv")...)
	want(t, 65, []string{"bad.csv:3"}, append(simulate, "bad.csv", "--trace", "bad.csv")...)
	want(t, 1, []string{"shaper: cannot write a file beside none/left.csv: "}, append(simulate, "none/left.csv", "--trace", "burst.csv")...)
	want(t, 1, []string{"write /dev/full: no space left on device"}, append(simulate, "/dev/full", "--trace", "burst.csv")...)
	want(t, 0, nil, append(simulate, "/dev/null", "--trace", "burst.csv", "--plot", "/dev/null")...)
	wantFiles(t, "bad.csv burst.csv left.csv ten.toml twenty.toml")
	for name, text := range map[string]string{"left.csv": "old", "bad.csv": bad} {
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
}

// wantFiles expects these files in the working directory.
func wantFiles(t *testing.T, want string) {
	t.Helper()
	var names []string
	entries, err := os.ReadDir(".")
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); err != nil || got != want {
		t.Errorf("%v: the files are %s, want %s", err, got, want)
	}
}

// A simulation that a signal ends leaves no file behind.
func TestSimulateIsInterrupted(t *testing.T) {
	tenAndTwenty(t)
	if err := syscall.Mkfifo("slow.csv", 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "simulate", "-c", "ten.toml", "--trace", "slow.csv", "--departures", "left.csv")
	cmd.Env = append(os.Environ(), asShaper+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	trace, err := os.OpenFile("slow.csv", os.O_WRONLY, 0) // when the simulation opens it, too
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the simulation ended with %v", err)
	}
	wantFiles(t, "burst.csv slow.csv ten.toml twenty.toml")
}

func TestSimulateCompares(t *testing.T) {
	tenAndTwenty(t)
	args := []string{"simulate", "-c", "ten.toml", "--trace", "burst.csv", "--compare", "twenty.toml"}
	want(t, 0, []string{"A  ten.toml\nB  twenty.toml\n\nCLASS ", "A      B  DIFFERENCE\n", "a      offered", "max         2s     1s         -1s"}, args...)
	var both comparison
	if err := json.Unmarshal([]byte(want(t, 0, nil, append(args, "--json")...)), &both); err != nil || both.Policy.Classes[0].WaitMax != 2*both.Other.Classes[0].WaitMax {
		t.Errorf("%v: %+v", err, both)
	}
	var one simulate.Report
	if err := json.Unmarshal([]byte(want(t, 0, nil, append(args[:5:5], "--json")...)), &one); err != nil || one.Classes[0].Left.Items != 21 {
		t.Errorf("%v: %+v", err, one)
	}
}

// docs/fleet.md shows this.
func TestSimulatedFleet(t *testing.T) {
	tenAndTwenty(t)
	const gateway = "[listener.gateway]\nlisten = \"127.0.0.1:2775\"\nprotocol = \"smpp\"\nupstream = \"192.0.2.1:2775\"\nclass = \"acme\"\n"
	write(t, "fleet.toml", "[fleet.prod]\naddress = \"10.0.0.5:6379\"\n[class.acme]\nrate = \"20 messages/s\"\nheadroom = \"2%\"\nshared = \"prod\"\n"+gateway)
	fleet := []string{"simulate", "-c", "fleet.toml", "--load", "rate=30 messages/s", "--members", "4"}
	want(t, 0, []string{", 1m, 4 members, store 2ms away\n",
		"acme        20 messages/s     1800  1176        0        0      624  11.3s  20.7s  20.8s  98.0%   51ms    195.9\n",
		"  member 4                     450   294        0        0      156  11.3s  20.7s  20.8s  24.5%  204ms     49.0\n",
	}, append(fleet, "--store-delay", "2ms", "--departures", "left.csv", "--plot", "fleet.svg")...)
	left, err := os.ReadFile("left.csv")
	if lines := strings.Split(string(left), "\n"); err != nil || len(lines) != 1178 || !strings.HasSuffix(lines[1], ",acme,127.0.0.1,1200,1") {
		t.Errorf("%v\n%.200s", err, left)
	}
	if plot, err := os.ReadFile("fleet.svg"); err != nil || strings.Count(string(plot), "hsl(") != 4 {
		t.Errorf("%v: the plot has not four members\n%.2000s", err, plot)
	}
	var r simulate.Report
	if err := json.Unmarshal([]byte(want(t, 0, nil, append(fleet, "--json")...)), &r); err != nil || len(r.Members) != 4 || r.Classes[0].Shared == nil {
		t.Errorf("%v: %+v", err, r)
	}
	want(t, 65, []string{`ten.toml: shared: no class is shared`, `shared = "NAME" in a class, and a section [fleet.NAME]`}, "simulate", "-c", "ten.toml", "--trace", "burst.csv", "--members", "2")
	want(t, 64, []string{"--members: 0 is not allowed; from 1 to 1000"}, append(fleet, "--members", "0")...)
	want(t, 64, []string{"--store-delay is for a fleet"}, "simulate", "-c", "ten.toml", "--trace", "burst.csv", "--store-delay", "2ms")
	want(t, 64, []string{`--store-delay: "soon"`}, append(fleet, "--store-delay", "soon")...)
}

// A user simulates policies with trees of classes.
func TestSimulatedTrees(t *testing.T) {
	policy := func(name string) string { return filepath.Join("..", "..", "tests", "testdata", name) }
	want(t, 0, []string{"a      40 messages/s    18000   4000 ", "b      40 messages/s    18000   4000 ", "c      40 messages/s    18000   4000 "},
		"simulate", "-c", policy("siblings.toml"), "--load", "rate=60 messages/s", "--for", "5min")
	departures := filepath.Join(t.TempDir(), "urgent.csv")
	want(t, 0, nil, "simulate", "-c", policy("urgent.toml"), "--trace", policy("urgent.csv"), "--departures", departures)
	left, err := os.ReadFile(departures)
	if err != nil || !strings.Contains(string(left), "\n1.500000000,0.900000000,urgent,10.0.0.2,100\n11.000000000,10.400000000,low,") {
		t.Errorf("%v\n%s", err, left)
	}
}

// The pages that quote simulate show what it prints and draws now.
func TestSimulatedPages(t *testing.T) {
	const page = "algorithms.md"
	committed, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(committed, page))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("COLUMNS", "132") // the page says so
	t.Chdir(t.TempDir())
	if err := os.CopyFS(".", os.DirFS(committed)); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if command, ok := strings.CutPrefix(line, "    $ shaper "); ok {
			out := want(t, 0, nil, words(command)...)
			text = []byte(withOutput(string(text), line, out))
		}
	}
	goldenFile(t, filepath.Join(committed, page), string(text))
	images, _ := filepath.Glob("algorithms*.svg")
	for _, name := range images {
		drawn, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		goldenFile(t, filepath.Join(committed, name), string(drawn))
	}
}

// words splits a command line like a shell, as far as these pages need it.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// withOutput puts what a command prints into the indented block that follows it.
func withOutput(page, line, out string) string {
	before, after, _ := strings.Cut(page, line+"\n")
	for shown := range strings.Lines(after) {
		if shown != "\n" && !strings.HasPrefix(shown, "    ") {
			break
		}
		after = strings.TrimPrefix(after, shown)
	}
	for printed := range strings.Lines(out) {
		line += "\n" + strings.TrimRight("    "+printed, " \n")
	}
	return before + line + "\n\n" + after
}
