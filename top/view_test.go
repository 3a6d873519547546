package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"shaper/daemon"
	"shaper/human"
	"shaper/stats"
	"shaper/web"
)

func TestFrames(t *testing.T) {
	for name, m := range map[string]*model{
		"tree-80x24.txt":  shown(80, 24, classes()...),
		"tree-200x60.txt": shown(200, 60, classes()...),
		"tree-60x12.txt":  shown(60, 12, classes()...),
		"tree-40x10.txt":  shown(40, 10, classes()...),
		"none-80x24.txt":  shown(80, 24),
	} {
		golden(t, name, m.view())
	}
	m := shown(100, 24, classes()...)
	m.pressAll("ss", "/", "O", keyEnter, "j")
	golden(t, "sorted-100x24.txt", m.view())
	m.lose(errors.New("the daemon is not reachable at /run/shaper/control.sock: connection refused"))
	m.summary.ReloadOK = false
	golden(t, "away-100x24.txt", m.view())
	m.press('?')
	golden(t, "help-100x24.txt", m.view())
}

// One is no plural.
func TestOneOfAKind(t *testing.T) {
	one := web.Class{Name: "slow", Rate: "1mbit", Now: "0bit"}
	one.Items = 1
	m := shown(100, 24, one)
	m.summary.Sessions = 1
	if got := m.head().String() + "\n" + m.subject().String(); !strings.HasSuffix(got, ", 1 session\n1 class, something waits in 1") {
		t.Errorf("it says %q", got)
	}
}

func TestFramesOfClass(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 60}, {60, 12}} {
		m := shown(size[0], size[1], classes()...)
		m.pressAll(keyDown, keyEnter)
		if m.open != "bulk" {
			t.Fatalf("enter opens %q", m.open)
		}
		m.showClass(bulkPage())
		golden(t, fmt.Sprintf("class-%dx%d.txt", size[0], size[1]), m.view())
	}
	m := shown(80, 24, classes()...)
	m.press(keyEnter)
	golden(t, "opening-80x24.txt", m.view())
	m.showClass(daemon.Event[daemon.ClassView]{Now: noon, Summary: summary})
	golden(t, "gone-80x24.txt", m.view())
}

// If the daemon keeps no curves, the page shows what it has seen since it was opened.
func TestPageWithoutTheHour(t *testing.T) {
	m := shown(80, 24, classes()...)
	m.pressAll(keyDown, keyEnter)
	e := bulkPage()
	e.View.Curves = web.Curves{}
	for i := range 40 {
		e.Now = noon.Add(time.Duration(i) * time.Second)
		e.View.Class.BacklogItems = int64(i)
		e.View.Class.Refused = map[stats.Reason]stats.LossReading{stats.QueueFull: {Items: uint64(max(0, i-20) * 3)}}
		m.showClass(e)
	}
	golden(t, "seen-80x24.txt", m.view())
}

// Whatever the names and texts, each line has its width, the columns stand below each other, and
// nothing reaches the terminal that it would obey.
func TestHostileTexts(t *testing.T) {
	all := classes()
	for i, name := range []string{"a\x1b[2Jb\x07", "日本語日本語日本語日本語", "e\u0301e\u0301", "\u202eolleh", strings.Repeat("long", 99)} {
		all[i].Name, all[i].Parent, all[i].Now = name, "", all[i].Now+"\x9b5n"
	}
	all[1].WaitsFor.Limit = "\x1b]0;title\x07 日本"
	for _, size := range [][2]int{{60, 12}, {80, 24}, {131, 30}, {200, 60}} {
		m := shown(size[0], size[1], all...)
		m.summary.Version = "\x1b[31m"
		e := bulkPage()
		e.View.Why, e.View.Class.Now.Text = "\x1b[2J\r\x08 日本\n\u202e", "\x1bc"
		for _, keys := range [][]any{{}, {"j"}, {"j"}, {"/", "\u009b\x1b"}, {keyEsc, keyEnter}} {
			m.pressAll(keys...)
			if m.open != "" {
				m.showClass(e)
			}
			for i, l := range m.view() {
				if text := l.String(); strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsRune(text, 0x202e) || human.Width(text) > size[0] {
					t.Errorf("%v: line %d is %q, %d wide", size, i, text, human.Width(text))
				}
			}
		}
	}
	f := shown(80, 24, all...).view()
	column := strings.Index(f[2].String(), "ITEMS") + len("ITEMS")
	for i, l := range f[3:8] {
		text := strings.TrimSuffix(human.Cut(l.String(), column+1), "…")
		if c := text[len(text)-1]; !strings.ContainsRune("0123456789", rune(c)) || human.Width(text) != column {
			t.Errorf("in line %d, the column ITEMS ends elsewhere: %q", i, l.String())
		}
	}
}

// A class in the shadow delays nothing, whatever its rate is.
func TestShadowIsSeen(t *testing.T) {
	c := web.Class{Name: "slow", Rate: "1 messages/h", Shadow: true}
	says := func(want ...string) {
		t.Helper()
		var all []string
		for _, l := range shown(80, 24, c).view() {
			all = append(all, l.String())
		}
		for _, w := range want {
			if text := strings.Join(all, "\n"); !strings.Contains(text, w) {
				t.Errorf("%q is not in\n%s", w, text)
			}
		}
	}
	says(" - (shadow) ", "rate 1 messages/h, in the shadow; now ")
	c.WaitsFor = &stats.Hold{Class: "above", Limit: "2 messages/s"}
	says(" 2 messages/s of a…", "waits for 2 messages/s of above", "rate 1 messages/h, in the shadow; now ")
}

// Columns do not jump: once wide, they stay so until the terminal has another size.
func TestColumnsStay(t *testing.T) {
	m := shown(100, 24, classes()...)
	before := m.view()[2].String()
	m.tree.Classes[0].Now, m.tree.Classes[2].Now = "2 m", "1 m"
	if after := m.view()[2].String(); after != before {
		t.Errorf("the titles were\n%s\nand are\n%s", before, after)
	}
	m.resize(101, 24)
	if after := m.view()[2].String(); strings.Index(after, "NOW") == strings.Index(before, "NOW") {
		t.Error("they stay when the size changes")
	}
}
