package exchange

import (
	"time"

	"shaper/frame"
	"shaper/shaper"
	"shaper/stats"
)

// found is the message that a lane has found last. At first its bytes are at the front of the input: all of them, or
// those of its head, which its body follows. The methods that read or change bytes may be called only until these bytes leave
// the input; the other methods, and the fields, stay of use after that.
type found struct {
	in       *input
	message  frame.Message
	size     int      // bytes of it that are there: all, or those of its head
	whole    bool     // they are all
	tag      uint16   // of its class
	tokens   int32    // what it costs in tokens; message.Cost is in messages
	said     said     // by its body
	peek     *peek    // reads the body; nil: the cost does not stand there, or the message has entered its class
	follower Follower // is told what becomes of it; nil: nobody
	heeded   bool     // its class knows what it says about the rate
	open     bool     // it is a request or an answer, and its body has not ended
	ends     bool     // it ends with the bytes that pass, so the link does not count its request any more
	lost     bool     // it counts as dropped or refused already
}

// said is what the body of a message has said that the message costs, in each unit in which a class has
// asked for it; 0: nothing.
type said struct{ messages, tokens int64 }

// cost returns what the message costs.
func (f *found) cost() shaper.Cost {
	return shaper.Cost{Messages: f.message.Cost, Tokens: f.tokens, Bytes: int64(f.size)}
}

// bytes returns the bytes of the message, or of its head.
func (f *found) bytes() []byte { return f.in.bytes()[:f.size] }

// body returns the bytes behind those: of the body and what follows it, as far as they are there.
func (f *found) body() []byte { return f.in.bytes()[f.size:] }

// consume removes the message, or its head, from the input.
func (f *found) consume() { f.in.consume(f.size) }

// insert inserts a text before byte at of the head.
func (f *found) insert(at int, text string) {
	f.in.insert(at, text)
	f.size += len(text)
}

// redirect rewrites a response, so that it does not lead the client past the proxy.
func (f *found) redirect(o *frame.Origin) {
	n := len(o.Redirect(f.bytes()))
	f.in.consume(f.size - n)
	f.size = n
}

// reread reads once more what rules see of a request: the input may have got other memory. What the scanner alone
// knows stays.
func (f *found) reread(link frame.Link) {
	m := &f.message
	ends, repeatable := m.Close, m.Repeatable
	link.Read(f.bytes(), m)
	m.Close, m.Repeatable = ends, repeatable
}

// drop tells the follower of the message, if there is one, that the message is dropped. It also counts the
// bytes that its class loses. If they are the rest of a message that counts already, the number of messages stays.
func (f *found) drop(now time.Time, class *shaper.Class, reason stats.Reason, bytes int) {
	if f.follower != nil {
		f.follower.Dropped(now, reason)
	}
	f.follower = nil
	if class == nil || bytes == 0 {
		return
	}
	items := int64(1)
	if f.open && f.lost {
		items = 0
	}
	f.lost = true
	class.Tally().Dropped(reason, items, int64(bytes))
}
