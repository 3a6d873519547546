package tc

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
)

// The handle of a u32 filter has 12 bits of the table, 8 of the bucket in the table and 12
// of the place in the bucket, by which filters are in order. The kernel numbers the root
// table of a list; here its number is 0.
const u32Places = 1<<12 - 1

// u32Node returns the handle of a u32 filter, or of a table if bucket and place are 0.
func u32Node(table, bucket, place uint32) Handle { return Handle(table<<20 | bucket<<12 | place) }

// table returns the number of the table that a u32 filter is in.
func (h Handle) table() uint32 { return uint32(h) >> 20 }

// inTable returns the handle of the same bucket and place in another table.
func (h Handle) inTable(table uint32) Handle { return Handle(table<<20) | h&(1<<20-1) }

// u32Handle prints the handle of a u32 filter: "800:2:7", or "::7" in the root table.
type u32Handle Handle

func (h u32Handle) String() string {
	part := func(n uint32) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%x", n)
	}
	return part(uint32(h)>>20) + ":" + part(uint32(h)>>12&0xff) + ":" + part(uint32(h)&0xfff)
}

// match tests the bits in Mask of a word of the packet against Value. Offset is in bytes
// from the network header. Value and Mask are in the order of the wire, big-endian.
type match struct {
	Value, Mask uint32
	Offset      int32
}

// mostMatches is enough for a rule with two IPv6 addresses, protocol and ports.
const mostMatches = 12

// selector matches a packet if all its matches do.
type selector struct {
	n       int
	matches [mostMatches]match
}

func (s *selector) add(offset int32, value, mask uint32) {
	s.matches[s.n] = match{value & mask, mask, offset}
	s.n++
}

func (s selector) all() []match { return s.matches[:s.n] }

// u32Key holds the parameters of a u32 filter. A packet that matches belongs to Class; or
// the kernel goes on in the table Link, in the bucket that a byte of the packet selects; or
// the packet is moved to another device.
type u32Key struct {
	Selector   selector
	Class      Handle // 0: none
	Link       uint32 // a table; 0: none
	HashMask   uint32
	HashOffset int16
	Redirect   string // a device that the packet is moved to; "": none
	redirect   uint32 // its index; set only to send it to the kernel
}

// u32Table holds the parameters of a table: the number of its buckets.
type u32Table struct{ Divisor uint32 }

func (t u32Table) options() []byte { return attr32(nil, nl.TCA_U32_DIVISOR, t.Divisor) }
func (t u32Table) words() string   { return fmt.Sprintf("divisor %d", t.Divisor) }

func (k u32Key) options() []byte {
	b := attr(nil, nl.TCA_U32_SEL, k.sel())
	if k.Class != 0 {
		b = attr32(b, nl.TCA_U32_CLASSID, uint32(k.Class))
	}
	if k.Link != 0 {
		b = attr32(b, nl.TCA_U32_LINK, k.Link<<20)
	}
	if k.Redirect != "" {
		b = attr(b, nl.TCA_U32_ACT, mirred(k.redirect))
	}
	return b
}

// sel returns the struct tc_u32_sel with its keys (include/uapi/linux/pkt_cls.h). It does
// not use nl.TcU32Sel, which has the words of a packet in the byte order of the machine.
func (k u32Key) sel() []byte {
	b := make([]byte, 16, 16+16*k.Selector.n)
	if k.Link == 0 {
		b[0] = nl.TC_U32_TERMINAL
	}
	b[2] = byte(k.Selector.n)
	native.PutUint16(b[10:], uint16(k.HashOffset))
	binary.BigEndian.PutUint32(b[12:], k.HashMask)
	for _, m := range k.Selector.all() {
		b = binary.BigEndian.AppendUint32(b, m.Mask)
		b = binary.BigEndian.AppendUint32(b, m.Value)
		b = native.AppendUint32(b, uint32(m.Offset))
		b = native.AppendUint32(b, 0)
	}
	return b
}

func (k u32Key) words() string {
	var w []string
	for _, m := range k.Selector.all() {
		w = append(w, fmt.Sprintf("match u32 0x%08x 0x%08x at %d", m.Value, m.Mask, m.Offset))
	}
	if k.HashMask != 0 {
		w = append(w, fmt.Sprintf("hashkey mask 0x%08x at %d", k.HashMask, k.HashOffset))
	}
	if k.Link != 0 {
		w = append(w, fmt.Sprintf("link %x:", k.Link))
	}
	if k.Class != 0 {
		w = append(w, "flowid "+k.Class.String())
	}
	if k.Redirect != "" {
		w = append(w, "action mirred egress redirect dev "+k.Redirect)
	}
	return strings.Join(w, " ")
}

// parseU32 reads the parameters of a u32 filter or table from a dump. device returns the
// name of a device by its index.
func parseU32(options []byte, device func(uint32) string) Params {
	m := parseAttrs(options)
	if divisor := m.u32(nl.TCA_U32_DIVISOR); divisor != 0 {
		return u32Table{divisor}
	}
	sel := m[nl.TCA_U32_SEL]
	if len(sel) < 16 || int(sel[2]) > mostMatches || len(sel) < 16+16*int(sel[2]) {
		return opaque{string(options)}
	}
	k := u32Key{
		Class: Handle(m.u32(nl.TCA_U32_CLASSID)), Link: m.u32(nl.TCA_U32_LINK) >> 20,
		HashMask: binary.BigEndian.Uint32(sel[12:]), HashOffset: int16(native.Uint16(sel[10:])),
	}
	for b := sel[16 : 16+16*int(sel[2])]; len(b) > 0; b = b[16:] {
		k.Selector.add(int32(native.Uint32(b[8:])), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b))
	}
	if index := mirredTo(m[nl.TCA_U32_ACT]); index != 0 {
		k.Redirect = device(index)
	}
	if k.doesMore(sel, m) {
		return opaque{string(options)}
	}
	return k
}

// doesMore reports whether a filter that was read as k does more than k says, because others
// have changed it.
func (k u32Key) doesMore(sel []byte, m attrs) bool {
	for _, number := range []int{nl.TCA_U32_POLICE, nl.TCA_U32_INDEV, nl.TCA_U32_MARK} {
		if _, there := m[number]; there {
			return true
		}
	}
	actions, most := m[nl.TCA_U32_ACT], 0
	if k.Redirect != "" {
		most = 1
	}
	return len(parseAttrs(actions)) > most || string(sel) != string(k.sel())
}

// The attributes and values of act_mirred (include/uapi/linux/tc_act/tc_mirred.h).
const (
	actKind, actOptions = 1, 2
	mirredParms         = 2
	mirredEgressRedir   = 1
	actStolen           = 4
)

// mirred returns the action that moves a packet to another device. It does not use
// nl.TcMirred, which is two bytes longer than the kernel's structure.
func mirred(index uint32) []byte {
	parms := make([]byte, 28)
	native.PutUint32(parms[8:], actStolen)
	native.PutUint32(parms[20:], mirredEgressRedir)
	native.PutUint32(parms[24:], index)
	action := attr(nil, actKind, []byte("mirred\x00"))
	action = attr(action, actOptions, attr(nil, mirredParms, parms))
	return attr(nil, 1, action)
}

// mirredTo returns the index of the device that actions move packets to; 0 if there is none.
func mirredTo(actions []byte) uint32 {
	parms := parseAttrs(parseAttrs(parseAttrs(actions)[1])[actOptions])[mirredParms]
	if at32(parms, 20) != mirredEgressRedir {
		return 0
	}
	return at32(parms, 24)
}
