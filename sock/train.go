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

// Cut divides the train. head has as many datagrams as fit into limit bytes and as the kernel
// sends as one, but at least one. rest has the others; it is the zero Train if there are none.
func (t Train) Cut(limit int) (head, rest Train) {
	if t.Size == 0 {
		return t, Train{}
	}
	fit := min(limit, MaxTrain) / t.Size
	end := t.Size * min(max(fit, 1), maxSegments)
	if end >= len(t.Payload) {
		return t, Train{}
	}
	return Train{t.Payload[:end], t.Size}, Train{t.Payload[end:], t.Size}
}

// Packets returns how many datagrams the train has.
func (t Train) Packets() int64 {
	if t.Size > 0 && len(t.Payload) > t.Size {
		return int64((len(t.Payload) + t.Size - 1) / t.Size)
	}
	return 1
}

// firstSize returns the size of the first datagram, in bytes.
func (t Train) firstSize() int {
	if t.Size > 0 {
		return min(t.Size, len(t.Payload))
	}
	return len(t.Payload)
}
