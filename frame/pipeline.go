package frame

// A pipeline holds the requests of HTTP that have no answer yet, oldest first: those that
// were sent, and those that were refused and whose refusal is not written. A request leaves
// it when its answer ends.
type pipeline struct {
	requests [maxPipelined]pending
	tags     [maxPipelined]uint16
	first, n int
	inFlight int // requests that were sent
}

// maxPipelined bounds a pipeline. If it is full, no further request is read.
const maxPipelined = 64

// pending says what is remembered of a request until its answer ends.
type pending uint8

const (
	isHEAD pending = 1 << iota
	isCONNECT
	asksUpgrade
	isRefused
	isClose // the connection ends after the refusal
)

// leaves is set in a request that may end HTTP on this connection.
const leaves = isCONNECT | asksUpgrade

func (p *pipeline) push(r pending, tag uint16) {
	if p.n == maxPipelined {
		panic("frame: a request was sent or refused without room for it")
	}
	last := (p.first + p.n) % maxPipelined
	p.requests[last], p.tags[last] = r, tag
	p.n++
	if r&isRefused == 0 {
		p.inFlight++
	}
}

// front returns the oldest request, whose answer is next, and its tag; zeros if there is none.
func (p *pipeline) front() (r pending, tag uint16) {
	if p.n == 0 {
		return 0, 0
	}
	return p.requests[p.first], p.tags[p.first]
}

// closeLast notes that the connection ends after the refusal of the newest request. It returns false if
// that was written before.
func (p *pipeline) closeLast() bool {
	if p.n == 0 {
		return false
	}
	p.requests[(p.first+p.n-1)%maxPipelined] |= isClose
	return true
}

// pop removes the oldest request.
func (p *pipeline) pop() {
	if p.requests[p.first]&isRefused == 0 {
		p.inFlight--
	}
	p.first = (p.first + 1) % maxPipelined
	p.n--
}
