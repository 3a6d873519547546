package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"shaper/tests/trial"
)

const includes = "[daemon]\ninclude = \"shaper.d/*.toml\"\n"

// A policy of 40 pieces with six mistakes has six errors, each with its place in the right file.
func TestMistakesInPieces(t *testing.T) {
	files := map[string]string{"shaper.toml": includes + "[class.main]\nrate = \"1mbit\"\n"}
	for i := range 40 {
		files[fmt.Sprintf("shaper.d/%02d.toml", i)] = fmt.Sprintf("# piece %d\n[class.c%d]\nrate = \"1mbit\"\n", i, i)
	}
	files["shaper.d/03.toml"] = "[class.c3]\nrate = \"1mbti\"\n"
	files["shaper.d/07.toml"] = "[class.main]\nrate = \"2mbit\"\n"
	files["shaper.d/11.toml"] = "\n[daemon]\nhttp = \"\"\n"
	files["shaper.d/20.toml"] = "[[rule]]\nclass = \"c20\"\n[class.c20]\nrate = \"1mbit\"\nparent = \"c99\"\n"
	files["shaper.d/21.toml"] = "[[rule]]\nsource = \"10.0.0.0/33\"\nclass = \"c20\"\n"
	files["shaper.d/39.toml"] = "[class.c39]\nrate = \"1mbit\"\n[class.c39]\nrate = \"1mbit\"\n"
	_, _, err := Load(filepath.Join(trial.Files(t, files), "shaper.toml"))
	var got Errors
	if !errors.As(err, &got) {
		t.Fatal(err)
	}
	var places []string
	for _, e := range got {
		places = append(places, fmt.Sprintf("%s:%d:%d %s", filepath.Base(e.File), e.Line, e.Column, e.Key))
	}
	want := []string{"03.toml:2:8 class.c3.rate", "07.toml:1:2 class.main", "11.toml:2:2 daemon", "20.toml:5:10 class.c20.parent",
		"21.toml:2:10 rule[2].source", "39.toml:3:2 class.c39"}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Errorf("(-want +got):\n%s\n%v", diff, err)
	}
	dir := filepath.Dir(filepath.Dir(got[1].File))
	if want := "it is defined already, in " + dir + "/shaper.toml on line 3"; got[1].Problem != want {
		t.Errorf("the second class says %q, want %q", got[1].Problem, want)
	}
}

