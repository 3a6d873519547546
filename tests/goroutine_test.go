package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSinglePackagesStartNoGoroutine looks at the packages that `make race` leaves out. They start no goroutine, nor do their tests.
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
