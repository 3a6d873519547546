package sock

import "golang.org/x/sys/unix"

// Preceded is an end with bytes that are read before those of its peer.
type Preceded struct {
	End
	first []byte // not read yet
	err   error  // which a read of the end has returned, for the next Read; nil: none
}

// Precede returns an end that reads first, and then what end reads. It keeps first.
func Precede(end End, first []byte) *Preceded { return &Preceded{End: end, first: first} }

// Beneath returns the end that was given to Precede, and other ends as they are.
func Beneath(end End) End {
	if after, ok := end.(*Preceded); ok {
		return after.End
	}
	return end
}

// Read implements End. If there is room after the first bytes, it also reads what the end has: the
// poller may report nothing more of that.
func (p *Preceded) Read(into []byte) (n int, err error) {
	if len(p.first) == 0 {
		if err, p.err = p.err, nil; err != nil {
			return 0, err
		}
		return p.End.Read(into)
	}
	n = copy(into, p.first)
	if p.first = p.first[n:]; n < len(into) {
		var more int
		if more, err = p.End.Read(into[n:]); err == nil {
			n += more
		} else if err != unix.EAGAIN && err != unix.EINTR {
			p.err = err
		}
	}
	return n, nil
}

// Peek implements End.
func (p *Preceded) Peek(into []byte) (n int, err error) {
	if len(p.first) == 0 && p.err == nil {
		return p.End.Peek(into)
	}
	return copy(into, p.first), p.err
}

// AtEnd implements End.
func (p *Preceded) AtEnd() bool { return len(p.first) == 0 && p.err == nil && p.End.AtEnd() }

// fill implements End.
func (p *Preceded) fill(to *pipe, n int) (int, error) {
	if len(p.first) > 0 || p.err != nil {
		return 0, unix.EINVAL
	}
	return p.End.fill(to, n)
}
