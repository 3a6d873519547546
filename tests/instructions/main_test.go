package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const printed = `goos: linux
BenchmarkEnterLeaves 	   20000	      7549 ns/op
PASS
==18397== 
==18397== I   refs:      52,806,709
`

func TestParse(t *testing.T) {
	if n, err := parse(printed, "EnterLeaves"); n != 52_806_709 || err != nil {
		t.Errorf("it finds %d instructions, %v", n, err)
	}
	for out, want := range map[string]string{
		strings.Replace(printed, "BenchmarkEnterLeaves", "testing: no benchmarks to run", 1): "no benchmark EnterLeaves has run",
		strings.Replace(printed, "refs", "refused", 1):                                       "counted nothing",
	} {
		if _, err := parse(out, "EnterLeaves"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

func TestCompare(t *testing.T) {
	b := benchmark{pkg: "shaper", name: "EnterLeaves"}
	for _, c := range []struct {
		was, is int64
		row     string
		worse   bool
	}{
		{0, 980, "| shaper EnterLeaves | absent | 980 | |", false},
		{1000, 980, "| shaper EnterLeaves | 1000 | 980 | -2.0 % |", false},
		{1000, 1020, "| shaper EnterLeaves | 1000 | 1020 | +2.0 % |", false},
		{1000, 1025, "| shaper EnterLeaves | 1000 | 1025 | **+2.5 %** |", true},
	} {
		if row, worse := compare(b, c.was, c.is); row != c.row || worse != c.worse {
			t.Errorf("it says %q, %t, want %q, %t", row, worse, c.row, c.worse)
		}
	}
}

// TestBenchmarksAreThere looks for each benchmark in the tests of its package.
func TestBenchmarksAreThere(t *testing.T) {
	for _, b := range benchmarks {
		files, err := filepath.Glob(filepath.Join("..", "..", b.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "func Benchmark"+b.name+"(")
		}
		if !found {
			t.Errorf("package %s has no Benchmark%s", b.pkg, b.name)
		}
	}
}

// A tree without the package, or whose package has no such benchmark, is not an error of the tree.
func TestAbsent(t *testing.T) {
	if n, err := (benchmark{pkg: "shaper"}).count(t.TempDir()); n != 0 || !errors.Is(err, errAbsent) {
		t.Errorf("without the package it counts %d, %v", n, err)
	}
	if _, err := parse("testing: warning: no tests to run\nPASS\n", "EnterLeaves"); !errors.Is(err, errAbsent) {
		t.Errorf("without the benchmark it says %v", err)
	}
}
