package order

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The bounds of the source without its tests. A type with many methods has several jobs; a long
// function does several things.
const (
	mostMethods = 30 // of a type
	mostFields  = 20 // of a struct, between two blank lines or comments on a line of their own
	medianLines = 8  // of all functions
	tenthLines  = 20 // nine of ten functions have at most so many
	mostLines   = 45 // of a function
	mostPercent = 15 // of all lines, in a folder
)

// sizes are what the bounds hold for.
type sizes struct {
	files   *token.FileSet
	methods map[string]int // of each type, by folder and name
	fields  map[string]int // the largest group of each struct, by folder and name
	lines   map[string]int // of each function, by its place
	rooms   map[string]int // lines of each folder
}

// TestBoundsOfTheSource holds that no type, struct or function outgrows its bounds.
func TestBoundsOfTheSource(t *testing.T) {
	s := sizes{token.NewFileSet(), map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(s.files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil {
			s.add(strings.TrimPrefix(filepath.Dir(path), root+"/"), file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	reportAbove(t, s.methods, mostMethods, "methods: give one of its jobs a type of its own")
	reportAbove(t, s.fields, mostFields, "fields in a group: group them by what they are for, or by who may touch them")
	reportAbove(t, s.lines, mostLines, "lines: split it")
	s.reportLargeRooms(t)
	lengths := slices.Sorted(maps.Values(s.lines))
	if len(lengths) < 1000 {
		t.Fatalf("only %d functions were found", len(lengths))
	}
	median, tenth := lengths[len(lengths)/2], lengths[len(lengths)*9/10]
	t.Logf("%d functions: median %d, p90 %d, longest %d lines", len(lengths), median, tenth, lengths[len(lengths)-1])
	if median > medianLines || tenth > tenthLines {
		t.Errorf("half of the functions have %d lines or more, a tenth %d or more: want at most %d and %d", median, tenth, medianLines, tenthLines)
	}
}

// reportLargeRooms fails the test for each folder with too much of the source.
func (s sizes) reportLargeRooms(t *testing.T) {
	t.Helper()
	all := 0
	for _, lines := range s.rooms {
		all += lines
	}
	for _, folder := range slices.Sorted(maps.Keys(s.rooms)) {
		if percent := 100 * float64(s.rooms[folder]) / float64(all); percent > mostPercent {
			t.Errorf("%s has %.1f %% of the source, more than %d %%: divide it", folder, percent, mostPercent)
		}
	}
}

// reportAbove fails the test for each name that has more than most.
func reportAbove(t *testing.T, of map[string]int, most int, what string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if n := of[name]; n > most {
			t.Errorf("%s has %d %s", name, n, what)
		}
	}
}

// add measures a file of a folder.
func (s sizes) add(folder string, file *ast.File) {
	s.rooms[folder] += s.line(file.FileEnd)
	alone := s.linesOfTheirOwn(file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			s.lines[s.files.Position(n.Pos()).String()+" "+n.Name.Name] = s.line(n.End()) - s.line(n.Pos()) + 1
			if n.Recv != nil {
				s.methods[folder+"."+receiver(n.Recv.List[0].Type)]++
			}
		case *ast.TypeSpec:
			if fields, ok := n.Type.(*ast.StructType); ok {
				name := folder + "." + n.Name.Name // also of types within functions, which may share a name
				s.fields[name] = max(s.fields[name], s.largestGroup(fields.Fields.List, alone))
			}
		}
		return true
	})
}

// line returns the line of a position.
func (s sizes) line(pos token.Pos) int { return s.files.Position(pos).Line }

// linesOfTheirOwn returns the lines on which comments stand alone.
func (s sizes) linesOfTheirOwn(file *ast.File) map[int]bool {
	alone := map[int]bool{}
	for _, group := range file.Comments {
		for line := s.line(group.Pos()); line <= s.line(group.End()); line++ {
			alone[line] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok {
			delete(alone, s.line(field.End())) // a comment behind a field
		}
		return true
	})
	return alone
}

// largestGroup returns the number of fields in the largest group of a struct. A group ends at a
// blank line or at a comment on a line of its own.
func (s sizes) largestGroup(fields []*ast.Field, alone map[int]bool) (largest int) {
	group, above := 0, 0 // above is the last line of the field before
	for _, f := range fields {
		if first := s.line(f.Pos()); first > above+1 || alone[first-1] {
			group = 0
		}
		group += max(1, len(f.Names))
		largest, above = max(largest, group), s.line(f.End())
	}
	return largest
}

// receiver returns the name of a receiver's type, without its pointer and type parameters.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return "?"
}
