package human

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestFit(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		right bool
		want  string
	}{
		{"otp", 5, false, "otp  "}, {"otp", 5, true, "  otp"}, {"otp", 3, false, "otp"}, {"bulk-mail", 5, false, "bulk…"},
		{"日本語", 6, false, "日本語"}, {"日本語", 5, false, "日本…"}, {"日本語", 4, true, " 日…"}, {"日", 1, false, "…"},
		{"e\u0301t\u0301e", 3, false, "e\u0301t\u0301e"}, {"👍 ok", 4, false, "👍 …"}, {"", 2, false, "  "}, {"otp", 0, false, ""},
		{"a\x1b[2Jb", 9, false, "a�[2Jb   "}, {"a\u202eb\x9b\n", 5, false, "a�b��"},
	} {
		if got := Fit(c.text, c.width, c.right); got != c.want {
			t.Errorf("%q in %d columns is %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

func TestCutBefore(t *testing.T) {
	for _, c := range []struct {
		text, end string
		width     int
		want      string
	}{
		{"1 messages/h", ", 59m", 20, "1 messages/h, 59m"}, {"1 messages/h", ", 59m", 17, "1 messages/h, 59m"},
		{"1 messages/h", ", 59m", 16, "1 messages…, 59m"}, {"1 messages/h", ", 59m", 6, "…, 59m"}, {"1 messages/h", ", 59m", 5, ", 59m"},
		{"1 messages/h", ", 59m", 4, ", 5…"}, {"1 messages/h", "", 4, "1 m…"}, {"日本語", ", 1s", 8, "日…, 1s"}, {"a", ", 1s", 0, ""},
	} {
		if got := CutBefore(c.text, c.end, c.width); got != c.want || Width(got) > c.width {
			t.Errorf("%q and %q in %d columns are %q, want %q", c.text, c.end, c.width, got, c.want)
		}
	}
}

// Whatever the text, a cell is as wide as it has to be, and has nothing that moves the cursor.
func FuzzFit(f *testing.F) {
	for _, text := range []string{"otp", "日本語", "a\x1b]0;title\x07", "e\u0301\u0301", "\u202e", "\xff\xfe", "👩‍🚀"} {
		f.Add(text, 5)
	}
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = min(max(width, 1), 200)
		for _, right := range []bool{false, true} {
			got := Fit(text, width, right)
			if Width(got) != width || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
				t.Errorf("%q in %d columns is %q", text, width, got)
			}
		}
	})
}

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"one two three": "- one two\n  three", "日本 語": "- 日本 語", "日本語 日本語": "- 日本語\n  日本語", "a\x1bb": "- a�b", "": "- ",
	} {
		if got := Wrap(text, 9, "- ", "  "); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestInTreeOrder(t *testing.T) {
	all := [][2]string{{"bulk", "sms"}, {"lost", "none"}, {"otp", "sms"}, {"sms", ""}, {"two", "otp"}}
	got := ""
	for depth, c := range InTreeOrder(all, func(c [2]string) (string, string) { return c[0], c[1] }) {
		got += fmt.Sprintf("%d%s ", depth, c[0])
		if c[0] == "two" {
			break
		}
	}
	if want := "0lost 0sms 1bulk 1otp 2two "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
