package tests

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shaper/frame"
	"shaper/policy"
	"shaper/tests/trial"
)

// The policies in README.md, docs/protocols.md and docs/recipes.md pass `shaper check`.
// README.md shows the class of TestKannel.
func TestPoliciesInDocuments(t *testing.T) {
	t.Parallel()
	shown := 0
	users := textOf(t, usersFile(t)) // which one of them names
	for _, name := range []string{"README.md", "docs/protocols.md", "docs/recipes.md", "docs/entries.md"} {
		text, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllSubmatch(text, -1) {
			shown++
			file := filepath.Join(trial.Files(t, map[string]string{"shaper.toml": string(block[1]), "users": users}), "shaper.toml")
			if out, err := exec.Command(plain(), "check", file).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", name, err, out, block[1])
			}
		}
		if name == "README.md" && !strings.Contains(string(text), strings.ReplaceAll(kannelClass, "%%", "%")) {
			t.Error("README.md does not show the class of TestKannel")
		}
	}
	if shown < 5 {
		t.Errorf("the documents show %d policies, want at least 5", shown)
	}
}

// docs/protocols.md explains each reason for which a message protocol ends a session.
func TestReasonsAreExplained(t *testing.T) {
	t.Parallel()
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

// Whoever looks at the figures of an account learns that those of all who share it are in them, and
// docs/operations.md says it of each column of `shaper classes` with such figures.
func TestAccountsInDocuments(t *testing.T) {
	t.Parallel()
	help, err := exec.Command(plain(), "classes", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, looking, _ := strings.Cut(textOf(t, "../docs/operations.md"), "## Looking\n\n")
	looking, _, _ = strings.Cut(looking, "\n\n")
	for what, c := range map[string]struct{ text, says string }{
		"classes --help":     {string(help), "The figures of a class include those of all classes beneath it."},
		"docs/metrics.md":    {textOf(t, "../docs/metrics.md"), "The figures of a class include those of its children."},
		"docs/operations.md": {looking, "A class shows what it and all classes beneath it have"},
	} {
		if !strings.Contains(c.text, c.says) {
			t.Errorf("%s does not say: %s", what, c.says)
		}
	}
	for _, column := range []string{"NOW", "BACKLOG", "ITEMS", "OLDEST", "P50", "P99", "DROPPED", "REFUSED", "OVERLIMITS"} {
		if !regexp.MustCompile(`\b` + column + `\b`).MatchString(looking) {
			t.Errorf("docs/operations.md does not say of %s that it includes the classes beneath", column)
		}
	}
}

// The simulate commands of README.md work in a clone. Those of docs/recipes.md work beside the
// policies that it shows. The example policies that documents name pass `shaper check`.
func TestCommandsInDocuments(t *testing.T) {
	t.Parallel()
	readme, recipes := textOf(t, "../README.md"), textOf(t, "../docs/recipes.md")
	if n := runSimulations(t, readme, copyTree(t)); n < 2 {
		t.Errorf("README.md shows %d simulate commands, want at least 2", n)
	}
	if n := runSimulations(t, recipes, policiesOf(t, recipes)); n < 1 {
		t.Errorf("docs/recipes.md shows %d simulate commands, want at least 1", n)
	}
	example := regexp.MustCompile(`docs/examples/[\w.-]+`)
	for _, name := range []string{"README.md", "docs/operations.md"} {
		for _, file := range example.FindAllString(textOf(t, "../"+name), -1) {
			if filepath.Ext(file) != ".toml" {
				continue
			}
			if out, err := exec.Command(plain(), "check", "--strict", "../"+file).CombinedOutput(); err != nil {
				t.Errorf("%s names %s: %v\n%s", name, file, err, out)
			}
		}
	}
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// aDay is how long the commands simulate that show a day and more.
var aDay = regexp.MustCompile(`--for \d+h`)

// runSimulations runs each simulate command of a text in dir, and returns how many it found. An option,
// a file or a class that does not fit is a mistake before anything leaves. So of a day, two hours are
// simulated, unless sizes are full.
func runSimulations(t *testing.T, text, dir string) (found int) {
	t.Helper()
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(line, "    shaper ")
		if !ok || !strings.Contains(command, "simulate ") {
			continue
		}
		found++
		if !trial.Full {
			command = aDay.ReplaceAllString(command, "--for 2h")
		}
		cmd := exec.Command("sh", "-c", plain()+" "+command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	return found
}

// policiesOf writes the policies that a text shows to files in a new directory. The first command
// that follows a policy names its file.
func policiesOf(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	command := regexp.MustCompile(`\n    shaper [^\n]*?([\w-]+\.toml)`)
	for _, part := range strings.Split(text, "```toml\n")[1:] {
		shown, rest, _ := strings.Cut(part, "```")
		if m := command.FindStringSubmatch(rest); m != nil {
			if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(shown), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// The Go code in docs/go.md is part of the examples of package client, which run as tests.
func TestGoInDocuments(t *testing.T) {
	t.Parallel()
	examples := flat(textOf(t, "../client/example_test.go"))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(textOf(t, "../docs/go.md"), -1)
	if len(blocks) < 4 {
		t.Errorf("docs/go.md shows %d blocks of Go, want at least 4", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(examples, flat(block[1])) {
			t.Errorf("no example of package client contains:\n%s", block[1])
		}
	}
}

// flat removes the tabs that indent lines.
func flat(text string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "") }

// A key that has a row in both docs/protocols.md and docs/policy.md has the same default in both.
func TestDefaultsInDocuments(t *testing.T) {
	t.Parallel()
	defaults := func(text string, row *regexp.Regexp) map[string]string {
		all := map[string]string{}
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			if all[m[1]] == "" { // a later row of that name is a key of rules
				all[m[1]] = m[2]
			}
		}
		return all
	}
	_, listener, _ := strings.Cut(textOf(t, "../docs/policy.md"), "## [listener.NAME]")
	listener, _, _ = strings.Cut(listener, "\n## ")
	protocols := defaults(textOf(t, "../docs/protocols.md"), regexp.MustCompile("(?m)^\\| listener \\| `(\\w+)` \\| ([^|]+) \\|"))
	policy := defaults(listener, regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|"))
	if len(protocols) < 3 {
		t.Fatalf("docs/protocols.md has the keys %v, want at least 3", protocols)
	}
	for key, value := range protocols {
		if policy[key] != value {
			t.Errorf("%s is %s by default in docs/protocols.md, and %s in docs/policy.md", key, value, policy[key])
		}
	}
}

// docs/policy.md has a row for each key of each section, with its default.
func TestKeysInDocuments(t *testing.T) {
	t.Parallel()
	inWords := []string{"class.cost", "class.on_throttle", "listener.host", "listener.idle_timeout", "listener.length_prefix", "listener.unix", "rule.class", "rule.return_class"}
	sections := map[string]string{}
	for part := range strings.SplitSeq(textOf(t, "../docs/policy.md"), "\n## ") {
		name, _, _ := strings.Cut(strings.TrimLeft(part, "["), "]")
		name, _, _ = strings.Cut(name, ".")
		sections[name] += "\n" + part
	}
	for _, section := range policy.Describe() {
		for _, key := range section.Keys {
			row := regexp.MustCompile("\n\\| [^|]*`" + key.Name + "`[^|]* \\| ([^|]*) \\|").FindStringSubmatch(sections[section.Name])
			switch name := section.Name + "." + key.Name; {
			case slices.Contains(inWords, name):
			case row == nil:
				t.Errorf("%s has no row", name)
			case section.Name == "rule" || strings.HasPrefix(row[1], "required"): // of listeners, some are required in some modes
			case key.Required || strings.ReplaceAll(strings.Trim(row[1], "`"), " MiB", "MiB") != key.Default:
				t.Errorf("%s is %s by default in the document, and %q in shaper (required: %v)", name, row[1], key.Default, key.Required)
			}
		}
	}
}

// The examples of docs/policy.md have no mistakes, except that some name classes that stand elsewhere.
func TestExamplesOfPolicies(t *testing.T) {
	t.Parallel()
	const whole = "[class.zz]\nrate = \"1mbit\"\n[listener.zz]\nlisten = \"127.0.0.1:1\"\nupstream = \"echo:\"\nclass = \"zz\"\n"
	for _, block := range regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(textOf(t, "../docs/policy.md"), -1) {
		text := block[1]
		if strings.Contains(text, "\n...\n") {
			continue
		}
		if !regexp.MustCompile(`(?m)^\[`).MatchString(text) {
			text = "[class.of_the_key]\nrate = \"1 messages/s\"\n" + text
		}
		_, _, err := policy.Parse("shaper.toml", []byte(text))
		if err != nil && !strings.Contains(text, "[listener.") {
			_, _, err = policy.Parse("shaper.toml", []byte(text+whole))
		}
		var mistakes policy.Errors
		errors.As(err, &mistakes)
		for _, e := range mistakes {
			if !strings.HasPrefix(e.Problem, "there is no class ") {
				t.Errorf("%v, in\n%s", e, text)
			}
		}
	}
}
