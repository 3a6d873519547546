package tc

import (
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
)

var native = binary.NativeEndian

// attr appends an attribute to a message.
func attr(to []byte, number int, value []byte) []byte {
	return append(to, nl.NewRtAttr(number, value).Serialize()...)
}

func attr32(to []byte, number int, value uint32) []byte {
	return attr(to, number, native.AppendUint32(nil, value))
}

func attr64(to []byte, number int, value uint64) []byte {
	return attr(to, number, native.AppendUint64(nil, value))
}

// attrs are the values of the attributes of a message, by number.
type attrs map[int][]byte

// parseAttrs reads attributes. Malformed ones give none.
func parseAttrs(b []byte) attrs {
	m := attrs{}
	all, err := nl.ParseRouteAttr(b)
	if err != nil {
		return m
	}
	for _, a := range all {
		m[int(a.Attr.Type&nl.NLA_TYPE_MASK)] = a.Value
	}
	return m
}

// u32 returns a number; 0 if it is missing.
func (m attrs) u32(number int) uint32 { return at32(m[number], 0) }

func (m attrs) u64(number int) uint64 {
	if len(m[number]) < 8 {
		return 0
	}
	return native.Uint64(m[number])
}

// sized returns a structure of a given size. What is missing is 0.
func (m attrs) sized(number, size int) []byte {
	b := make([]byte, size)
	copy(b, m[number])
	return b
}

// text returns a string without the zero byte at its end.
func (m attrs) text(number int) string {
	if b := m[number]; len(b) > 0 {
		return string(b[:len(b)-1])
	}
	return ""
}

// at32 returns the number at an offset; 0 if b is too short.
func at32(b []byte, offset int) uint32 {
	if len(b) < offset+4 {
		return 0
	}
	return native.Uint32(b[offset:])
}
