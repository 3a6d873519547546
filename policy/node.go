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
	at   int // offset in the file; for a table, offset of its name in the header
	from origin

	text string // only a scalar: the string, or the number in decimal

	items []*node // only a list

	// Only a table.
	path  string  // its dotted key
	keys  []entry // in file order
	index map[string]*node
}

// origin is how the file creates a node. It determines what else may add to the node.
type origin uint8

const (
	mentioned origin = iota // [a.b] creates a, which may still get a header of its own
	header                  // [a] and [[a]] create a
	dotted                  // a.b = 1 creates a; only more such keys, and headers of tables in a, may add to it
	assigned                // a = ... creates a; nothing may add to it
)

// An entry is a key of a table and its value.
type entry struct {
	name  string
	at    int
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
func (n *node) put(k name, value *node) *node {
	if n.index == nil {
		n.index = map[string]*node{}
	}
	n.index[k.text] = value
	if value.path = n.path; len(n.path) < maxPath {
		value.path = join(n.path, k.text)
	}
	n.keys = append(n.keys, entry{k.text, k.at, value})
	return value
}

// A name is one part of a dotted key.
type name struct {
	text string
	at   int
}

// A builder makes nodes from the expressions of go-toml.
type builder struct {
	report  *report
	data    []byte
	start   int // offset of data among all files of the policy
	base    int // index in data at which the parser began
	root    *node
	section *node // the table that the last header opened
}

// key returns the parts of a dotted key, with their offsets.
func (b *builder) key(it unstable.Iterator) (names []name) {
	for it.Next() {
		n := it.Node()
		names = append(names, name{string(n.Data), b.offset(n.Raw.Offset)})
	}
	return names
}

// offset returns where something is among all files of the policy. The parser counts from base.
func (b *builder) offset(parsed uint32) int { return b.start + b.base + int(parsed) }

// openTable makes [a.b.c] the table to which the next keys belong.
func (b *builder) openTable(names []name) {
	last := names[len(names)-1]
	parent := b.descend(b.root, names[:len(names)-1], mentioned)
	b.section = parent.get(last.text)
	switch {
	case b.section == nil:
		b.section = parent.put(last, &node{kind: aTable, at: names[0].at})
	case b.section.from != mentioned:
		b.duplicate(parent, last, names[0].at)
		b.section = &node{kind: aTable}
	default:
		b.section.at = names[0].at // [a.b] came before [a]
	}
	b.section.from = header
}

// openItem adds an item to the list [[a.b.c]]. The next keys belong to it.
func (b *builder) openItem(names []name) {
	last := names[len(names)-1]
	parent := b.descend(b.root, names[:len(names)-1], mentioned)
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

// keyValue adds `a.b = value` to a table. outer is the offset of the value of an inline table
// that contains it.
func (b *builder) keyValue(table *node, e *unstable.Node, outer int) {
	names := b.key(e.Key())
	last := names[len(names)-1]
	table = b.descend(table, names[:len(names)-1], dotted)
	if table.get(last.text) != nil {
		b.duplicate(table, last, names[0].at)
		return
	}
	table.put(last, b.value(e.Value(), b.valueOffset(e, outer)))
}

// valueOffset returns the offset of the value of a key. go-toml does not know it for a list,
// so valueOffset looks after the key.
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

// value returns a value of go-toml as a node. outer is its offset if go-toml does not know it.
func (b *builder) value(v *unstable.Node, outer int) *node {
	n := &node{at: outer, text: string(v.Data), from: assigned}
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
			b.keyValue(n, it.Node(), n.at)
		}
	default:
		n.kind = aDate
	}
	return n
}

// descend follows the names of a header, or of a key if from is dotted, and creates missing
// tables. In a list of tables it takes the last one, as TOML says.
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

// duplicate reports that a table already contains the key.
func (b *builder) duplicate(table *node, key name, at int) {
	line := b.report.place(table.get(key.text).at).line
	b.report.wrongAt(at, join(table.path, key.text), fmt.Sprintf("it is defined already, on line %d", line),
		"a name or a key is defined once")
}
