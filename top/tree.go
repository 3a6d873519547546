package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"shaper/human"
	"shaper/web"
)

// rows returns the classes that the filter lets through, in the order that the user has asked for.
func (m *model) rows() (all []row) {
	classes := make([]*web.Class, len(m.tree.Classes)) // they come in the order of their names
	for i := range classes {
		classes[i] = &m.tree.Classes[i]
	}
	if compare := orders[m.by].compare; m.by > 0 || m.reversed {
		slices.SortStableFunc(classes, func(a, b *web.Class) int {
			if m.reversed {
				a, b = b, a
			}
			return compare(a, b)
		})
	}
	names := func(c *web.Class) (name, parent string) {
		if m.by > 0 { // not as a tree
			return c.Name, ""
		}
		return c.Name, c.Parent
	}
	for depth, c := range human.InTreeOrder(classes, names) {
		if m.matches(c.Name) {
			all = append(all, row{c, depth})
		}
	}
	return all
}

// matches reports whether the filter lets a class through.
func (m *model) matches(name string) bool {
	return m.filter == "" || strings.Contains(strings.ToLower(name), strings.ToLower(m.filter))
}

// at returns where the cursor is among the rows: at the first one if its class is not there.
func (m *model) at(rows []row) int {
	return max(slices.IndexFunc(rows, func(r row) bool { return r.of.Name == m.cursor }), 0)
}

// treeLines returns the table of classes, and what is known of the class under the cursor.
func (m *model) treeLines() (all []line) {
	rows := m.rows()
	at, space := m.at(rows), m.space()
	m.first = min(m.first, max(len(rows)-space, 0))
	m.first = max(min(m.first, at), at-space+1)
	seen := rows[m.first:min(m.first+space, len(rows))]
	m.widths = grow(m.widths, seen, m.now)
	shown, widths := layout(m.widths, m.width-len(cursorMark))
	all = append(all, m.titles(shown, widths))
	for i, r := range seen {
		all = append(all, rowLine(r, m.now, shown, widths, m.first+i == at))
	}
	switch {
	case len(rows) > 0:
	case m.filter == "":
		all = append(all, text("  The policy has no class.", plain))
	default:
		all = append(all, text("  There is no such class.", plain))
	}
	if !m.hasDetails() {
		return all
	}
	for len(all) < 1+space {
		all = append(all, nil)
	}
	if len(rows) > 0 {
		all = append(all, m.details(rows[at].of)...)
	}
	return all
}

// cursorMark stands before the class under the cursor.
const cursorMark = "> "

// titles returns the names of the columns. That of the order is marked.
func (m *model) titles(shown []column, widths []int) line {
	out := line{{strings.Repeat(" ", len(cursorMark)), plain}}
	for i, c := range shown {
		look := bold
		if c.name == orders[m.by].name {
			look = marked
		}
		out = append(out, span{human.Fit(c.name, widths[i], c.right), look}, span{strings.Repeat(" ", gap), plain})
	}
	return out
}

// rowLine returns a line of the table.
func rowLine(r row, now time.Time, shown []column, widths []int, marks bool) line {
	look, mark := plain, strings.Repeat(" ", len(cursorMark))
	if marks {
		look, mark = marked, cursorMark
	}
	out := line{{mark, look}}
	for i, c := range shown {
		cell := span{c.cell(r, now, widths[i]), look}
		if c.name == holdColumn && !marks {
			cell.style = warm
		}
		if i < len(shown)-1 {
			cell.text += strings.Repeat(" ", gap)
		}
		out = append(out, cell)
	}
	return out
}

// details returns all that the tree has of a class.
func (m *model) details(c *web.Class) []line {
	why := text("nothing waits", plain)
	switch hold := holdText(c, m.now); {
	case hold != "":
		why = text("waits for "+hold, warm)
	case c.Items > 0:
		why = text("waits for its turn", warm)
	}
	if c.Items > 0 {
		why[0].text += "; oldest item " + oldestText(c)
	}
	rate := "rate " + rateText(c)
	if c.Ceil != "" {
		rate += ", up to " + c.Ceil
	}
	if c.Shadow {
		rate += ", in the shadow"
	}
	return []line{
		text(m.ruler(c.Name), faint),
		why,
		text(fmt.Sprintf("%s; now %s, %s; %s, %s; drain %s", rate, c.Now, percent(c.Load), human.Plural(c.Items, "item"), human.Bytes(c.Bytes), drainText(c)), plain),
		text(fmt.Sprintf("waited %s (p50), %s (p99); dropped %d, refused %d, throttled %s",
			human.Duration(c.P50), human.Duration(c.P99), c.Dropped, c.Refused, throttledText(c, m.now)), plain),
	}
}

// ruler returns a line with a name.
func (m *model) ruler(name string) string {
	begin := "-- " + human.Cut(name, m.width-8) + " "
	return begin + strings.Repeat("-", m.width-human.Width(begin))
}
