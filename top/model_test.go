package top

import (
	"fmt"
	"strings"
	"testing"

	"shaper/web"
)

// names returns the classes on the screen, with a star at the cursor.
func (m *model) names() (all string) {
	for _, l := range m.view()[headLines+1 : m.height-footLines] {
		mark, name, _ := strings.Cut(strings.TrimSpace(l.String())+" ", " ")
		if mark == ">" {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			mark = name + "*"
		}
		if mark == "" || mark == "--" {
			return strings.TrimSpace(all)
		}
		all += mark + " "
	}
	return strings.TrimSpace(all)
}

func TestKeysInTree(t *testing.T) {
	few := []web.Class{{Name: "a", Items: 1, Oldest: 5}, {Name: "b", Parent: "a", Items: 9, Load: 0.1}, {Name: "c", Parent: "a", Load: 0.9}, {Name: "dab", Oldest: 7}}
	for _, c := range []struct {
		keys []any
		want string
	}{
		{nil, "a* b c dab"}, {[]any{"j"}, "a b* c dab"}, {[]any{"jjk"}, "a b* c dab"}, {[]any{keyDown, keyDown, keyUp}, "a b* c dab"},
		{[]any{"k"}, "a* b c dab"}, {[]any{"jjjjjj"}, "a b c dab*"}, {[]any{"G"}, "a b c dab*"}, {[]any{keyEnd, keyHome}, "a* b c dab"},
		{[]any{"r"}, "dab* a c b"}, {[]any{"s"}, "b* a c dab"}, {[]any{"ss"}, "dab* a b c"}, {[]any{"sss"}, "c* b a dab"}, {[]any{"sr"}, "c* dab a b"},
		{[]any{strings.Repeat("s", len(orders))}, "a* b c dab"},
		{[]any{"/b"}, "b* dab"}, {[]any{"/AB", keyEnter, "j"}, "dab*"}, {[]any{"/bx", keyBackspace}, "b* dab"}, {[]any{"/b", keyEsc}, "a* b c dab"},
		{[]any{"/b", keyEnter, keyEsc}, "a* b c dab"}, {[]any{"/zzz", keyClear, "c"}, "c*"}, {[]any{"jjj", "/b", keyEnter}, "b dab*"}, {[]any{"jjj", "s"}, "b* a c dab"},
		{[]any{"/q"}, "There"}, {[]any{"?", "j"}, "a* b c dab"},
	} {
		m := shown(80, 24, few...)
		m.pressAll(c.keys...)
		if got := m.names(); got != c.want || m.quit {
			t.Errorf("%v: %s, want %s; quit is %v", c.keys, got, c.want, m.quit)
		}
	}
	for _, keys := range [][]any{{"q"}, {keyInterrupt}, {keyEnter, "q"}, {"/", keyInterrupt}, {"?", keyInterrupt}} {
		m := shown(80, 24, few...)
		if m.pressAll(keys...); !m.quit {
			t.Errorf("%v do not quit", keys)
		}
	}
}

// The cursor stays at its class, and on the screen, whatever comes and goes above it.
func TestCursorStays(t *testing.T) {
	var many []web.Class
	for i := range 100 {
		many = append(many, web.Class{Name: fmt.Sprintf("c%02d", i)})
	}
	m := shown(80, 24, many...)
	m.press(keyPageDown)
	first := m.names()
	if !strings.HasSuffix(first, "c15*") {
		t.Errorf("after page down: %s", first)
	}
	m.tree.Classes = many[5:]
	if got := m.names(); !strings.Contains(got, "c15*") {
		t.Errorf("when five above it went: %s", got)
	}
	m.resize(80, 12)
	if got := m.names(); !strings.Contains(got, "c15*") || strings.Count(got, "c") != 8 {
		t.Errorf("in a small terminal: %s", got)
	}
	m.press(keyEnd)
	m.resize(80, 50)
	if got := m.names(); !strings.HasSuffix(got, "c99*") || strings.Count(got, "c") != 42 {
		t.Errorf("at the end of a large one: %s", got)
	}
	m.tree.Classes = many[:3]
	if got := m.names(); got != "c00* c01 c02" {
		t.Errorf("when its class went: %s", got)
	}
}

// A page is scrolled no further than its end. Esc goes back to where the cursor was.
func TestKeysInPage(t *testing.T) {
	m := shown(60, 12, classes()...)
	m.pressAll("j", keyEnter)
	m.showClass(bulkPage())
	top := m.view()[headLines].String()
	m.pressAll("jj", keyUp)
	if m.scrolled != 1 || m.view()[headLines].String() == top {
		t.Errorf("it is scrolled by %d", m.scrolled)
	}
	m.pressAll(keyEnd, keyDown, " ")
	if last := m.view()[m.height-footLines-1].String(); !strings.HasPrefix(last, "sessions") {
		t.Errorf("the last line is %q", last)
	}
	m.resize(80, 40)
	if m.view(); m.scrolled != 0 {
		t.Errorf("with room for all, it is scrolled by %d", m.scrolled)
	}
	m.press(keyEsc)
	if got := m.names(); m.open != "" || !strings.Contains(got, "bulk*") {
		t.Errorf("%q is open; the tree is %s", m.open, got)
	}
}
