package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSinglePackagesStartNoGoroutine looks at the packages that `make test` runs without the
// race detector. They start no goroutine, nor do their tests.
func TestSinglePackagesStartNoGoroutine(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^SINGLE = (.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile does not set SINGLE")
	}
	for _, pkg := range strings.Fields(string(list[1])) {
		paths, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
		if err != nil || paths == nil {
			t.Errorf("SINGLE lists %s, which has no Go files: %v", pkg, err)
		}
		for _, path := range paths {
			for _, start := range goroutinesOf(t, path) {
				t.Errorf("%s starts a goroutine: take %s out of SINGLE", start, pkg)
			}
		}
	}
}

// goroutinesOf returns where a file has a go statement or a call of t.Parallel.
func goroutinesOf(t *testing.T, path string) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, files.Position(n.Pos()).String())
		case *ast.SelectorExpr:
			if n.Sel.Name == "Parallel" || n.Sel.Name == "AfterFunc" {
				found = append(found, files.Position(n.Pos()).String())
			}
		}
		return true
	})
	return found
}

// TestWhatSkipsUnderRaceRunsWithout looks at the packages that `make test` runs with the race detector.
// A test of theirs that skips under it runs nowhere, unless the run without it has a pattern of its name.
func TestWhatSkipsUnderRaceRunsWithout(t *testing.T) {
	t.Parallel()
	plain := regexp.MustCompile(ofMake(t, "$(call either,$(PLAIN))"))
	never := regexp.MustCompile("^(" + ofMake(t, "$(call either,$(SINGLE) tests)") + ")$") // run with it
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		pkg := strings.TrimPrefix(path, "../")
		if err != nil || !d.IsDir() || never.MatchString(pkg) {
			return err
		}
		for _, name := range skipUnderRace(t, path) {
			found++
			if !plain.MatchString(name) {
				t.Errorf("%s of %s skips under the race detector, and no pattern of PLAIN in the Makefile matches its name: it never runs", name, pkg)
			}
		}
		return nil
	})
	if err != nil || found < 5 {
		t.Errorf("%d tests skip under the race detector, want at least 5: %v", found, err)
	}
}

// TestWhatJudgesTimesIsQuiet looks at the tests of this package. The Makefile lists as QUIET those that judge times,
// and no others: these run beside tests of other packages.
func TestWhatJudgesTimesIsQuiet(t *testing.T) {
	t.Parallel()
	quiet := regexp.MustCompile(ofMake(t, "$(quiet)"))
	functions := functionsOf(t, ".")
	judging := []string{"trial.Judge", "trial.Begin", "trial.BeginWork"}
	for before := 0; before < len(judging); {
		before = len(judging)
		for _, f := range functions {
			if !slices.Contains(judging, f.Name.Name) && mentions(f.Body, judging...) {
				judging = append(judging, f.Name.Name)
			}
		}
	}
	for _, f := range functions {
		name := f.Name.Name
		if judges := slices.Contains(judging, name); strings.HasPrefix(name, "Test") && judges != quiet.MatchString(name) {
			t.Errorf("%s judges times: %t; it is QUIET in the Makefile: %t", name, judges, !judges)
		}
	}
}

// ofMake returns what an expression is in the Makefile.
func ofMake(t *testing.T, expression string) string {
	t.Helper()
	out, err := exec.Command(tool(t, "make", "make"), "-s", "--no-print-directory", "-C", "..", "--eval=shown: ; @echo '"+expression+"'", "shown").Output()
	value := strings.TrimSpace(string(out))
	if err != nil || value == "" {
		t.Fatalf("make shows %q as %s: %v", value, expression, err)
	}
	return value
}

// skipUnderRace returns the tests of a directory that skip under the race detector, or call a function
// there that does.
func skipUnderRace(t *testing.T, dir string) (tests []string) {
	t.Helper()
	functions := functionsOf(t, dir)
	var skip []string
	for _, f := range functions {
		if skipsIfRaced(f) {
			skip = append(skip, f.Name.Name)
		}
	}
	for _, f := range functions {
		if strings.HasPrefix(f.Name.Name, "Test") && mentions(f, skip...) {
			tests = append(tests, f.Name.Name)
		}
	}
	return tests
}

// functionsOf returns the functions and methods of the tests in a directory.
func functionsOf(t *testing.T, dir string) (functions []*ast.FuncDecl) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				functions = append(functions, f)
			}
		}
	}
	return functions
}

// skipsIfRaced reports whether a function has a skip behind a condition of trial.Raced.
func skipsIfRaced(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if n, ok := n.(*ast.IfStmt); ok && mentions(n.Cond, "Raced") && mentions(n.Body, "Skip", "Skipf", "SkipNow") {
			found = true
		}
		return !found
	})
	return found
}

// mentions reports whether one of the names stands in a piece of Go: that of an identifier, or of a package and what
// it exports. A function has its own name.
func mentions(piece ast.Node, names ...string) (found bool) {
	ast.Inspect(piece, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			found = found || slices.Contains(names, n.Name)
		case *ast.SelectorExpr:
			of, ok := n.X.(*ast.Ident)
			found = found || ok && slices.Contains(names, of.Name+"."+n.Sel.Name)
		}
		return !found
	})
	return found
}
