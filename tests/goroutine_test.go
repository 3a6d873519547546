package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSinglePackagesStartNoGoroutine looks at the packages that `make test` runs without the
// race detector. They start no goroutine, nor do their tests.
func TestSinglePackagesStartNoGoroutine(t *testing.T) {
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