// A key that is misspelt is one mistake: what would follow from its default is none.
func TestMisspeltKeyIsOneMistake(t *testing.T) {
	for _, misspelt := range []string{"protcol", "protocl"} {
		_, _, err := Parse("p.toml", []byte("[class.a]\nrate = \"1 messages/s\"\n[listener.a]\nlisten = \"127.0.0.1:0\"\nupstream = \"discard:\"\nclass = \"a\"\n"+misspelt+" = \"lines\"\n"))
		if want := "p.toml:7:1: listener.a." + misspelt + ": unknown key; did you mean \"protocol\"?"; err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// The same holds for the word of a section, and for a parent: what names them is no mistake.
func TestMisspeltSectionIsOneMistake(t *testing.T) {
	const whole = "[class.top]\nrate = \"9 messages/s\"\n[class.a]\nrate = \"1 messages/s\"\nparent = \"top\"\nceil = \"2 messages/s\"\nshared = \"f\"\n" +
		"[listener.a]\nlisten = \"127.0.0.1:0\"\nprotocol = \"lines\"\nupstream = \"discard:\"\nclass = \"a\"\n[[rule]]\nlistener = \"a\"\nclass = \"a\"\n[fleet.f]\naddress = \"127.0.0.1:6379\"\n"
	for right, misspelt := range map[string]string{"[class.a]": "[clas.a]", "[class.top]": "[clss.top]", "[listener.": "[listner.", "[fleet.": "[flet.", "parent": "prent"} {
		_, _, err := Parse("p.toml", []byte(strings.Replace(whole, right, misspelt, 1)))
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "unknown key; did you mean") {
			t.Errorf("%s: the error is %v", misspelt, err)
		}
	}
	if _, _, err := Parse("p.toml", []byte(whole)); err != nil {
		t.Fatal(err)
	}
}

// A policy in pieces is what its files say together, in the order of their names.
func TestPieces(t *testing.T) {
	files := map[string]string{
		"shaper.toml":        includes + "[class.a]\nrate = \"1mbit\"\n[[rule]]\nport = 1\nclass = \"b\"\n",
		"shaper.d/20.toml":   "[[rule]]\nport = 3\nclass = \"a\"\n",
		"shaper.d/10.toml":   "[class.b]\nrate = \"2mbit\"\n[listener.web]\nlisten = \"127.0.0.1:1\"\nupstream = \"echo:\"\nclass = \"b\"\n\n[[rule]]\nport = 2\nclass = \"a\"\n",
		"shaper.d/.10.toml":  "this is a file that an editor has open",
		"shaper.d/README":    "this one neither",
		"elsewhere/10.toml":  "nor this",
		"shaper.d/30.toml":   "",
		"shaper.d/sub/x.tom": "",
	}
	dir := trial.Files(t, files)
	p, _, err := Load(filepath.Join(dir, "shaper.toml"))
	if err != nil {
		t.Fatal(err)
	}
	piece := func(name string) string { return filepath.Join(dir, "shaper.d", name) }
	if want := []string{piece("10.toml"), piece("20.toml"), piece("30.toml")}; !slices.Equal(p.Pieces, want) {
		t.Errorf("the pieces are %v, want %v", p.Pieces, want)
	}
	if names := namesOf(p.Classes, className); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("the classes are %v", names)
	}
	var rules []string
	for _, r := range p.Rules {
		rules = append(rules, fmt.Sprintf("%s:%d port %v", filepath.Base(r.File), r.Line, r.Port[0]))
	}
	if want := []string{"shaper.toml:5 port 1", "10.toml:8 port 2", "20.toml:1 port 3"}; !slices.Equal(rules, want) {
		t.Errorf("the rules are %v, want %v", rules, want)
	}
	e := p.BindError("listener.web.listen", "127.0.0.1:1", "taken", "")
	if got := e.Error(); got != piece("10.toml")+":4:10: listener.web.listen: taken" {
		t.Errorf("the error about an address is %q", got)
	}
	var b strings.Builder
	if err := p.WriteTree(&b); err != nil || !strings.Contains(b.String(), piece("10.toml")+":8") {
		t.Errorf("the printed policy does not say where rule 2 is: %v\n%s", err, &b)
	}
	checkHash(t, p, dir)
}

// checkHash checks that the hash depends on every piece.
func checkHash(t *testing.T, p *Policy, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "shaper.d", "30.toml"), []byte("# changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if again, _, err := Load(p.Path); err != nil || again.Hash == p.Hash || len(Diff(p, again)) > 0 {
		t.Errorf("with another comment: %v, hash %s and %s, changes %v", err, p.Hash, again.Hash, Diff(p, again))
	}
}

