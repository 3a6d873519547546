package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2/unstable"
)

func TestFormat(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"spaces", "[ class . acme ]\nrate='1mbit'   \n  ceil =   \"2mbit\"#as much\n", "[class.acme]\nrate = \"1mbit\"\nceil = \"2mbit\"  #as much\n"},
		{"aligned", "[a]\na = 1\nlong=2 # two\nb = [1,\n2]\nc = 3\n", "[a]\na    = 1\nlong = 2  # two\nb = [\n    1,\n    2,\n]\nc = 3\n"},
		{"sections", "\n\n[a]\n\n\n\na = 1\n# about b\n[b]\n[[c]]\n\n", "[a]\n\na = 1\n\n# about b\n[b]\n\n[[c]]\n"},
		{"comments", "# first\n\n\n# second\n[a] # third\n#fourth", "# first\n\n# second\n[a]  # third\n#fourth\n"},
		{"lists", "[a]\na=[ 'x' , \"y\",]\nb = []\nc = [ # why\n'x', 'y', # two\n\n'z'\n, 'w' # last\n# end\n]\nd = [[1,2],[3]]\n",
			"[a]\na = [\"x\", \"y\"]\nb = []\nc = [\n    # why\n    \"x\", \"y\",  # two\n    \"z\",\n    \"w\",  # last\n    # end\n]\nd = [[1, 2], [3]]\n"},
		{"tables", "[a]\na={b=1,c.\"d\" = {  }}\n", "[a]\na = { b = 1, c.d = {} }\n"},
		{"quotes", "[a]\na='C:\\x'\nb='say \"x\"'\n'c d' = '''x\n  'y' '''\n\"e\" = \"\"\"a\\\"\"\"\"\"\nf=\"\\\"\"\n",
			"[a]\na = 'C:\\x'\nb = 'say \"x\"'\n\"c d\" = '''x\n  'y' '''\ne = \"\"\"a\\\"\"\"\"\"\nf = \"\\\"\"\n"},
		{"Windows", "\ufeff[a]\r\na = 1 # one\r\n\r\n\r\nb = [\r\n1]\r\n", "[a]\na = 1  # one\n\nb = [\n    1,\n]\n"},
		{"announced", "# shaper.toml <<END  \n[a]\n# END\n", "# shaper.toml <<END\n[a]\n# END\n"},
		{"not announced", "\n# shaper.toml <<END\n[a]\n", "\n# shaper.toml <<END\n[a]\n"},
		{"a date", "a = 1979-05-27 07:32:00 # born\n", "a = 1979-05-27 07:32:00  # born\n"},
		{"empty", "", ""},
		{"only a comment", "#x\n", "#x\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.HasSuffix(c.text, "\n") && c.text != "" {
				c.text += "\n"
			}
			got, err := Format(File{"t.toml", c.text})
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Fatalf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// What is not TOML, or has lost its end, is not formatted.
func TestFormatRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"[a\nb = 1\n":                "t.toml:1:3: syntax: ",
		"[a]\nb = 1":                 "t.toml:2:6: end: ",
		"# x <<END\n[a]\n":           "t.toml:3:1: end: ",
		"[a]\nb = 1\nb = 2\n":        "t.toml:3:1: a.b: it is defined already",
		"# x <<END\n # END\n# END\n": "cannot format this file without changing what it means",
	} {
		if got, err := Format(File{"t.toml", text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, error %v; want %q", text, got, err, want)
		}
	}
}

// The shipped policy, and the examples, are formatted.
func TestShippedPoliciesAreFormatted(t *testing.T) {
	files, err := filepath.Glob("../docs/*/*.toml")
	if err != nil || len(files) < 1 {
		t.Fatal(files, err)
	}
	for _, path := range append(files, shipped) {
		text := string(mustRead(t, path))
		got, err := Format(File{path, text})
		if *update {
			os.WriteFile(path, []byte(got), 0o644)
		}
		if diff := cmp.Diff(text, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-file +formatted):\n%s", path, err, diff)
		}
	}
}

// FuzzFormat checks that Format keeps the values and the comments of each file, and that what it
// has formatted stays as it is.
func FuzzFormat(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, shipped) {
		f.Add(string(mustRead(f, file)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		once, err := Format(File{"f.toml", text})
		if err != nil {
			return
		}
		if diff := cmp.Diff(commentsOf(t, text), commentsOf(t, once)); diff != "" {
			t.Errorf("the comments differ (-before +after):\n%s", diff)
		}
		if twice, err := Format(File{"f.toml", once}); err != nil || twice != once {
			t.Errorf("error %v, and again (-once +twice):\n%s", err, cmp.Diff(once, twice))
		}
		before, _, errBefore := Parse("f.toml", []byte(text))
		after, _, errAfter := Parse("f.toml", []byte(once))
		if (errBefore == nil) != (errAfter == nil) || errBefore == nil && len(Diff(before, after)) > 0 {
			t.Errorf("before: %v\nafter: %v", errBefore, errAfter)
		}
	})
}

// commentsOf returns the comments of a file in their order. The judge is go-toml.
func commentsOf(t *testing.T, text string) (all []string) {
	p := unstable.Parser{KeepComments: true}
	data := []byte(strings.TrimPrefix(text, "\ufeff"))
	p.Reset(data)
	var walk func(n *unstable.Node)
	walk = func(n *unstable.Node) {
		if n.Kind == unstable.Comment {
			all = append(all, strings.TrimRight(string(n.Data), " \t\r"))
		}
		for it := n.Children(); it.Next(); {
			walk(it.Node())
		}
	}
	for p.NextExpression() {
		for n := p.Expression(); n != nil; n = n.Next() {
			walk(n)
		}
	}
	if err := p.Error(); err != nil {
		t.Fatal(err)
	}
	return all
}
