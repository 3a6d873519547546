package policy

import "strings"

// A scanner splits the text of a file that is TOML into lines, as Format prints them. The parser
// of go-toml, which says whether it is TOML, does not say where its lines and spaces are.
type scanner struct{ rest string }

// lines returns all lines.
func (s *scanner) lines() (all []line) {
	for {
		s.spaces()
		var l line
		switch c := s.peek(); c {
		case 0:
			return all
		case '[':
			l.header = s.header()
		case '#', '\n':
		default:
			l.key = s.key()
			s.take(1) // the =
			l.value = s.value("")
		}
		s.spaces()
		l.comment = s.comment()
		s.take(1) // the newline
		all = append(all, l)
	}
}

// peek returns the next byte; 0 at the end.
func (s *scanner) peek() byte {
	if s.rest == "" {
		return 0
	}
	return s.rest[0]
}

// take returns the next n bytes, or fewer at the end.
func (s *scanner) take(n int) string {
	n = min(n, len(s.rest))
	text := s.rest[:n]
	s.rest = s.rest[n:]
	return text
}

// takeUntil returns what comes before the first of some bytes, without spaces at its end.
func (s *scanner) takeUntil(any string) string {
	n := strings.IndexAny(s.rest, any)
	if n < 0 {
		n = len(s.rest)
	}
	return strings.TrimRight(s.take(n), " \t\r")
}

func (s *scanner) spaces() {
	s.take(len(s.rest) - len(strings.TrimLeft(s.rest, " \t\r")))
}

// comment returns the comment that comes next, or "".
func (s *scanner) comment() string {
	if s.peek() != '#' {
		return ""
	}
	return s.takeUntil("\n")
}

// header returns the header of a section.
func (s *scanner) header() string {
	brackets := 1
	if strings.HasPrefix(s.rest, "[[") {
		brackets = 2
	}
	s.take(brackets)
	text := strings.Repeat("[", brackets) + s.key()
	return text + s.take(brackets)
}

// key returns a key with all its parts, and leaves what follows.
func (s *scanner) key() (text string) {
	for {
		s.spaces()
		switch c := s.peek(); c {
		case '"', '\'':
			part := s.quoted()
			if name := part[1 : len(part)-1]; isName(name) {
				part = name
			}
			text += part
		case '.':
			text += s.take(1)
		case '=', ']', 0:
			return text
		default:
			text += s.takeUntil(" \t.=]")
		}
	}
}

// value returns a value. Each of its lines but the first begins with indent.
func (s *scanner) value(indent string) string {
	s.spaces()
	switch s.peek() {
	case '"', '\'':
		return s.quoted()
	case '[':
		return s.list(indent, "[", "]", s.value)
	case '{':
		return s.list(indent, "{ ", " }", s.pair)
	}
	return s.takeUntil(",]}#\n")
}

// quoted returns a string. It is in double quotes if it needs no escapes there.
func (s *scanner) quoted() string {
	quote := s.rest[:1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s.rest, triple) {
		return s.multiline(triple)
	}
	end := 1
	for s.rest[end:end+1] != quote {
		if s.rest[end] == '\\' && quote == `"` {
			end++
		}
		end++
	}
	text := s.take(end + 1)
	if inner := text[1:end]; quote == "'" && !strings.ContainsAny(inner, `"\`) {
		return `"` + inner + `"`
	}
	return text
}

// multiline returns a string of several lines as it is.
func (s *scanner) multiline(quotes string) string {
	end := 3
	for !strings.HasPrefix(s.rest[end:], quotes) {
		if s.rest[end] == '\\' && quotes == `"""` {
			end++
		}
		end++
	}
	for end += 3; strings.HasPrefix(s.rest[end:], quotes[:1]); end++ {
		// Up to two quotes may stand before those that end the string.
	}
	return s.take(end)
}

// list returns a list, or an inline table. It is in one line if it was, else in the same rows.
// item reads one of its items.
func (s *scanner) list(indent, opening, closing string, item func(indent string) string) string {
	const step = "    "
	s.take(1)
	rows, several := s.rows(indent+step, item)
	switch {
	case len(rows) == 0:
		return opening[:1] + closing[len(closing)-1:]
	case !several:
		return opening + strings.Join(rows[0].values, ", ") + closing
	}
	var b strings.Builder
	b.WriteString(opening[:1] + "\n")
	for _, r := range rows {
		b.WriteString(indent + step + r.String() + "\n")
	}
	return b.String() + indent + closing[len(closing)-1:]
}

// A row is what stands in a line of a list.
type row struct {
	values  []string
	comment string
}

// String prints a row with a comma after each value.
func (r row) String() string {
	if len(r.values) == 0 {
		return r.comment
	}
	text := strings.Join(r.values, ", ") + ","
	if r.comment != "" {
		text += "  " + r.comment
	}
	return text
}

// rows reads a list up to its end, and reports whether it has several lines.
func (s *scanner) rows(indent string, item func(string) string) (rows []row, several bool) {
	var r row
	for {
		s.spaces()
		switch s.peek() {
		case ',':
			s.take(1)
			continue
		case '#':
			r.comment = s.comment()
			continue
		case '\n', ']', '}', 0:
			if r.values != nil || r.comment != "" {
				rows = append(rows, r)
			}
			if r = (row{}); s.take(1) != "\n" {
				return rows, several
			}
			several = true
			continue
		}
		r.values = append(r.values, item(indent))
	}
}

// pair returns a key of an inline table and its value.
func (s *scanner) pair(indent string) string {
	key := s.key()
	s.take(1) // the =
	return key + " = " + s.value(indent)
}