// What a key include may name, and what it reads.
func TestInclude(t *testing.T) {
	class := func(name string) string { return "[class." + name + "]\nrate = \"1mbit\"\n" }
	out, in, err := os.Pipe() // nobody writes to it
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	passed := fmt.Sprint(out.Fd())
	for _, c := range []struct {
		name, include string
		classes       []string // nil: there is an error
		problem       string
	}{
		{"nothing matches", `"none/*.toml"`, []string{"main"}, ""},
		{"a directory that does not exist", `"none/*/x.toml"`, []string{"main"}, ""},
		{"a name", `"a.toml"`, []string{"main", "a"}, ""},
		{"a list in its order", `["b.toml", "a.toml"]`, []string{"main", "b", "a"}, ""},
		{"a file that is named twice", `["b.toml", "?.toml"]`, []string{"main", "b", "a"}, ""},
		{"the policy itself", `"*.toml"`, []string{"main", "a", "b"}, ""},
		{"patterns of directories", `"x*/*.toml"`, []string{"main", "x1", "x2"}, ""},
		{"a dot", `"x1/.*.toml"`, []string{"main", "hidden"}, ""},
		{"a name that does not exist", `"none.toml"`, nil, "no such file"},
		{"a directory", `"x1"`, nil, "shaper.toml:2:11: daemon.include: read DIR/x1: is a directory"},
		{"a directory among others", `["a.toml", "x*"]`, nil, "shaper.toml:2:22: daemon.include: read DIR/x1: is a directory"},
		{"a directory that cannot be read", `"loop/*.toml"`, nil, "shaper.toml:2:11: daemon.include: open DIR/loop: too many levels"},
		{"a pipe", `"pipe*"`, nil, "shaper.toml:2:11: daemon.include: open DIR/pipe: it is not a regular file"},
		{"a device", `"/dev/zero"`, nil, "shaper.toml:2:11: daemon.include: open /dev/zero: it is not a regular file"},
		{"what the caller has passed", `"/dev/fd/PASSED"`, nil, "shaper.toml:2:11: daemon.include: open /dev/fd/PASSED: it is not a regular file"},
		{"a dangling link", `"dangling*"`, nil, "shaper.toml:2:11: daemon.include: open DIR/dangling: no such file"},
		{"a bad pattern", `"[.toml"`, nil, `:2:11: daemon.include: "[.toml" cannot be the name of a file`},
		{"an integer", `3`, nil, "3 is an integer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			include := strings.ReplaceAll(c.include, "PASSED", passed)
			dir := trial.Files(t, map[string]string{"shaper.toml": "[daemon]\ninclude = " + include + "\n" + class("main"),
				"a.toml": class("a"), "b.toml": class("b"), "x1/x.toml": class("x1"), "x1/.x.toml": class("hidden"), "x2/x.toml": class("x2")})
			if err := errors.Join(os.Symlink("loop", filepath.Join(dir, "loop")), os.Symlink("none", filepath.Join(dir, "dangling")),
				syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)); err != nil {
				t.Fatal(err)
			}
			p, _, err := Load(filepath.Join(dir, "shaper.toml"))
			if c.classes == nil {
				if want := strings.NewReplacer("DIR", dir, "PASSED", passed).Replace(c.problem); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
				return
			}
			if err != nil || !slices.Equal(namesOf(p.Classes, className), c.classes) {
				t.Errorf("error %v, policy %+v; want the classes %v", err, p, c.classes)
			}
		})
	}
}

// A reading that has not seen all files at one moment is an error.
func TestReadWhileFilesChange(t *testing.T) {
	files := map[string]string{"shaper.toml": includes, "shaper.d/10.toml": "# ten\n", "shaper.d/20.toml": "# twenty\n"}
	for name, change := range map[string]func(dir string) error{
		"a piece is replaced": func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "new"), []byte("# new\n"), 0o644); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "shaper.d/10.toml"))
		},
		"a piece comes": func(dir string) error { return os.WriteFile(filepath.Join(dir, "shaper.d/15.toml"), nil, 0o644) },
		"a piece goes":  func(dir string) error { return os.Remove(filepath.Join(dir, "shaper.d/10.toml")) },
		"the policy is written again": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "shaper.toml"), []byte("# empty\n"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := trial.Files(t, files)
			main, info, err := readFile(filepath.Join(dir, "shaper.toml"))
			if err != nil {
				t.Fatal(err)
			}
			var r reading
			r.add(main, info)
			patterns := included(main)
			pieces, err := expandAll(main.Name, patterns)
			if err != nil || len(pieces) != 2 {
				t.Fatal(pieces, err)
			}
			if err := errors.Join(r.readPiece(pieces[0]), r.readPiece(pieces[1]), r.unchanged(patterns, pieces)); err != nil {
				t.Fatal(err)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if r.unchanged(patterns, pieces) == nil {
				t.Error("there is no error")
			}
		})
	}
	if got, err := Read(filepath.Join(trial.Files(t, files), "shaper.toml")); err != nil || len(got) != 3 {
		t.Errorf("if nothing changes: %v, %v", got, err)
	}
}

// A policy that is a pipe or a device is an error, since to read it may take for ever. A descriptor that the caller has
// passed is read.
func TestReadWhatIsNoFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", "/dev/null"} {
		for name, read := range map[string]func(string) error{
			"Read":     func(path string) error { _, err := Read(path); return err },
			"ReadFile": func(path string) error { _, err := ReadFile(path); return err },
		} {
			if err, want := read(path), "open "+path+": it is not a regular file"; err == nil || err.Error() != want {
				t.Errorf("%s: error %v, want %s", name, err, want)
			}
		}
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := in.WriteString("# a policy\n"); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if files, err := Read(fmt.Sprintf("/dev/fd/%d", out.Fd())); err != nil || files[0].Text != "# a policy\n" {
		t.Errorf("what a shell passes: %v, %v", files, err)
	}
}
