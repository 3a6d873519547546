package leaky

// Queue is a FIFO that is bounded in items and in bytes of memory. The owner of an
// element allocates it. So an element enters, leaves or gives up in constant time
// and without allocation. The zero Queue is empty and has no room. A Queue is not
// safe for concurrent use.
type Queue[T any] struct {
	MaxItems int   // bounds Len
	MaxBytes int64 // bounds Bytes

	head, tail *Element[T]
	items      int
	bytes      int64
}

// Element is one place in a Queue. An Element is in one Queue at a time.
type Element[T any] struct {
	Value *T    // what waits here
	Bytes int64 // memory that Value holds while it waits, which is not its payload
	Items int   // how many items Value stands for; 0: one

	queue      *Queue[T] // nil: it is in none
	next, prev *Element[T]
}

// Len returns how many items wait.
func (q *Queue[T]) Len() int { return q.items }

// Bytes returns how much memory the waiting elements hold.
func (q *Queue[T]) Bytes() int64 { return q.bytes }

// HasRoom reports whether one more element fits within the bounds. The element
// stands for so many items, which hold so many bytes. An empty queue has room for
// one item of any size, unless MaxItems is 0: else an item that is larger than the
// whole queue would never get through.
func (q *Queue[T]) HasRoom(items int, bytes int64) bool {
	items = max(items, 1)
	if items > q.MaxItems-q.items {
		return false
	}
	return q.items == 0 && items == 1 || bytes <= q.MaxBytes-q.bytes
}

// Push appends e, even if the queue has no room: its owner decides who may wait.
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

// PushFront is Push for an element that goes before all others.
func (q *Queue[T]) PushFront(e *Element[T]) {
	e.queue, e.prev, e.next = q, nil, q.head
	if q.head == nil {
		q.tail = e
	} else {
		q.head.prev = e
	}
	q.head = e
	q.items += max(e.Items, 1)
	q.bytes += e.Bytes
}

// Front returns the element that has waited longest; nil if none waits.
func (q *Queue[T]) Front() *Element[T] { return q.head }

// Back returns the element behind all others; nil if none waits.
func (q *Queue[T]) Back() *Element[T] { return q.tail }

// Next returns the element behind e; nil at the end.
func (e *Element[T]) Next() *Element[T] { return e.next }

// Remove takes e out, wherever it stands, and reports whether it was in this queue.
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
