package tc

import (
	"fmt"
	"strings"
)

// markFilter is the filter that takes the mark of a packet for its class, if the mark is one
// of ours. It is a program of classic BPF, since the kernel may lack cls_fw, which does
// the same, and CONFIG_CLS_U32_MARK.
type markFilter struct{}

// markProgram loads the mark. If the upper half is that of our handle, it returns the mark
// as the class; otherwise it returns 0, no match.
var markProgram = []struct {
	code   uint16
	jt, jf uint8
	k      uint32
}{
	{0x20, 0, 0, skfAdMark}, {0x54, 0, 0, 0xffff0000}, {0x15, 0, 2, uint32(htbHandle)},
	{0x20, 0, 0, skfAdMark}, {0x16, 0, 0, 0}, {0x06, 0, 0, 0},
}

const skfAdMark = 0xfffff000 + 20 // SKF_AD_OFF + SKF_AD_MARK

// The attributes of cls_bpf (include/uapi/linux/pkt_cls.h).
const (
	bpfOpsLen = 4
	bpfOps    = 5
)

func (markFilter) options() []byte {
	var ops []byte
	for _, op := range markProgram {
		ops = native.AppendUint16(ops, op.code)
		ops = append(ops, op.jt, op.jf)
		ops = native.AppendUint32(ops, op.k)
	}
	return attr(attr(nil, bpfOpsLen, native.AppendUint16(nil, uint16(len(markProgram)))), bpfOps, ops)
}

func (markFilter) words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bytecode %d", len(markProgram))
	for _, op := range markProgram {
		fmt.Fprintf(&b, ",%d %d %d %d", op.code, op.jt, op.jf, op.k)
	}
	words := b.String()
	return strings.Replace(words, "bytecode ", "bytecode '", 1) + "'"
}

// parseBPF reads the parameters of a bpf filter from a dump. Only the filter of marks is
// ours.
func parseBPF(options []byte) Params {
	own := parseAttrs(markFilter{}.options())
	if m := parseAttrs(options); string(m[bpfOps]) == string(own[bpfOps]) {
		return markFilter{}
	}
	return opaque{string(options)}
}
