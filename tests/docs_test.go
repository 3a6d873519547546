package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shaper/frame"
)

// The policies that the documents of messages show are sound, and that of README.md is
// the one TestKannel runs.
func TestPoliciesInDocuments(t *testing.T) {
	shown := 0
	for _, name := range []string{"README.md", "docs/protocols.md", "docs/recipes.md"} {
		text, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllSubmatch(text, -1) {
			shown++
			file := filepath.Join(t.TempDir(), "shaper.toml")
			if err := os.WriteFile(file, block[1], 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(plain(), "check", file).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", name, err, out, block[1])
			}
		}
		if name == "README.md" && !strings.Contains(string(text), strings.ReplaceAll(kannelClass, "%%", "%")) {
			t.Error("README.md does not show the class of TestKannel")
		}
	}
	if shown < 5 {
		t.Errorf("only %d policies are shown", shown)
	}
}

// Each reason for which a session ends is explained to users.
func TestReasonsAreExplained(t *testing.T) {
	text, err := os.ReadFile("../docs/protocols.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason := range frame.Reasons() {
		if !strings.Contains(string(text), "\n| `"+reason.String()+"` |") {
			t.Errorf("docs/protocols.md does not explain %s", reason)
		}
	}
}

// The commands that simulate in README.md work as they stand, in a clone.
func TestCommandsInDocuments(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := copyTree(t)
	found := 0
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "    shaper simulate ")
		if !ok {
			continue
		}
		found++
		cmd := exec.Command("sh", "-c", plain()+" simulate "+command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	if found < 2 {
		t.Errorf("README.md shows %d commands that simulate", found)
	}
	example := regexp.MustCompile(`docs/examples/[\w.-]+`)
	for _, name := range []string{"README.md", "docs/operations.md"} {
		text, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range example.FindAllString(string(text), -1) {
			if filepath.Ext(file) != ".toml" {
				continue
			}
			if out, err := exec.Command(plain(), "check", "--strict", "../"+file).CombinedOutput(); err != nil {
				t.Errorf("%s names %s: %v\n%s", name, file, err, out)
			}
		}
	}
}

// A key that two pages have a row for has the same default in both.
func TestDefaultsInDocuments(t *testing.T) {
	defaults := func(page string, row *regexp.Regexp) map[string]string {
		text, err := os.ReadFile("../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, m := range row.FindAllSubmatch(text, -1) {
			if all[string(m[1])] == "" { // else it is what a rule looks at
				all[string(m[1])] = string(m[2])
			}
		}
		return all
	}
	protocols := defaults("protocols.md", regexp.MustCompile("(?m)^\\| listener \\| `(\\w+)` \\| ([^|]+) \\|"))
	policy := defaults("policy.md", regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|"))
	if len(protocols) < 3 {
		t.Fatalf("docs/protocols.md has the keys %v", protocols)
	}
	for key, value := range protocols {
		if policy[key] != value {
			t.Errorf("%s is %s by default in docs/protocols.md, and %s in docs/policy.md", key, value, policy[key])
		}
	}
}
