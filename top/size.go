package top

// The size that a terminal needs. From leastDetails lines on, the tree has room for what is known of
// the class under the cursor.
const (
	leastWidth   = 60
	leastHeight  = 12
	leastDetails = 20
)

const (
	headLines = 2
	footLines = 1
)

// detailLines is how many lines details has.
const detailLines = 4

// hasDetails reports whether the tree has room for details.
func (m *model) hasDetails() bool { return m.height >= leastDetails }

// space returns how many lines there are for classes, or for the page of a class.
func (m *model) space() int {
	space := m.height - headLines - footLines
	if m.open != "" {
		return space
	}
	if space--; m.hasDetails() { // the titles
		space -= detailLines
	}
	return space
}
