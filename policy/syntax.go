package policy

import (
	"bytes"
	"errors"

	"github.com/pelletier/go-toml/v2/unstable"
)

const tomlForm = `a policy is TOML: [section], key = "value", # comment`

// maxSyntaxErrors is how many are reported before the rest of the file is
// given up as not being TOML at all.
const maxSyntaxErrors = 20

// parseTree returns the file as a tree, and whether all of it is TOML. After a
// mistake it goes on with the next line, so that one answer holds them all.
func parseNodes(r *report, data []byte) (root *node, whole bool) {
	root = &node{kind: aTable, from: header}
	b := &builder{report: r, data: data, root: root, section: root}
	last := -1 // offset of the last syntax error
	for found := 0; b.base < len(data) && found < maxSyntaxErrors; {
		err := b.expressions()
		if err == nil {
			break
		}
		found++
		offset := b.base + err.offset
		if offset != last {
			r.wrongAt(offset, "syntax", err.message, tomlForm)
		}
		b.resume(offset, offset == last)
		last = offset
	}
	return root, last < 0
}

type syntaxError struct {
	offset  int
	message string
}

// expressions takes in what the parser understands, up to its first mistake.
func (b *builder) expressions() *syntaxError {
	var p unstable.Parser
	p.Reset(b.data[b.base:])
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table:
			b.openTable(b.key(e.Key()))
		case unstable.ArrayTable:
			b.openItem(b.key(e.Key()))
		case unstable.KeyValue:
			b.keyValue(b.section, e, 0)
		}
	}
	var err *unstable.ParserError
	if !errors.As(p.Error(), &err) {
		return nil
	}
	return &syntaxError{int(p.Range(err.Highlight).Offset), err.Message}
}

// resume sets the builder behind a syntax error. A section's header is not
// passed over when the mistake began on a line before it, as in a list that
// was not closed; again says that this has been tried.
func (b *builder) resume(offset int, again bool) {
	start := bytes.LastIndexByte(b.data[:offset], '\n') + 1
	header := bytes.HasPrefix(bytes.TrimLeft(b.data[start:], " \t"), []byte("["))
	if header && !again {
		b.base = start
		return
	}
	if header {
		b.section = &node{kind: aTable} // nobody knows what its keys belong to
	}
	b.base = len(b.data)
	if n := bytes.IndexByte(b.data[offset:], '\n'); n >= 0 {
		b.base = offset + n + 1
	}
}
