package policy

import "testing"

func TestControlPath(t *testing.T) {
	for _, c := range []struct{ what, file, want string }{
		{"a whole policy", "[daemon]\ncontrol = \"/a/b.sock\"\n", "/a/b.sock"},
		{"relative to the file", "[daemon]\ncontrol = \"run/b.sock\"\n", "/etc/x/run/b.sock"},
		{"other mistakes", "[daemon]\ncontrol = \"/a/b.sock\"\ncolour = 3\n[class.a]\nrate = 7\n", "/a/b.sock"},
		{"no TOML behind it", "[daemon]\ncontrol = \"/a/b.sock\"\n[class.a\nrate = \n", "/a/b.sock"},
		{"a line that is no TOML before it", "rate = = 3\n[daemon]\ncontrol = \"/a/b.sock\"\n", "/a/b.sock"},
		{"of the wrong type", "[daemon]\ncontrol = 3\n", "/run/shaper/control.sock"},
		{"impossible", "[daemon]\ncontrol = \"@abstract\"\n", "/run/shaper/control.sock"},
		{"not given", "[class.a]\nrate = \"1mbit\"\n", "/run/shaper/control.sock"},
		{"not a table", "daemon = 3\n", "/run/shaper/control.sock"},
		{"empty", "", "/run/shaper/control.sock"},
	} {
		if got := ControlPath("/etc/x/shaper.toml", []byte(c.file)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
