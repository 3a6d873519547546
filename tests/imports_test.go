// Package tests tests the whole program against real peers, and the imports of its packages.
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

// allowedImports says which packages of this module each package may import. Imports run one way:
// from the process down to the arithmetic.
var allowedImports = map[string][]string{
	"cmd/shaper":            {"top", "daemon", "human", "policy", "stats", "unit", "conn", "simulate", "tc", "nft"},
	"top":                   {"daemon", "web", "human", "stats", "unit"},
	"daemon":                {"conn", "upstream", "sock", "shaper", "state", "fleet", "fleet/limits", "limit", "policy", "tc", "metrics", "web", "stats", "unit"},
	"client":                {"shaper", "policy", "frame", "stats", "unit"}, // for Go programs
	"sock":                  {"buffer"},
	"conn":                  {"upstream", "entry", "exchange", "buffer", "sock", "shaper", "policy", "frame", "stats", "unit"},
	"upstream":              {"policy", "stats"},
	"exchange":              {"frame", "shaper", "policy", "stats", "unit", "buffer"},
	"exchange/exchangetest": {"exchange", "shaper", "stats"}, // for tests
	"simulate":              {"exchange", "frame", "fleet", "fleet/limits", "shaper", "policy", "stats", "unit"},
	"tc":                    {"policy", "stats", "unit"},
	"nft":                   {"policy"},
	"tc/tctest":             {}, // for the tests of tc and of the daemon
	"metrics":               {"stats"},
	"metrics/grafana":       {}, // it prints the dashboard of Grafana
	"web":                   {"stats"},
	"web/play":              {"simulate", "policy", "stats", "unit"}, // the program of the playground
	"shaper":                {"calendar", "leaky", "limit", "policy", "stats", "unit"},
	"entry":                 {},
	"state":                 {"limit", "stats"},
	"fleet":                 {"limit", "unit"},
	"fleet/limits":          {"fleet", "shaper", "policy", "unit"},
	"fleet/fleettest":       {}, // for the tests of fleet
	"buffer":                {},
	"leaky":                 {"limit", "unit"},
	"limit":                 {"calendar", "unit"},
	"policy":                {"calendar", "unit"},
	"calendar":              {},
	"frame":                 {},
	"stats":                 {},
	"human":                 {"stats"},
	"unit":                  {},
	"packaging/sbom":        {},              // a command for builds
	"systemd":               {},              // tests only
	"tests":                 {},              // tests only
	"tests/bench":           {"tests/trial"}, // it runs shaper as a program
	"tests/trial":           {},              // for the tests of all packages
	"tests/tally":           {"tests/trial"},
	"tests/growth":          {}, // it reads what go test prints
	"tests/instructions":    {}, // it reads what valgrind prints
	"tests/order":           {}, // tests only
}

// libraryOwners says which packages may import a library. Libraries that only tests import are not
// listed.
var libraryOwners = map[string][]string{
	"github.com/google/nftables":          {"nft"},
	"github.com/urfave/cli/v2":            {"cmd/shaper"},
	"github.com/coreos/go-systemd/v22":    {"daemon"},
	"github.com/prometheus/client_golang": {"metrics"},
	"github.com/prometheus/client_model":  {"metrics"},
	"google.golang.org/protobuf":          {"metrics"},
	"github.com/pelletier/go-toml/v2":     {"policy"},
	"github.com/gaissmai/bart":            {"policy"},
	"github.com/vishvananda/netlink":      {"tc", "nft"},
	"github.com/gopacket/gopacket":        {"simulate"},
	"golang.org/x/time":                   {"limit"},
	"golang.org/x/net":                    {"upstream"},
	"github.com/gomodule/redigo":          {"fleet"},
	"golang.org/x/crypto":                 {"entry"},
	"golang.org/x/term":                   {"top"},
}

// anyPackage lists libraries that every package may import.
var anyPackage = []string{"golang.org/x/sys"}

func TestImportsRunOneWay(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for path, imports := range sources(t) {
		pkg := filepath.ToSlash(filepath.Dir(path))
		seen[pkg] = true
		allowed, known := allowedImports[pkg]
		if !known {
			t.Errorf("%s: allowedImports does not list package %s", path, pkg)
		}
		for _, imported := range imports {
			if fault := faultOf(pkg, imported, allowed); fault != "" {
				t.Errorf("%s imports %s: %s", path, imported, fault)
			}
		}
	}
	for pkg := range allowedImports {
		if !seen[pkg] && pkg != "systemd" && pkg != "tests" && pkg != "tests/order" {
			t.Errorf("allowedImports lists %s, which does not exist", pkg)
		}
	}
}

// faultOf returns what is wrong with an import of pkg, or "".
func faultOf(pkg, imported string, allowed []string) string {
	if ours, ok := strings.CutPrefix(imported, "shaper/"); ok {
		if !slices.Contains(allowed, ours) {
			return "allowedImports does not allow it"
		}
		return ""
	}
	if !strings.Contains(imported, ".") { // the standard library
		return ""
	}
	for _, library := range anyPackage {
		if within(imported, library) {
			return ""
		}
	}
	for library, owners := range libraryOwners {
		if !within(imported, library) {
			continue
		}
		isOwner := func(owner string) bool { return owner == pkg || pkg == owner+"/"+filepath.Base(owner)+"test" } // or the owner's fake
		if !slices.ContainsFunc(owners, isOwner) {
			return "only " + strings.Join(owners, " and ") + " may import it"
		}
		return ""
	}
	return "libraryOwners does not list it"
}

// within reports whether a package is part of a library.
func within(imported, library string) bool {
	return imported == library || strings.HasPrefix(imported, library+"/")
}

// sources returns the imports of every Go file that is not a test, by path. It reads the files
// themselves, so that the test runs again when one of them changes.
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
		t.Fatalf("found too few files: %v", slices.Sorted(maps.Keys(found)))
	}
	return found
}
