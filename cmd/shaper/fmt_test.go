package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shaper/tests/trial"
)

// shaper fmt prints, compares, lists and writes files, and the pieces of the policy with them.
func TestFmt(t *testing.T) {
	dir := trial.Files(t, map[string]string{
		"shaper.toml":     "[daemon]\ninclude   = \"shaper.d/*.toml\" # pieces\n",
		"shaper.d/a.toml": "[class.a]\nrate = \"1mbit\"\n",
		"shaper.d/b.toml": "[class.b]\nrate='1mbit'\n\n\n# the end\n",
	})
	t.Chdir(dir)
	const formatted = "[daemon]\ninclude = \"shaper.d/*.toml\"  # pieces\n"
	if out := want(t, 0, nil, "fmt"); out != formatted {
		t.Errorf("fmt prints %q", out)
	}
	if out := want(t, 1, []string{"shaper: files that are not formatted: 2; shaper fmt -w formats them"}, "fmt", "-l"); out != "shaper.toml\nshaper.d/b.toml\n" {
		t.Errorf("fmt -l prints %q", out)
	}
	diff := want(t, 1, nil, "fmt", "-d", "shaper.d/b.toml")
	if d := cmp.Diff("--- shaper.d/b.toml\n+++ shaper.d/b.toml (formatted)\n@@ -1,5 +1,4 @@\n [class.b]\n-rate='1mbit'\n-\n+rate = \"1mbit\"\n \n # the end\n", diff); d != "" {
		t.Errorf("fmt -d (-want +got):\n%s", d)
	}
	want(t, 64, []string{"one file is printed"}, "fmt", "shaper.toml", "shaper.d/a.toml")
	want(t, 64, []string{"the standard input cannot be written"}, "fmt", "-w", "-")
	want(t, 66, []string{"none.toml"}, "fmt", "none.toml")

	link := filepath.Join(dir, "link.toml")
	if err := os.Symlink("shaper.d/b.toml", link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod("shaper.d/b.toml", 0o640); err != nil {
		t.Fatal(err)
	}
	want(t, 0, nil, "fmt", "-w", link)
	want(t, 0, nil, "fmt", "-w")
	want(t, 0, nil, "fmt", "-l")
	info, err := os.Lstat("shaper.d/b.toml")
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if text, err := os.ReadFile("shaper.toml"); err != nil || string(text) != formatted {
		t.Errorf("written: %q, %v", text, err)
	}
	if left, err := filepath.Glob(".*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A file with mistakes is not written.
func TestFmtRefuses(t *testing.T) {
	t.Chdir(trial.Files(t, map[string]string{"shaper.toml": "[class.a\nrate = 1\n"}))
	want(t, 65, []string{"shaper.toml:1:9: syntax"}, "fmt", "-w")
	if text, err := os.ReadFile("shaper.toml"); err != nil || string(text) != "[class.a\nrate = 1\n" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// A file that can be opened but not replaced has the code of what fails. Here the name of the new file beside
// it is too long.
func TestFmtCannotWrite(t *testing.T) {
	name := strings.Repeat("a", 250) + ".toml"
	t.Chdir(trial.Files(t, map[string]string{name: "a=1\n"}))
	want(t, 1, []string{"shaper: cannot write a file beside " + name}, "fmt", "-w", name)
}

// Changes that are far apart are in hunks of their own.
func TestUnified(t *testing.T) {
	lines := strings.Split("a b c d e f g h i j k l m", " ")
	before := strings.Join(lines, "\n") + "\n"
	lines[1], lines[11] = "B", "L"
	var b strings.Builder
	writeUnified(&b, "x", before, strings.Join(lines, "\n")+"\n")
	want := "--- x\n+++ x (formatted)\n@@ -1,5 +1,5 @@\n a\n-b\n+B\n c\n d\n e\n@@ -9,5 +9,5 @@\n i\n j\n k\n-l\n+L\n m\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestFmtOfTheStandardInput(t *testing.T) {
	var out, errs bytes.Buffer
	app := newApp(&out, &errs)
	app.Reader = strings.NewReader("a=1\n")
	if err := app.RunContext(context.Background(), []string{"shaper", "fmt", "-"}); err != nil || out.String() != "a = 1\n" {
		t.Errorf("%q, %v", &out, err)
	}
}
