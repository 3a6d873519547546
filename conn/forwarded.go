package conn

import (
	"time"

	"golang.org/x/sys/unix"

	"shaper/frame"
	"shaper/sock"
)

// A client that asks by a URL sends one request to the server of that URL. What it sends after that may be
// for another server, with a login for the proxy, and a server need not end the connection though it was
// asked to. So shaper cuts there: after the request, and after its answer.

// oneMessage is an end of which a session reads one message of HTTP. After a request, it throws away what
// else the client sends. After an answer, it says that the stream has ended. Nobody peeks at it, and
// its bytes go through no pipes. The lock of the session guards it.
type oneMessage struct {
	sock.End
	side *side         // whose end it is
	link frame.Link    // of the request and its answer
	scan frame.Scanner // of the message; nil: it is no message, and passes as it is

	raw     []byte // was read from the end, and needs more to be understood
	ready   []byte // was understood, and is to be read
	over    bool   // the message has ended
	surplus int    // bytes that were thrown away
	err     error  // which a read of the end has returned, for the next Read; nil: none
	wrong   error  // why an answer is no message; nil: it may be one
}

// oneRequest returns the end of a client whose request has this head. It fails if nobody can tell where the
// request ends.
func oneRequest(client *side, head []byte) (*oneMessage, error) {
	link := frame.NewLink(frame.Settings{Protocol: frame.HTTP})
	o := &oneMessage{End: client.end, side: client, link: link, scan: link.Up(), ready: head}
	_, event, err := o.scan.Next(head)
	if err != nil {
		return nil, err
	}
	link.Sent(o.scan.Message(), time.Time{})
	o.note(event)
	return o, nil
}

// oneAnswer returns the end of the upstream that answers a request.
func oneAnswer(upstream *side, link frame.Link) *oneMessage {
	return &oneMessage{End: upstream.end, side: upstream, link: link, scan: link.Down()}
}

func (o *oneMessage) isAnswer() bool { return o.side == &o.side.session.upstream }

// Read implements sock.End. It reads what there is room for: the poller may report nothing more of that.
func (o *oneMessage) Read(into []byte) (n int, err error) {
	if err, o.err = o.err, nil; err != nil {
		return 0, err
	}
	for n < len(into) {
		k, err := o.next(into[n:])
		switch {
		case k > 0:
			n += k
		case n == 0:
			return 0, err
		case err == unix.EINTR:
		default:
			if err != unix.EAGAIN {
				o.err, o.side.Ends = err, true // no event follows, and the session has to read again
			}
			return n, nil
		}
	}
	return n, nil
}

// AtEnd implements sock.End.
func (o *oneMessage) AtEnd() bool {
	return len(o.raw)+len(o.ready) == 0 && o.err == nil && o.End.AtEnd()
}

// next is Read, but may read less than there is.
func (o *oneMessage) next(into []byte) (n int, err error) {
	for {
		switch {
		case len(o.ready) > 0:
			n = copy(into, o.ready)
			o.ready = o.ready[n:]
			return n, nil
		case o.over && o.isAnswer():
			return 0, nil
		case o.over:
			return o.discard(into)
		case o.scan == nil:
			return o.End.Read(into)
		case len(o.raw) == 0 && o.scan.Opaque() > 0:
			return o.skip(into)
		}
		n, err = o.End.Read(into)
		if n > 0 {
			o.raw = append(o.raw, into[:n]...)
			err = o.understand()
		} else if err == nil { // the end, within something that is not whole
			o.pass()
		}
		if err != nil || n == 0 && len(o.ready) == 0 {
			return 0, err
		}
	}
}

// skip reads bytes of a body.
func (o *oneMessage) skip(into []byte) (n int, err error) {
	n, err = o.End.Read(into[:min(int64(len(into)), o.scan.Opaque())])
	if n > 0 {
		o.note(o.scan.Skip(int64(n)))
	}
	return n, err
}

// understand makes as much of raw ready as it can. A request that it cannot understand is an error,
// since it may contain another request. An answer that it cannot understand passes as it is.
func (o *oneMessage) understand() error {
	for len(o.raw) > 0 && !o.over {
		n, event, err := o.scan.Next(o.raw)
		switch {
		case err != nil && o.isAnswer():
			o.wrong = err
			o.pass()
			return nil
		case err != nil:
			o.side.unframed(err)
			return err
		case n == 0:
			return nil
		}
		if isHead := event == frame.Head || event == frame.Whole; isHead && o.isAnswer() && o.scan.Message().Answers {
			o.ready = frame.AppendClosing(o.ready, o.raw[:n])
		} else {
			o.ready = append(o.ready, o.raw[:n]...)
		}
		o.raw = o.raw[n:]
		o.note(event)
	}
	o.raw = nil
	return nil
}

// pass makes raw ready as it is, and all that comes after it.
func (o *oneMessage) pass() { o.ready, o.raw, o.scan = append(o.ready, o.raw...), nil, nil }

// note notes that the message ends with an event.
func (o *oneMessage) note(event frame.Event) {
	switch {
	case event != frame.End && event != frame.Whole:
	case !o.isAnswer():
		o.over = true
	case o.scan.Message().Answers: // others announce an answer (100 Continue)
		o.over, o.side.Ends = true, true
	}
}

// discard throws away what a client sends after its request, though not for ever, and not after an answer whose
// end nobody can tell. If nobody read that, the end of the client would not be seen either.
func (o *oneMessage) discard(into []byte) (int, error) {
	for o.surplus <= frame.MaxSwallow {
		n, err := o.End.Read(into)
		if n <= 0 {
			return 0, err
		}
		o.surplus += n
		if err := o.wrongAnswer(); err != nil {
			o.side.session.upstream.unframed(err)
			return 0, err
		}
	}
	return 0, unix.ECONNRESET
}

// wrongAnswer returns why the answer to this request is no message; nil if it may be one, or has ended. Until
// then its client may take it for whole and send the next request, to which no answer would come.
func (o *oneMessage) wrongAnswer() error {
	t := o.side.session
	if answer, is := t.upstream.end.(*oneMessage); is && !t.down.ended {
		return answer.wrong
	}
	return nil
}
