package sock

// Train is one datagram, or several in a row that are read or sent as one (UDP_GRO and
// UDP_SEGMENT in udp(7)). All have the same size, but the last may be smaller.
type Train struct {
	Payload []byte
	Size    int // of each datagram, in bytes; 0: there is only one
}

// The most that the kernel sends as one (UDP_SEGMENT in udp(7)).
const (
	MaxTrain    = 65_000 // bytes
	maxSegments = 64     // datagrams
)

// Cut divides the train: head has as many datagrams as fit into most bytes, but at least
// one. rest is the zero Train if head has them all.
func (t Train) Cut(most int) (head, rest Train) {
	if t.Size == 0 {
		return t, Train{}
	}
	n := t.Size * min(max(min(most, MaxTrain)/t.Size, 1), maxSegments)
	if n >= len(t.Payload) {
		return t, Train{}
	}
	head, rest = Train{t.Payload[:n], t.Size}, Train{t.Payload[n:], t.Size}
	return head, rest
}

// Packets returns how many datagrams the train has.
func (t Train) Packets() int64 {
	if t.Size > 0 && len(t.Payload) > t.Size {
		return int64((len(t.Payload) + t.Size - 1) / t.Size)
	}
	return 1
}

// datagram returns the size of the first datagram, in bytes.
func (t Train) datagram() int {
	if t.Size > 0 {
		return min(t.Size, len(t.Payload))
	}
	return len(t.Payload)
}
