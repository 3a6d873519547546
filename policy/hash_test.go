package policy

import (
	"bufio"
	"bytes"
	"net/textproto"
	"path"
	"regexp"
	"strings"
	"testing"
)

// FuzzPathKey compares patterns of paths with path.Match. Two paths have the same key only if they
// are equal, or if the pattern matches neither.
func FuzzPathKey(f *testing.F) {
	for _, c := range [][3]string{
		{"/v1/*/x", "/v1/a/x", "/v1/b/x"}, {"/v1/*/x", "/v1//x", "/v1/a/b/x"}, {"/*", "/", ""}, {"/a*b", "/ab", "/aab"}, {"/a*a", "/a", "/aa"},
		{"/", "/", "//"}, {"/*/", "/x/", "/x"}, {"/v1", "/v1", "/v1/"}, {"/v1/" + strings.Repeat("x", 80), "/v1/" + strings.Repeat("x", 80), "/v1/" + strings.Repeat("x", 81)},
	} {
		f.Add(c[0], c[1], c[2])
	}
	f.Fuzz(func(t *testing.T, pattern, one, other string) {
		if checkPathPattern(pattern) != nil || strings.ContainsAny(pattern, `?[\`) {
			return
		}
		for _, text := range []string{one, other} {
			if want, err := path.Match(pattern, text); err != nil || matchPath(pattern, []byte(text)) != want {
				t.Fatalf("%q is like %q: want %v, error %v", text, pattern, want, err)
			}
		}
		likeOne, likeOther := matchPath(pattern, []byte(one)), matchPath(pattern, []byte(other))
		wantSame := one == other || !likeOne && !likeOther
		per := Per{{By: ByPath, Name: pattern}}
		if same := keyOfPath(&per, one) == keyOfPath(&per, other); same != wantSame {
			t.Fatalf("pattern %q: %q and %q have the same key: %v, want %v", pattern, one, other, same, wantSame)
		}
	})
}

func keyOfPath(per *Per, text string) Key { return per.Key(&Conn{}, &Message{Path: []byte(text)}) }

// FuzzHeaderKey compares the value of a field with what package textproto reads. Two messages have
// the same key only if the field has the same value in both; one that is empty counts as none.
func FuzzHeaderKey(f *testing.F) {
	for _, c := range [][3]string{
		{"X-Api-Key", "X-Api-Key: a\r\nHost: x\r\n", "x-api-key:a\r\n"}, {"A", "AA: b\r\nA: c\r\n", "A:\r\n"}, {"A", "B: A: x\r\nA: \t x \r\n", "a: x\r\na: y\r\n"},
		{"Authorization", "Authorization: Bearer " + strings.Repeat("k", 100) + "\r\n", "Authorization: Bearer " + strings.Repeat("k", 101) + "\r\n"}, {"A", "", "A"},
	} {
		f.Add(c[0], c[1], c[2])
	}
	f.Fuzz(func(t *testing.T, name, one, other string) {
		if !headerName.MatchString(name) {
			return
		}
		per := Per{{By: ByHeader, Name: name}}
		messages := [2]Message{{Headers: []byte(one)}, {Headers: []byte(other)}}
		var values [2][]byte
		for i := range messages {
			values[i] = messages[i].Header(name)
			text := string(messages[i].Headers)
			fields, err := textproto.NewReader(bufio.NewReader(strings.NewReader(text + "\r\n"))).ReadMIMEHeader()
			if err == nil && headerLines.MatchString(text) && fields.Get(name) != string(values[i]) {
				t.Fatalf("%q has the %s %q, want %q", text, name, values[i], fields.Get(name))
			}
		}
		wantSame := bytes.Equal(values[0], values[1])
		if same := per.Key(&Conn{}, &messages[0]) == per.Key(&Conn{}, &messages[1]); same != wantSame {
			t.Fatalf("%s %q and %q have the same key: %v, want %v", name, values[0], values[1], same, wantSame)
		}
	})
}

var (
	headerName  = regexp.MustCompile(`^[-A-Za-z0-9]+$`)
	headerLines = regexp.MustCompile(`^([-A-Za-z0-9]+:[^\r\n]*\r\n)*$`)
)
