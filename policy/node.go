package policy

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A node is a value of the file with its position. The Unmarshal of go-toml needs no nodes,
// but it stops at the first mistake, ignores the case of keys, accepts an integer for a
// string, does not keep positions, and needs quadratic time to find duplicate keys.
type node struct {
	kind nodeKind
	at   int // offset among all files of the policy; that of a table is where its header names it
	from origin

	path string // the dotted key that leads to it

	text string // only of a scalar: the string, or the number in decimal

	items []*node // only of a list

	// Only of a table.
	keys  []entry          // in file order
	index map[string]*node // the same by name
}

// origin is how the file creates a node. It determines what else may add to the node.
type origin uint8

const (
	implicit origin = iota // [a.b] creates a, which may still get a header of its own
	header                 // [a] and [[a]] create a
	dotted                 // a.b = 1 creates a; only more such keys, and headers of tables in a, may add to it
	assigned               // a = ... creates a; nothing may add to it
)

// A name is one part of a dotted key.
type name struct {
	text string
	at   int // its offset
}

// An entry is a key of a table and its value.
type entry struct {
	name  string
	at    int // offset of the key
	value *node
}

// nodeKind is the type of a value, as errors call it.
type nodeKind string

const (
	aString nodeKind = "a string"
	anInt   nodeKind = "an integer"
	aFloat  nodeKind = "a number with a point"
	aBool   nodeKind = "a boolean"
	aDate   nodeKind = "a date or time"
	aList   nodeKind = "a list"
	aTable  nodeKind = "a table"
)

// maxPath is the length in bytes after which the path of a table no longer grows. Without it,
// nested tables need memory in proportion to the square of the file's size.
const maxPath = 256

// get returns the value of a key, or nil.
func (n *node) get(name string) *node { return n.index[name] }

// put adds a key to a table and returns its value.
func (n *node) put(key name, value *node) *node {
	if n.index == nil {
		n.index = map[string]*node{}
	}
	n.index[key.text] = value
	value.path = n.path
	if len(n.path) < maxPath {
		value.path = join(n.path, key.text)
	}
	n.keys = append(n.keys, entry{key.text, key.at, value})
	return value
}

// A builder makes nodes from the expressions of go-toml: one for each header and for each
// key with its value. If a header is wrong, the keys below it go into a table that nothing
// refers to, so that one mistake does not lead to an error about each of these keys.
type builder struct {
	report  *report
	data    []byte // one file
	start   int    // offset of data among all files of the policy
	base    int    // index in data at which the parser began; after a syntax error it begins anew
	root    *node
	section *node // the table that the last header opened; the next keys belong to it
}

// key returns the parts of a dotted key, with their offsets.
func (b *builder) key(it unstable.Iterator) (names []name) {
	for it.Next() {
		n := it.Node()
		names = append(names, name{string(n.Data), b.offset(n.Raw.Offset)})
	}
	return names
}

// offset turns an offset of the parser, which counts from base, into one among all files of the policy.
func (b *builder) offset(parsed uint32) int { return b.start + b.base + int(parsed) }

// openTable makes [a.b.c] the table to which the next keys belong.
func (b *builder) openTable(names []name) {
	last := names[len(names)-1]
	parent := b.descend(b.root, names[:len(names)-1], implicit)
	b.section = parent.get(last.text)
	switch {
	case b.section == nil:
		b.section = parent.put(last, &node{kind: aTable, at: names[0].at})
	case b.section.from != implicit:
		b.duplicate(parent, last, names[0].at)
		b.section = &node{kind: aTable}
	default:
		b.section.at = names[0].at // [a.b] created a before, and this is [a]
	}
	b.section.from = header
}

