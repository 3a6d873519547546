package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"
)

const tomlForm = `a policy is TOML: [section], key = "value", # comment`

// maxSyntaxErrors is how many syntax errors are reported. After so many the file is probably
// not TOML, and the rest of it is not read.
const maxSyntaxErrors = 20

// parseNodes returns the root table of the file that the report got last, and whether the whole
// file is TOML. After a syntax error it continues with the next line, so that it reports all of
// them.
func parseNodes(r *report, data []byte) (root *node, whole bool) {
	root = &node{kind: aTable, from: header}
	b := &builder{report: r, data: data, start: r.last().start(), root: root, section: root}
	if isUTF16(data) {
		r.wrongAt(b.start, "syntax", "the file is in UTF-16", "save it in UTF-8")
		return root, false
	}
	last := -1 // offset of the last syntax error
	for found := 0; b.base < len(data) && found < maxSyntaxErrors; {
		err := b.expressions()
		if err == nil {
			break
		}
		found++
		offset := b.base + err.offset
		if offset != last {
			r.wrongAt(b.start+offset, "syntax", err.message, syntaxForm(data[offset:]))
		}
		b.resume(offset, offset == last)
		last = offset
	}
	return root, last < 0
}

// syntaxForm says what is allowed where the rest of a file is not TOML.
func syntaxForm(rest []byte) string {
	if len(rest) > 1 && rest[0] == ':' && isName(string(rest[1])) { // not "key: value"
		return `a key with a colon needs quotes: "header:X-Api-Key" = "abc"`
	}
	return tomlForm
}

// A syntaxError is an error of go-toml; the offset is relative to builder.base.
type syntaxError struct {
	offset  int
	message string
}

// expressions adds everything from base up to the first syntax error.
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
			b.addKey(b.section, e, 0)
		}
	}
	var err *unstable.ParserError
	if !errors.As(p.Error(), &err) {
		return nil
	}
	offset := int(p.Range(err.Highlight).Offset)
	return &syntaxError{offset, ofCharacter(err.Message, b.data[b.base+offset:])}
}

// ofCharacter returns the message of go-toml about the character that data begins with. If that has
// several bytes, such as a typographic quotation mark, go-toml names the first of them.
func ofCharacter(message string, data []byte) string {
	c, size := utf8.DecodeRune(data)
	if size < 2 {
		return message
	}
	return strings.Replace(message, fmt.Sprintf("%#U", data[0]), fmt.Sprintf("%#U", c), 1)
}

// resume sets base to the line after that of a syntax error. If the error is on the line of a
// header, the mistake may be before it, for example a list that is not closed. Then base is
// set to the header, unless again says that this did not help.
func (b *builder) resume(offset int, again bool) {
	start := bytes.LastIndexByte(b.data[:offset], '\n') + 1
	header := bytes.HasPrefix(bytes.TrimLeft(b.data[start:], " \t"), []byte("["))
	if header && !again {
		b.base = start
		return
	}
	if header {
		b.section = &node{kind: aTable} // the table of the next keys is not known
	}
	b.base = len(b.data)
	if n := bytes.IndexByte(b.data[offset:], '\n'); n >= 0 {
		b.base = offset + n + 1
	}
}

// withoutBOM returns a file without the byte order mark that some editors write. They do not
// count it as a column, and our errors do not either.
func withoutBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\ufeff")) }

// isUTF16 reports whether a file begins with the byte order mark of UTF-16.
func isUTF16(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
}
