// Package unit holds the quantities of a policy: rates, sizes, counts, durations and
// shares. Each parses what an operator writes and prints it in the same form. Printing and
// parsing are exact, and no computation overflows or drifts.
//
// Each file calls only those below it:
//
//	like      a measured rate, printed like the limit beside it
//	rate      Rate: its arithmetic and its text
//	remedy    what to write instead of a text that is not a rate
//	parse     from text to a rate and its period
//	duration  Duration
//	size      Size, Count and Percent
//	kind      what a rate counts
//	decimal   exact fractions, and numbers with a unit
package unit

import "fmt"

// Kind is what a rate or a count counts. The zero Kind is not valid.
type Kind uint8

const (
	Bytes       Kind = iota + 1 // payload in the proxy; in the kernel, what its qdiscs count
	Packets                     // datagrams
	Messages                    // whole messages of a framed protocol
	Connections                 // new connections
	Tokens                      // what messages cost that say so themselves, such as those of a language model
	Items                       // anything that waits in a queue; only for a Count
)

// kindNames holds the long and the short name of each Kind but Bytes.
var kindNames = [...]struct{ long, short string }{
	Packets:     {"packets", "pkt"},
	Messages:    {"messages", "msg"},
	Connections: {"connections", "conn"},
	Tokens:      {"tokens", "tok"},
	Items:       {"items", "item"},
}

// OfMessages reports whether only messages cost what a rate of this Kind counts.
func (k Kind) OfMessages() bool { return k == Messages || k == Tokens }

// String returns the long name: "bytes", "packets", "messages", "connections", "tokens"
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

// kindOf returns the Kind that a word names: Packets for "packets", "packet" or "pkt". It
// returns false for other words, and for "bytes": bytes have units of their own, such as KB.
func kindOf(word string) (Kind, bool) {
	for k := Packets; int(k) < len(kindNames); k++ {
		long, short := kindNames[k].long, kindNames[k].short
		if word == long || word == long[:len(long)-1] || word == short {
			return k, true
		}
	}
	return 0, false
}
