package top

import (
	"time"

	"shaper/daemon"
)

// model is what is known and what the user has asked for. The frame follows from it alone.
type model struct {
	width, height int
	facts         func(daemon.Class, time.Time) [][2]string // all that is known of a class

	// What the daemon has said.
	summary daemon.Summary
	now     time.Time // of the last event; zero: there was none
	away    error     // why nothing comes now; nil if the daemon answers
	tree    daemon.Tree
	page    daemon.ClassView // of the class that is open
	pageAt  time.Time        // when it came; zero: not yet
	seen    past             // of that class
	widths  map[string]int   // of the columns: they grow, so that they do not jump

	// What the user has asked for.
	open     string // the class whose page is open; "": the tree
	scrolled int    // lines of the page above the screen
	cursor   string // the class under the cursor; "": the first one
	first    int    // the class at the top of the screen
	by       int    // in orders
	reversed bool
	filter   string
	typing   bool // keys go to the filter
	helping  bool
	quit     bool
}

// showTree takes an event of the tree.
func (m *model) showTree(e daemon.Event[daemon.Tree]) {
	m.summary, m.now, m.away, m.tree = e.Summary, e.Now, nil, e.View
}

// showClass takes an event of the page that is open.
func (m *model) showClass(e daemon.Event[daemon.ClassView]) {
	m.summary, m.now, m.away, m.page, m.pageAt = e.Summary, e.Now, nil, e.View, e.Now
	if c := e.View.Class; c != nil {
		m.seen.add(e.Now, c)
	}
}

// lose takes the reason why no event comes.
func (m *model) lose(why error) { m.away = why }

// resize takes the size of the terminal.
func (m *model) resize(width, height int) {
	m.width, m.height, m.widths = width, height, nil
}

// press does what a key asks for.
func (m *model) press(k key) {
	switch {
	case k == keyInterrupt:
		m.quit = true
	case m.helping:
		m.helping = false
	case m.typing:
		m.typeFilter(k)
	case k == '?':
		m.helping = true
	case k == 'q':
		m.quit = true
	case m.open != "":
		m.pressInPage(k)
	default:
		m.pressInTree(k)
	}
}

// typeFilter edits the filter.
func (m *model) typeFilter(k key) {
	switch k {
	case keyEnter:
		m.typing = false
	case keyEsc:
		m.typing, m.filter = false, ""
	case keyClear:
		m.filter = ""
	case keyBackspace:
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	default:
		if k < keyEnter && len(m.filter) < 64 {
			m.filter += string(rune(k))
		}
	}
}

// pressInTree moves the cursor, opens a class, or changes the order.
func (m *model) pressInTree(k key) {
	switch k {
	case '/':
		m.typing = true
	case keyEsc:
		m.filter = ""
	case 's':
		m.by, m.cursor = (m.by+1)%len(orders), ""
	case 'r':
		m.reversed, m.cursor = !m.reversed, ""
	case keyEnter:
		if rows := m.rows(); len(rows) > 0 {
			m.open, m.scrolled = rows[m.at(rows)].of.Name, 0
			m.page, m.pageAt, m.seen = daemon.ClassView{}, time.Time{}, past{}
		}
	default:
		rows := m.rows()
		if to := moved(k, m.at(rows), m.space()); len(rows) > 0 {
			m.cursor = rows[min(max(to, 0), len(rows)-1)].of.Name
		}
	}
}

// pressInPage moves the page, or closes it.
func (m *model) pressInPage(k key) {
	switch k {
	case keyEsc, keyBackspace:
		m.open = ""
	default:
		hidden := len(m.pageLines()) - m.space()
		m.scrolled = max(min(moved(k, m.scrolled, m.space()), hidden), 0)
	}
}

// moved returns the place to which a key moves from another. A screen has so many places.
func moved(k key, from, screen int) int {
	switch k {
	case keyUp, 'k':
		return from - 1
	case keyDown, 'j':
		return from + 1
	case keyPageUp:
		return from - max(screen-1, 1)
	case keyPageDown, ' ':
		return from + max(screen-1, 1)
	case keyHome, 'g':
		return 0
	case keyEnd, 'G':
		return 1 << 30
	}
	return from
}
