// Package tests holds what concerns the whole: the way imports run, and the
// program against real peers.
package tests

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows says which of our packages each may import. They run one way: from
// the process down to the arithmetic.
var arrows = map[string][]string{
	"cmd/shaper":            {"daemon", "policy", "stats", "unit", "conn", "simulate", "tc"},
	"daemon":                {"conn", "shaper", "policy", "tc", "metrics", "stats", "unit"},
	"client":                {"shaper", "policy", "frame", "stats", "unit"}, // for Go programs
	"sock":                  {"buffer"},
	"conn":                  {"exchange", "buffer", "sock", "shaper", "policy", "frame", "stats", "unit"},
	"exchange":              {"frame", "shaper", "policy", "stats", "unit", "buffer"},
	"exchange/exchangetest": {"exchange", "shaper", "stats"}, // for tests
	"simulate":              {"exchange", "frame", "shaper", "policy", "stats", "unit"},
	"tc":                    {"policy", "stats", "unit"},
	"tc/tctest":             {}, // for the tests of tc and of the daemon
	"metrics":               {"stats"},
	"shaper":                {"leaky", "limit", "policy", "stats", "unit"},
	"buffer":                {},
	"leaky":                 {"limit", "unit"},
	"limit":                 {"unit"},
	"policy":                {"unit"},
	"frame":                 {},
	"stats":                 {},
	"unit":                  {},
	"systemd":               {}, // tests only
	"tests":                 {}, // tests only
	"tests/bench":           {}, // it knows shaper as a program
	"tests/trial":           {}, // for the tests of all packages
	"tests/tally":           {"tests/trial"},
	"tests/house":           {}, // tests only
}

// owners says which one package may import a library. What is tested with is
// not in the program.
var owners = map[string]string{
	"github.com/urfave/cli/v2":            "cmd/shaper",
	"github.com/coreos/go-systemd/v22":    "daemon",
	"github.com/prometheus/client_golang": "metrics",
	"github.com/prometheus/client_model":  "metrics",
	"google.golang.org/protobuf":          "metrics",
	"github.com/pelletier/go-toml/v2":     "policy",
	"github.com/gaissmai/bart":            "policy",
	"github.com/vishvananda/netlink":      "tc",
	"github.com/gopacket/gopacket":        "simulate",
	"golang.org/x/time":                   "limit",
}

// anywhere are the Go project's bindings to the system, which belong to no one.
var anywhere = []string{"golang.org/x/sys"}

func TestImportsRunOneWay(t *testing.T) {
	seen := map[string]bool{}
	for path, imports := range sources(t) {
		pkg := filepath.ToSlash(filepath.Dir(path))
		seen[pkg] = true
		allowed, known := arrows[pkg]
		if !known {
			t.Errorf("%s: package %s has no place in the layout", path, pkg)
		}
		for _, imported := range imports {
			if fault := faultOf(pkg, imported, allowed); fault != "" {
				t.Errorf("%s imports %s: %s", path, imported, fault)
			}
		}
	}
	for pkg := range arrows {
		if !seen[pkg] && pkg != "systemd" && pkg != "tests" {
			t.Errorf("package %s is in the layout and not in the tree", pkg)
		}
	}
}

func faultOf(pkg, imported string, allowed []string) string {
	if ours, ok := strings.CutPrefix(imported, "shaper/"); ok {
		if !slices.Contains(allowed, ours) {
			return "against the arrows"
		}
		return ""
	}
	if !strings.Contains(imported, ".") { // the standard library
		return ""
	}
	for _, library := range anywhere {
		if within(imported, library) {
			return ""
		}
	}
	for library, owner := range owners {
		if !within(imported, library) {
			continue
		}
		if owner != pkg && pkg != owner+"/"+filepath.Base(owner)+"test" { // its fake
			return "it belongs to " + owner
		}
		return ""
	}
	return "a library that no package owns"
}

func within(imported, library string) bool {
	return imported == library || strings.HasPrefix(imported, library+"/")
}

// sources returns the imports of every Go file that is not a test. It reads
// the files themselves: what `go list` says in a test comes from its cache.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[path] = append(found[path], imported)
		}
		if len(file.Imports) == 0 {
			found[path] = nil
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 20 {
		t.Fatalf("found only %v", slices.Sorted(maps.Keys(found)))
	}
	return found
}
