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
	"path/filepath"
)

func main() {
	if err := run(os.Stdin, "docs"); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, dir string) error {
	r, err := read(in)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "growth.md"), []byte(r.page()), 0o644),
		os.WriteFile(filepath.Join(dir, "growth.svg"), []byte(r.plot()), 0o644))
}
