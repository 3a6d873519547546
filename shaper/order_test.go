package shaper

import (
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

// exported returns what finds the export data of the packages that this one imports.
func exported(t *testing.T) importer.Lookup {
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// TestFilesCallDownwards compares the calls between files with the order in the comment
// of the package. What an interface calls is no call of the file that implements it.
func TestFilesCallDownwards(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	order := map[string]int{}
	names, _ := filepath.Glob("*.go")
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "timer_other.go" {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for i, row := range regexp.MustCompile(`(?m)^\t(\w+)  `).FindAllStringSubmatch(file.Doc.Text(), -1) {
			order[row[1]+".go"] = i + 1
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", exported(t))}
	pkg, err := conf.Check("shaper", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	file := func(pos token.Pos) string { return fset.Position(pos).Filename }
	for _, f := range files {
		if name := file(f.Pos()); order[name] == 0 && name != "doc.go" {
			t.Errorf("the comment of the package does not say where %s belongs", name)
		}
	}
	calls := 0
	for id, used := range info.Uses {
		called, ok := used.(*types.Func)
		if !ok || called.Pkg() != pkg {
			continue
		}
		calls++
		if from, to := file(id.Pos()), file(called.Pos()); order[from] > order[to] {
			t.Errorf("%v: %s stands above, in %s", fset.Position(id.Pos()), called.Name(), to)
		}
	}
	if calls < 500 {
		t.Errorf("only %d calls were looked at", calls)
	}
}
