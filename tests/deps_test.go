package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMakeInstallsTools holds that make installs the Debian package of each program that a test
// asks for. Otherwise tests fail on a fresh machine, and nobody sees it on one that has them.
func TestMakeInstallsTools(t *testing.T) {
	t.Parallel()
	installed := []string{"bash", "dpkg", "util-linux"} // are part of every Debian
	installed = append(installed, "make", "perl")       // make runs this, and needs perl for `deps`
	for _, pair := range regexp.MustCompile(`(\S+):\S+`).FindAllStringSubmatch(debianLines(t), -1) {
		installed = append(installed, pair[1])
	}
	paths, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`tool\(t, "([^"]+)", "([^"]+)"\)`)
	found := 0
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range asked.FindAllStringSubmatch(string(source), -1) {
			for _, name := range strings.Fields(call[2]) {
				found++
				if !slices.Contains(installed, name) {
					t.Errorf("%s asks for %s: the Makefile does not list %s in DEBIAN", path, call[1], name)
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d packages are asked for", found)
	}
}

// debianLines returns the lines of the Makefile that list Debian packages.
func debianLines(t *testing.T) string {
	t.Helper()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^(?:[\w-]+: )?DEBIAN = (?:.*\\\n)*.*$`).FindAllString(string(makefile), -1)
	return strings.Join(lines, "\n")
}
