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
