// Package order tests the order of the source: the files of a package call downwards only, and no type, function or
// folder outgrows its bounds.
package order

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// listed is a package as go list prints it.
type listed struct {
	ImportPath string
	Dir        string
	Export     string // the file of compiled type information
	GoFiles    []string
	Standard   bool
	Module     *struct{ Main bool }
}

// list compiles the packages of this module, and returns them and all that they import.
func list(t *testing.T) (all []listed) {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Standard,Module", "shaper/...").Output()
	if err != nil {
		t.Fatal(whyNot(err))
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// whyNot returns what go list says of a package that it cannot compile, and what to do.
func whyNot(err error) string {
	var failed *exec.ExitError
	if !errors.As(err, &failed) {
		return err.Error()
	}
	return fmt.Sprintf("go list cannot compile the packages of this module:\n%s\nmend or remove what it names: each .go file beneath the root belongs to a package",
		failed.Stderr)
}

// TestCannotCompile tests what a stray file in the root of the module leads to.
func TestCannotCompile(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module shaper\n", "stray.go": "package main\n\nfunc main() { gone() }\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list := exec.Command("go", "list", "-export", "./...")
	list.Dir = root
	_, err := list.Output()
	if err == nil {
		t.Fatal("it compiles")
	}
	for _, part := range []string{"stray.go:3:15: undefined: gone", "mend or remove"} {
		if why := whyNot(err); !strings.Contains(why, part) {
			t.Errorf("the failure does not say %q: %s", part, why)
		}
	}
}

// TestFilesCallDownwards compares the calls between the files of a package with the order that
// the package comment gives. There, each line names a file and says what is in it. A line may
// name several files, which may call each other:
//
//	listen, accept  where connections come from
//
// A reference to a function counts as a call. A call through an interface does not count as a
// call of the implementation. Test files and doc.go do not count.
func TestFilesCallDownwards(t *testing.T) {
	exports := map[string]string{}
	all := list(t)
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	imports := importer.ForCompiler(fset, "gc", lookup) // it reads each import once
	for _, p := range all {
		if p.Module == nil || !p.Module.Main || len(p.GoFiles) < 2 {
			continue
		}
		t.Run(strings.TrimPrefix(p.ImportPath, "shaper/"), func(t *testing.T) { checkOrder(t, p, fset, imports) })
	}
}

// row matches a line of the order: a tab, names of files, and two spaces or more.
var row = regexp.MustCompile(`(?m)^\t((?:\w+, )*\w+)  `)

// checkOrder reports each call of a package's files that goes upwards.
func checkOrder(t *testing.T, p listed, fset *token.FileSet, imports types.Importer) {
	var files []*ast.File
	order := map[string]int{"doc.go": -1}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for i, line := range row.FindAllStringSubmatch(file.Doc.Text(), -1) {
			for name := range strings.SplitSeq(line[1], ", ") {
				order[name+".go"] = i + 1
			}
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: imports}
	pkg, err := conf.Check(p.ImportPath, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	name := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	for _, f := range files {
		if name := name(f.Pos()); order[name] == 0 {
			t.Errorf("the package comment does not list %s", name)
		}
	}
	for id, used := range info.Uses {
		called, ok := used.(*types.Func)
		if !ok || called.Pkg() != pkg {
			continue
		}
		if from, to := name(id.Pos()), name(called.Pos()); order[from] > order[to] {
			at := fset.Position(id.Pos())
			t.Errorf("%s:%d calls upwards: %s is in %s", from, at.Line, called.Name(), to)
		}
	}
}
