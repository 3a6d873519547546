package tc

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// markFilter is the filter that takes the mark of a packet for its class, if the mark is one
// of ours. It is a program of classic BPF, since the kernel may lack cls_fw, which does
// the same, and CONFIG_CLS_U32_MARK.
type markFilter struct{}

// markProgram returns the mark as the class if the upper half of the mark is that of our
// handle. Otherwise it returns 0, which means no match. jt and jf are how many instructions
// to skip if a comparison is true or false.
var markProgram = []struct {
	code   uint16
	jt, jf uint8
	k      uint32
}{
	{unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, 0, 0, loadMark},
	{unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, 0, 0, 0xffff0000},
	{unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, 0, 2, uint32(htbHandle)}, // if false, to the last one
	{unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, 0, 0, loadMark},
	{unix.BPF_RET | unix.BPF_A, 0, 0, 0},
	{unix.BPF_RET | unix.BPF_K, 0, 0, 0},
}

// loadMark is an address behind every packet. BPF_LD from there loads the mark: it is SKF_AD_OFF +
// SKF_AD_MARK (include/uapi/linux/filter.h).
const loadMark = 0xfffff000 + 20

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
	fmt.Fprintf(&b, "bytecode '%d", len(markProgram)) // quoted, as for a shell
	for _, op := range markProgram {
		fmt.Fprintf(&b, ",%d %d %d %d", op.code, op.jt, op.jf, op.k)
	}
	b.WriteString("'")
	return b.String()
}

// parseBPF reads the parameters of a bpf filter from a dump. The only bpf filter of ours is
// markFilter; any other program is opaque.
func parseBPF(options []byte) Params {
	own := parseAttrs(markFilter{}.options())
	if m := parseAttrs(options); string(m[bpfOps]) == string(own[bpfOps]) {
		return markFilter{}
	}
	return opaque{string(options)}
}
