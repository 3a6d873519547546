package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestShadowCommand(t *testing.T) {
	p := begin(t, base)
	next := filepath.Join(filepath.Dir(p.path), "next.toml")
	write := func(text string) {
		if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(base, "[class.slow]", "[class.new]\nrate = \"1mbit\"\n[class.slow]", 1))
	want(t, 0, []string{"no policy runs in the shadow"}, "shadow", "-c", p.path)
	want(t, 0, []string{"next.toml  ", "by uid", "WOULD DROP", "LIVE RATE", "\nslow ", "\nnew ", "warning: " + next + ":"}, "shadow", next, "-c", p.path)
	out := want(t, 0, []string{"in the shadow for", "\nslow "}, "shadow", "-c", p.path)
	if strings.Contains(out, "warning") {
		t.Errorf("warnings are part of the table:\n%s", out)
	}
	want(t, 64, []string{"--stop takes no file"}, "shadow", "--stop", next, "-c", p.path)
	want(t, 0, []string{"next.toml  "}, "shadow", "--stop", "-c", p.path)
	want(t, 1, []string{"no policy runs in the shadow"}, "shadow", "--stop", "-c", p.path)

	write("[class.a]\nrate = \"fast\"\n")
	want(t, 65, []string{"next.toml:2:8: class.a.rate"}, "shadow", next, "-c", p.path)
	want(t, 66, []string{"none.toml"}, "shadow", "none.toml", "-c", p.path)
	want(t, 66, []string{"not a regular file"}, "shadow", "/dev/zero", "-c", p.path)
	write(strings.Repeat("#\n", 9<<20))
	want(t, 65, []string{"larger than 16MiB"}, "shadow", next, "-c", p.path)
}
