package exchange

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"shaper/policy"
)

// firstNumber returns the first number at a path in a document of JSON, rounded up. The
// document may be cut short behind it.
func firstNumber(document []byte, path string) (n int64, ok bool) {
	eachValue(document, path, func(value string) bool {
		n, ok = policy.Number(value)
		return !ok
	})
	return n, ok
}

// eachValue calls found for each text, number and word at a path in a document of JSON, until
// found returns false; see policy.Path. It reports whether these are all: the document was read to
// its end, and each item that the path names has a value.
func eachValue(document []byte, path string, found func(value string) (goOn bool)) (all bool) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	w := walker{Decoder: d, found: found}
	return w.value(strings.Split(path, ".")) && !w.missed
}

// A walker walks through a document of JSON. Its methods return false if the walk is over.
type walker struct {
	*json.Decoder
	found  func(value string) bool
	missed bool // the path has led to something without a value
}

// value walks through the next value. path leads from there to what is looked for.
func (w *walker) value(path []string) bool {
	token, err := w.Token()
	if err != nil {
		return false
	}
	switch open := token; {
	case open == json.Delim('{') && len(path) > 0:
		return w.members(path)
	case open == json.Delim('[') && len(path) > 0:
		return w.items(path)
	case open == json.Delim('{'), open == json.Delim('['):
		w.missed = true
		return w.skipRest()
	case len(path) > 0:
		w.missed = true
		return true
	}
	switch v := token.(type) {
	case string:
		return w.found(v)
	case json.Number:
		return w.found(v.String())
	case bool:
		return w.found(strconv.FormatBool(v))
	}
	return w.found("null")
}

// members walks through an object behind its brace.
func (w *walker) members(path []string) bool {
	has := false
	for w.More() {
		name, err := w.Token()
		leads := name == path[0]
		if has = has || leads; err != nil || !w.member(leads, path[1:]) {
			return false
		}
	}
	w.missed = w.missed || !has
	_, err := w.Token()
	return err == nil
}

// items walks through an array behind its bracket.
func (w *walker) items(path []string) bool {
	has := false
	for i := 0; w.More(); i++ {
		leads := path[0] == "*" || path[0] == strconv.Itoa(i)
		if has = has || leads; !w.member(leads, path[1:]) {
			return false
		}
	}
	w.missed = w.missed || !has
	_, err := w.Token()
	return err == nil
}

// member walks through the next value if the path leads there, and past it if not.
func (w *walker) member(leads bool, path []string) bool {
	if leads {
		return w.value(path)
	}
	token, err := w.Token()
	if err != nil {
		return false
	}
	if token == json.Delim('{') || token == json.Delim('[') {
		return w.skipRest()
	}
	return true
}

// skipRest walks past the rest of an object or an array.
func (w *walker) skipRest() bool {
	for depth := 1; depth > 0; {
		token, err := w.Token()
		if err != nil {
			return false
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return true
}
