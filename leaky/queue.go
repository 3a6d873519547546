package leaky

// Queue is a FIFO bounded in items and in bytes of memory. It holds elements
// that their owners allocate, so that to enter, to leave and to give up
// waiting take constant time and no allocation. The zero Queue is empty and
// has no room. It is not safe for concurrent use.
type Queue[T any] struct {
	MaxItems int   // bound of the items that wait
	MaxBytes int64 // bound of Bytes

	head, tail *Element[T]
	items      int
	bytes      int64
}

// Element is one place in a Queue. An Element stands in one Queue at a time.
type Element[T any] struct {
	Value *T    // whose place it is
	Bytes int64 // memory that Value holds while it waits, not payload
	Items int   // that it stands for; 0: one

	queue      *Queue[T]
	next, prev *Element[T]
}

// Len returns how many items wait.
func (q *Queue[T]) Len() int { return q.items }

// Bytes returns how much memory the waiting elements hold.
func (q *Queue[T]) Bytes() int64 { return q.bytes }

// HasRoom reports whether one more element, which stands for so many items that
// hold so many bytes, fits within the bounds. An empty queue has room for one
// item of any size, unless it may hold none: what is larger than the whole queue
// must not be stuck for ever.
func (q *Queue[T]) HasRoom(items int, bytes int64) bool {
	items = max(items, 1)
	if items > q.MaxItems-q.items {
		return false
	}
	return q.items == 0 && items == 1 || bytes <= q.MaxBytes-q.bytes
}

// Push appends e, whether or not the queue has room: who may wait is its
// owner's decision.
func (q *Queue[T]) Push(e *Element[T]) {
	e.queue, e.prev, e.next = q, q.tail, nil
	if q.tail == nil {
		q.head = e
	} else {
		q.tail.next = e
	}
	q.tail = e
	q.items += max(e.Items, 1)
	q.bytes += e.Bytes
}

// Front returns the element that has waited longest, nil when none waits.
func (q *Queue[T]) Front() *Element[T] { return q.head }

// Next returns the element behind e, nil at the end.
func (e *Element[T]) Next() *Element[T] { return e.next }

// Remove takes e out, wherever it stands, and reports whether it stood here.
func (q *Queue[T]) Remove(e *Element[T]) bool {
	if e.queue != q {
		return false
	}
	if e.prev == nil {
		q.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.queue, e.next, e.prev = nil, nil, nil
	q.items -= max(e.Items, 1)
	q.bytes -= e.Bytes
	return true
}
