// Command growth reads what `go test -bench '^BenchmarkGrowth$'` prints, and writes docs/growth.md
// and docs/growth.svg: what things cost as classes, rules, keys and sessions become more.
//
// Files call downwards only:
//
//	main     from input to files
//	page     the tables
//	plot     the curves
//	report   what go test has printed
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Stdin, "docs", revision()+" of "+time.Now().UTC().Format(time.DateOnly)); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

// revision returns the revision that was measured.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "not from git"
	}
	return strings.TrimSpace(string(out))
}

// run writes the page into dir; measured says of which revision its figures are, and when they were taken.
func run(in io.Reader, dir, measured string) error {
	r, err := read(in)
	if err != nil {
		return err
	}
	r.measured = measured
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "growth.md"), []byte(r.page()), 0o644),
		os.WriteFile(filepath.Join(dir, "growth.svg"), []byte(r.plot()), 0o644))
}
