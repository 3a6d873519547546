package top

import "unicode/utf8"

// key is a key that was pressed: a character, or one of those below.
type key rune

// The keys that are no characters. Their values are no characters of Unicode.
const (
	keyEnter key = utf8.MaxRune + 1 + iota
	keyEsc
	keyBackspace
	keyUp
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyInterrupt // Ctrl-C
	keySuspend   // Ctrl-Z
	keyClear     // Ctrl-U
	keyRedraw    // Ctrl-L
)

// controls are the keys that send a control character.
var controls = map[byte]key{
	'\r': keyEnter, '\n': keyEnter, 0x7f: keyBackspace, '\b': keyBackspace, 0x03: keyInterrupt, 0x1a: keySuspend,
	0x15: keyClear, 0x0c: keyRedraw, 0x06: keyPageDown, 0x02: keyPageUp, 0x0e: keyDown, 0x10: keyUp,
}

// sequences are what follows ESC for other keys (xterm, VT220, the Linux console).
var sequences = map[string]key{
	"[A": keyUp, "OA": keyUp, "[B": keyDown, "OB": keyDown, "[5~": keyPageUp, "[6~": keyPageDown,
	"[H": keyHome, "OH": keyHome, "[1~": keyHome, "[7~": keyHome, "[F": keyEnd, "OF": keyEnd, "[4~": keyEnd, "[8~": keyEnd,
	"OM": keyEnter,
}

// decode returns the keys that a terminal has sent, and the rest, which may be the beginning of one.
// If final, nothing follows soon: then ESC is a key. It skips what it does not know.
func decode(in []byte, final bool) (keys []key, rest []byte) {
	for len(in) > 0 {
		k, n := next(in, final)
		if n == 0 {
			return keys, in
		}
		if k != 0 {
			keys = append(keys, k)
		}
		in = in[n:]
	}
	return keys, nil
}

// next returns the first key, 0 if it is not known, and its length, 0 if its end may still come.
func next(in []byte, final bool) (key, int) {
	c := in[0]
	switch {
	case c == 0x1b:
		return escaped(in, final)
	case c < ' ' || c == 0x7f:
		return controls[c], 1
	case !utf8.FullRune(in) && !final:
		return 0, 0
	}
	r, n := utf8.DecodeRune(in)
	if r == utf8.RuneError {
		return 0, n
	}
	return key(r), n
}

// escaped is next for what begins with ESC: a control sequence ends with a byte from @ to ~, and one
// of SS3 ("ESC O") has one more.
func escaped(in []byte, final bool) (key, int) {
	switch {
	case len(in) == 1 && final:
		return keyEsc, 1
	case len(in) == 1:
		return 0, 0
	case in[1] != '[' && in[1] != 'O':
		return keyEsc, 1 // ESC, and then another key
	}
	for i := 2; i < len(in); i++ {
		if '@' <= in[i] && in[i] <= '~' {
			return sequences[string(in[1:i+1])], i + 1
		}
	}
	if final {
		return 0, len(in)
	}
	return 0, 0
}
