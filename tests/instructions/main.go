// Command instructions compares how many instructions the hot paths take with those of an earlier revision.
//
// A processor is not as fast in one minute as in the next, and less so a virtual one, so times of the same code differ by
// some per cent, often by more. The number of instructions of the same code does not: of these benchmarks it differs by some
// 1 % from run to run, on a busy machine too. It says nothing of the kernel, of caches and of waiting; `make bench` does.
//
// valgrind(1) counts. A benchmark runs twice, few times and many times; what the additional times take is what counts, so
// the start of the program does not.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// mostLoss is the share by which a benchmark may take more instructions than before.
const mostLoss = 0.02

// benchmark is one of the hot paths.
type benchmark struct {
	pkg, name string
	times     int // how often it runs in addition
}

// benchmarks are those that depend on nothing but the code: they take the same way each time.
var benchmarks = []benchmark{
	{"shaper", "EnterLeaves", 20_000},
	{"shaper", "EnterAndRelease", 20_000},
	{"shaper", "EnterBlocked", 20_000},
	{"shaper", "WaitUncontended", 20_000},
	{"shaper", "NextOfThousand", 20_000},
	{"shaper", "ReleaseOfThousand", 5_000},
	{"shaper", "MessageKeys", 20_000},
	{"shaper", "MessageKeysBeneath", 5_000},
	{"fleet", "Item", 40_000},
	{"conn", "Submits", 300},
	{"conn", "RoundTrip", 2_000},
	{"conn", "Connections", 2_000},
	{"conn", "Datagrams", 20_000},
}

func main() {
	against := flag.String("against", "HEAD", "the revision of the repository to compare with")
	flag.Parse()
	lost, err := run(*against)
	if err != nil {
		fmt.Fprintln(os.Stderr, "instructions:", err)
		os.Exit(1)
	}
	if lost {
		os.Exit(2)
	}
}

// run compares all benchmarks, prints a table, and reports whether one takes more than it may.
func run(against string) (lost bool, err error) {
	dir, err := os.MkdirTemp("", "shaper-instructions")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	before := filepath.Join(dir, "before")
	if out, err := exec.Command("git", "worktree", "add", "--detach", before, against).CombinedOutput(); err != nil {
		return false, fmt.Errorf("no tree of revision %q: %s", against, strings.TrimSpace(string(out)))
	}
	defer exec.Command("git", "worktree", "remove", "--force", before).Run()
	fmt.Printf("Instructions of the program for one operation.\n\n| benchmark | before | now | change |\n|---|--:|--:|--:|\n")
	for _, b := range benchmarks {
		was, err := b.count(before)
		if err != nil && !errors.Is(err, errAbsent) {
			return false, err
		}
		is, err := b.count(".")
		if err != nil {
			return false, err
		}
		row, worse := compare(b, was, is)
		fmt.Println(row)
		lost = lost || worse
	}
	return lost, nil
}

// compare returns a row of the table, and whether the benchmark takes more than it may. The earlier revision may not have
// it: was is 0 then.
func compare(b benchmark, was, is int64) (row string, worse bool) {
	if was == 0 {
		return fmt.Sprintf("| %s %s | absent | %d | |", b.pkg, b.name, is), false
	}
	worse = float64(is) > float64(was)*(1+mostLoss)
	bold := ""
	if worse {
		bold = "**"
	}
	change := 100 * (float64(is)/float64(was) - 1)
	return fmt.Sprintf("| %s %s | %d | %d | %s%+.1f %%%s |", b.pkg, b.name, was, is, bold, change, bold), worse
}

// errAbsent is that of a benchmark that a tree does not have.
var errAbsent = errors.New("it is not there")

// count returns how many instructions one operation of a benchmark takes in a tree of the sources. It returns 0 and
// errAbsent if the tree does not have the benchmark.
func (b benchmark) count(tree string) (int64, error) {
	if _, err := os.Stat(filepath.Join(tree, b.pkg)); errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("package %s: %w", b.pkg, errAbsent)
	}
	binary, err := filepath.Abs(filepath.Join(tree, b.pkg, "instructions.test"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(binary)
	build := exec.Command("go", "test", "-c", "-trimpath", "-o", binary, "./"+b.pkg)
	build.Dir = tree
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s in %s: %s", b.pkg, tree, out)
	}
	few := b.times / 10
	start, err := b.total(binary, few)
	if err != nil {
		return 0, err
	}
	end, err := b.total(binary, few+b.times)
	if err != nil {
		return 0, err
	}
	return (end - start) / int64(b.times), nil
}

// total returns how many instructions a benchmark takes that runs so many times. The collector of garbage is off: it
// comes when it likes.
func (b benchmark) total(binary string, times int) (int64, error) {
	cmd := exec.Command("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", binary,
		"-test.run", "^$", "-test.bench", "^Benchmark"+b.name+"$", "-test.benchtime", strconv.Itoa(times)+"x", "-test.cpu", "1")
	cmd.Dir, cmd.Env = filepath.Dir(binary), append(os.Environ(), "GOGC=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w\n%s", b.pkg, b.name, err, out)
	}
	return parse(string(out), b.name)
}

var counted = regexp.MustCompile(`I +refs: +([\d,]+)`)

// parse returns the number of instructions that cachegrind prints behind what a benchmark prints.
func parse(out, name string) (int64, error) {
	if !strings.Contains(out, "Benchmark"+name) {
		return 0, fmt.Errorf("no benchmark %s has run: %w:\n%s", name, errAbsent, out)
	}
	found := counted.FindStringSubmatch(out)
	if found == nil {
		return 0, errors.New("cachegrind has counted nothing:\n" + out)
	}
	return strconv.ParseInt(strings.ReplaceAll(found[1], ",", ""), 10, 64)
}
