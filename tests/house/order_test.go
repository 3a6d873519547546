// Package house holds what concerns the order of the source: files of a package call
// downwards only.
package house

import (
	"encoding/json"
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

// A listed package is one that go list has found and compiled.
type listed struct {
	ImportPath string
	Dir        string
	Export     string // file of what other packages need to know of it
	GoFiles    []string
	Standard   bool
	Module     *struct{ Main bool }
}

// list returns the packages of this module and all that they import.
func list(t *testing.T) (all []listed) {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Standard,Module", "shaper/...").Output()
	if err != nil {
		t.Fatal(err)
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

// TestFilesCallDownwards compares the calls between the files of each package with the order
// in the comment of the package. There, a line names a file, or several that may call each
// other, and says what is in it:
//
//	listen, accept  where connections come from
//
// A method that is called through an interface is no call of the file that implements it.
func TestFilesCallDownwards(t *testing.T) {
	exports := map[string]string{}
	all := list(t)
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	for _, p := range all {
		if p.Module == nil || !p.Module.Main || len(p.GoFiles) < 2 {
			continue
		}
		t.Run(strings.TrimPrefix(p.ImportPath, "shaper/"), func(t *testing.T) { checkOrder(t, p, lookup) })
	}
}

// row is a line of the order: names of files, two spaces, and what they are for.
var row = regexp.MustCompile(`(?m)^\t((?:\w+, )*\w+)  `)

func checkOrder(t *testing.T, p listed, lookup importer.Lookup) {
	fset := token.NewFileSet()
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
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	pkg, err := conf.Check(p.ImportPath, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	name := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	for _, f := range files {
		if name := name(f.Pos()); order[name] == 0 {
			t.Errorf("the comment of the package does not say where %s belongs", name)
		}
	}
	for id, used := range info.Uses {
		called, ok := used.(*types.Func)
		if !ok || called.Pkg() != pkg {
			continue
		}
		if from, to := name(id.Pos()), name(called.Pos()); order[from] > order[to] {
			at := fset.Position(id.Pos())
			t.Errorf("%s:%d: %s stands above, in %s", from, at.Line, called.Name(), to)
		}
	}
}
