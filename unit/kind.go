// Package unit holds the quantities of a policy: rates, sizes, counts,
// durations and shares. Each is parsed from and printed as an operator writes
// it, round-trips exactly, and computes without overflow or drift.
package unit

import "fmt"

// Kind is what a rate or a count counts. The zero Kind is no kind at all.
type Kind uint8

const (
	Bytes       Kind = iota + 1 // payload bytes in the proxy, what the qdisc counts in the kernel
	Packets                     // datagrams
	Messages                    // whole messages of a framed protocol
	Connections                 // new connections
	Items                       // whatever waits in a queue; no rate counts them
)

// kindNames holds for each counted Kind its long name and its short form.
var kindNames = [...]struct{ long, short string }{
	Packets:     {"packets", "pkt"},
	Messages:    {"messages", "msg"},
	Connections: {"connections", "conn"},
	Items:       {"items", "item"},
}

// String returns the long name: "bytes", "packets", "messages", "connections"
// or "items".
func (k Kind) String() string {
	switch {
	case k == Bytes:
		return "bytes"
	case k >= Packets && int(k) < len(kindNames):
		return kindNames[k].long
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// kindOf returns the counted Kind that a word names: long, singular or short.
func kindOf(word string) (Kind, bool) {
	for k := Packets; int(k) < len(kindNames); k++ {
		long, short := kindNames[k].long, kindNames[k].short
		if word == long || word == long[:len(long)-1] || word == short {
			return k, true
		}
	}
	return 0, false
}
