package sock

// Train is datagrams in a row that are read, or leave, as one, as the kernel hands over what
// was sent with UDP_SEGMENT: all of one size but the last, which may be smaller. One datagram
// is a train, too.
type Train struct {
	Payload []byte
	Size    int // of each datagram; 0: there is only one
}

// Bounds of what the kernel sends as one (UDP_SEGMENT in udp(7)).
const (
	MaxTrain    = 65_000 // bytes
	maxSegments = 64
)

// Cut returns as many of the first datagrams as are at most so many bytes, but at least
// one; and the rest.
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

// Packets returns how many datagrams the train is.
func (t Train) Packets() int64 {
	if t.Size > 0 && len(t.Payload) > t.Size {
		return int64((len(t.Payload) + t.Size - 1) / t.Size)
	}
	return 1
}

// datagram returns the size of the first datagram.
func (t Train) datagram() int {
	if t.Size > 0 {
		return min(t.Size, len(t.Payload))
	}
	return len(t.Payload)
}
