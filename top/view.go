package top

import (
	"fmt"
	"strings"

	"shaper/human"
)

// view returns the frame: a head of two lines, what the user looks at, and a foot of one line.
func (m *model) view() frame {
	if m.width < leastWidth || m.height < leastHeight {
		need := fmt.Sprintf("shaper top needs a terminal of at least %dx%d. This one has %dx%d.\n", leastWidth, leastHeight, m.width, m.height)
		return frame(paragraph(need, m.width, plain)).cropped(m.width, m.height)
	}
	all := frame{m.head(), m.subject()}
	switch {
	case m.helping:
		all = append(all, helpLines()...)
	case m.open != "":
		lines := m.pageLines()
		m.scrolled = max(min(m.scrolled, len(lines)-m.space()), 0)
		all = append(all, lines[m.scrolled:]...)
	default:
		all = append(all, m.treeLines()...)
	}
	all = all.cropped(m.width, m.height)
	all[m.height-1] = m.foot().cut(m.width)
	return all
}

// head says which daemon this is. It changes only if the daemon does, so that nothing is drawn while
// nothing happens.
func (m *model) head() line {
	if m.now.IsZero() {
		return text("shaper", bold)
	}
	s := m.summary
	out := line{{"shaper " + s.Version, bold}, {fmt.Sprintf(", %s, up since %s, policy %s, %s",
		s.State, clock(s.Started, m.now), s.PolicyHash, human.Plural(s.Sessions, "session")), plain}}
	if !s.ReloadOK {
		out = append(out, span{", the LAST RELOAD FAILED", hot})
	}
	return out
}

// subject says what is shown below, or why that is old.
func (m *model) subject() line {
	if m.away != nil {
		return text("old since "+m.now.Local().Format("15:04:05")+": "+firstLine(m.away.Error()), hot)
	}
	if m.open != "" {
		return text("class "+m.open, bold)
	}
	waiting, set := 0, ""
	for _, c := range m.tree.Classes {
		if c.Items > 0 || c.WaitsFor != nil { // sessions may wait while no item does
			waiting++
		}
		if c.Set {
			set = "; * by shaper set"
		}
	}
	out := fmt.Sprintf("%s, something waits in %d%s", human.Plural(m.tree.Total, "class"), waiting, set)
	if n := len(m.tree.Classes); n < m.tree.Total {
		out += fmt.Sprintf("; only the %d in which most waits are here", n)
	}
	if m.by > 0 {
		out += "; by " + orders[m.by].name
	}
	if m.reversed {
		out += ", reversed"
	}
	if m.filter != "" && !m.typing {
		out += fmt.Sprintf("; only names with %q", m.filter)
	}
	return text(out, plain)
}

func firstLine(s string) string {
	first, _, _ := strings.Cut(s, "\n")
	return first
}

// foot says which keys there are.
func (m *model) foot() line {
	switch {
	case m.typing:
		return line{{"filter: " + m.filter, bold}, {"_", bold}, {"   enter keeps it, esc clears it", faint}}
	case m.helping:
		return text("any key goes back", faint)
	case m.open != "":
		return text("esc back  up/down scroll  ? help  q quit", faint)
	}
	return text("up/down move  enter why, curves  / filter  s sort  r reverse  ? help  q quit", faint)
}

// help is what the key ? shows: keys and columns.
var help = [][2]string{
	{"up, down, k, j", "move the cursor, or scroll; also page up, page down, home, end"},
	{"enter", "open the class: why it waits, its last hour, all figures"},
	{"esc", "back to all classes; clear the filter"},
	{"/", "show only classes with a text in their names"},
	{"s, r", "sort by the next column; reverse the order"},
	{"q, ctrl-C", "quit"},
	{"", ""},
	{"NOW, LOAD", "sent in the last second; that as a part of the limit"},
	{"ITEMS, BACKLOG", "what waits: items, bytes"},
	{"OLDEST", "how long the item has waited that has waited longest"},
	{"P50, P99", "how long items waited that have left"},
	{"DRAIN", "until all that waits has left"},
	{"THROTTLED", "messages that the provider refused as too fast"},
	{"WAITS FOR", "the limit that holds up the next item"},
	{"", "The figures of a class include those of all classes beneath it."},
}

func helpLines() (all []line) {
	for _, h := range help {
		all = append(all, line{{human.Fit(h[0], 16, false), bold}, {h[1], plain}})
	}
	return all
}
