package top

import (
	"slices"
	"testing"
)

func TestDecode(t *testing.T) {
	for in, want := range map[string][]key{
		"j/q": {'j', '/', 'q'}, "\x1b[A\x1bOB": {keyUp, keyDown}, "\x1b[5~\x1b[6~\x1b[1~\x1b[4~": {keyPageUp, keyPageDown, keyHome, keyEnd},
		"\r": {keyEnter}, "\x7f\b": {keyBackspace, keyBackspace}, "\x03\x1a": {keyInterrupt, keySuspend}, "\x1b": {keyEsc}, "\x1b\x1b[A": {keyEsc, keyUp},
		"é日": {'é', '日'}, "\x1b[1;5Cx\x1b[?1;2cy": {'x', 'y'}, "\xff\x00\x1fx": {'x'}, "\x1bq": {keyEsc, 'q'}, "\x1b[": nil, "\xe6\x97": nil,
	} {
		if got, rest := decode([]byte(in), true); !slices.Equal(got, want) || len(rest) > 0 {
			t.Errorf("%q: %v and %q, want %v", in, got, rest, want)
		}
		if got := piecewise(in); !slices.Equal(got, want) {
			t.Errorf("%q, byte by byte: %v, want %v", in, got, want)
		}
	}
}

// piecewise decodes what comes byte by byte.
func piecewise(in string) (all []key) {
	var keys []key
	var rest []byte
	for i := range len(in) {
		keys, rest = decode(append(rest, in[i]), false)
		all = append(all, keys...)
	}
	keys, _ = decode(rest, true)
	return append(all, keys...)
}

func FuzzDecode(f *testing.F) {
	f.Add("\x1b[A\xffj\x1b[1;2")
	f.Fuzz(func(t *testing.T, in string) {
		if _, rest := decode([]byte(in), true); len(rest) > 0 {
			t.Errorf("%q: %q is left", in, rest)
		}
	})
}
