package policy

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A node is a value of the file with its position. go-toml's Unmarshal would
// do without, but it stops at the first mistake, matches keys whatever their
// case, takes an integer for a string, forgets where a value stood, and looks
// for duplicates in a time that grows with the square of the keys.
type node struct {
	kind nodeKind
	at   int    // offset in the file; of a table, its name in the header
	text string // of a scalar: the string, or the number in decimal
	path string // of a table: its dotted key

	items []*node // of a list

	keys  []entry // of a table, in file order
	index map[string]*node
	from  origin
}

// origin is what made a node. TOML has it decide what else may add to it.
type origin uint8

const (
	mentioned origin = iota // [a.b] makes a, which may have its own header later
	header                  // [a] and [[a]]
	dotted                  // a.b = 1 makes a: only more of these add to it, and headers of tables in it
	assigned                // a = ...: it is complete
)

type entry struct {
	name  string
	at    int
	value *node
}

// nodeKind is the type of a value, as an error names it.
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

// maxPath bounds the paths of tables; without it, a file of nested tables
// would need memory by the square of its size.
const maxPath = 256

// get returns the value of a key, or nil.
func (n *node) get(name string) *node { return n.index[name] }

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

// A builder makes the tree of a file out of go-toml's expressions.
type builder struct {
	report  *report
	data    []byte
	base    int // offset of the part that the parser has
	root    *node
	section *node // what [the last header] opened
}

// key returns the parts of a dotted key.
func (b *builder) key(it unstable.Iterator) (names []name) {
	for it.Next() {
		n := it.Node()
		names = append(names, name{string(n.Data), b.base + int(n.Raw.Offset)})
	}
	return names
}

// openTable makes [a.b.c] the section that keys go to.
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
		b.section.at = names[0].at // [a.b] came first and only mentioned it
	}
	b.section.from = header
}

// openItem makes a new item of [[a.b.c]] the section that keys go to.
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

// keyValue puts `a.b = value` into a table.
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

// valueOffset returns where the value of a key begins. go-toml does not say so
// of a list, hence the search behind the key.
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
	return len(b.data) - len(rest)
}

// value turns a value of go-toml into ours. outer is its offset where go-toml
// does not know it.
func (b *builder) value(v *unstable.Node, outer int) *node {
	n := &node{at: outer, text: string(v.Data), from: assigned}
	if v.Raw.Length > 0 {
		n.at = b.base + int(v.Raw.Offset)
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

// descend follows the names of a header, or with from dotted of a key, and
// makes the tables that are missing. Of a list of tables it takes the last one,
// as TOML does.
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

// duplicate reports that a table has the key already.
func (b *builder) duplicate(table *node, key name, at int) {
	line, _ := b.report.position(table.get(key.text).at)
	b.report.wrongAt(at, join(table.path, key.text), fmt.Sprintf("it is defined already, on line %d", line),
		"a name or a key is defined once")
}