// openItem adds an item to the list [[a.b.c]]. The next keys belong to it.
func (b *builder) openItem(names []name) {
	last := names[len(names)-1]
	parent := b.descend(b.root, names[:len(names)-1], implicit)
	list := parent.get(last.text)
	b.section = &node{kind: aTable, at: names[0].at, from: header}
	switch {
	case list == nil:
		list = parent.put(last, &node{kind: aList, at: names[0].at, from: header})
	case list.kind != aList || list.from != header:
		b.duplicate(parent, last, names[0].at)
		return
	}
	b.section.path = fmt.Sprintf("%s[%d]", list.path, len(list.items)+1)
	list.items = append(list.items, b.section)
}

// addKey adds `a.b = value` to a table. outer is the offset of the inline table that contains the key; it
// means nothing for a key that stands on a line of its own.
func (b *builder) addKey(table *node, e *unstable.Node, outer int) {
	names := b.key(e.Key())
	last := names[len(names)-1]
	table = b.descend(table, names[:len(names)-1], dotted)
	if table.get(last.text) != nil {
		b.duplicate(table, last, names[0].at)
		return
	}
	table.put(last, b.value(e.Value(), b.valueOffset(e, outer)))
}

// valueOffset returns the offset of the value of a key. go-toml does not tell the offset of a list, so
// valueOffset finds the value in the text: it is what stands behind the key and the equals sign. If the
// key has no parts, valueOffset returns outer.
func (b *builder) valueOffset(e *unstable.Node, outer int) int {
	var last *unstable.Node
	for it := e.Key(); it.Next(); {
		last = it.Node()
	}
	if last == nil {
		return outer
	}
	end := b.base + int(last.Raw.Offset+last.Raw.Length)
	rest := bytes.TrimLeft(b.data[end:], " \t")
	rest = bytes.TrimLeft(bytes.TrimPrefix(rest, []byte("=")), " \t")
	return b.start + len(b.data) - len(rest)
}

// value returns a value of go-toml as a node. at is its offset if go-toml does not tell one; for an item of
// a list, that is the offset of the list.
func (b *builder) value(v *unstable.Node, at int) *node {
	n := &node{at: at, text: string(v.Data), from: assigned}
	if v.Raw.Length > 0 {
		n.at = b.offset(v.Raw.Offset)
	}
	switch v.Kind {
	case unstable.String:
		n.kind = aString
	case unstable.Integer:
		n.kind = anInt
		if i, err := strconv.ParseInt(n.text, 0, 64); err == nil {
			n.text = strconv.FormatInt(i, 10)
		}
	case unstable.Float:
		n.kind = aFloat
	case unstable.Bool:
		n.kind = aBool
	case unstable.Array:
		n.kind = aList
		for it := v.Children(); it.Next(); {
			n.items = append(n.items, b.value(it.Node(), n.at))
		}
	case unstable.InlineTable:
		n.kind = aTable
		for it := v.Children(); it.Next(); {
			b.addKey(n, it.Node(), n.at)
		}
	default:
		n.kind = aDate
	}
	return n
}

// descend follows the names of a header, or of a key if from is dotted, and creates missing
// tables with that origin. In a list of tables it takes the last one, as TOML says. It reports a
// name that may not be followed: a value is complete, and a dotted key adds only to tables that
// dotted keys have created.
func (b *builder) descend(table *node, names []name, from origin) *node {
	for _, part := range names {
		next := table.get(part.text)
		if next == nil {
			next = table.put(part, &node{kind: aTable, at: part.at, from: from})
		}
		if next.from == assigned || from == dotted && next.from != dotted {
			b.duplicate(table, part, part.at)
			return &node{kind: aTable}
		}
		if next.kind == aList {
			next = next.items[len(next.items)-1]
		}
		table = next
	}
	return table
}

// duplicate reports that a table already contains the key. at is where the file has it again.
func (b *builder) duplicate(table *node, key name, at int) {
	line := b.report.place(table.get(key.text).at).line
	b.report.wrongAt(at, join(table.path, key.text), fmt.Sprintf("it is defined already, on line %d", line),
		"a name or a key is defined once")
}
