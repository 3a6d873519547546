package client

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
)

// A Transport is an http.RoundTripper whose requests wait for their class. It paces the
// moments at which it hands them to Base, which may have to connect first. The context of a
// request ends its wait, and so does the Timeout of the http.Client.
//
// If the server answers 429, or 503 with Retry-After, the class pauses, and the caller gets that
// answer unless Retry sends the request again. The pause is what Retry-After says, or without it a second at first. It is
// at most on_throttle.max of the class, by default a minute. After it the waiting requests
// go on in order.
//
// A request is in flight until Base fails or the caller reads the body of the answer to its
// end or closes it. in_flight of the class bounds how many are. Each redirect is a request.
// A request that Base repeats by itself, as http.Transport does if an idle connection turns
// out to be closed, counts once.
//
// A request costs what the cost of the class says (policy.Cost), or else one message. A Transport reads
// no bodies: if the class, or one above it, has a cost in JSON, settle, throttled_by or a rate in other units,
// each request is an error.
//
// Several goroutines may use a Transport at the same time. Its fields may not change while
// it is in use.
type Transport struct {
	Base  http.RoundTripper // nil: http.DefaultTransport
	Class *shaper.Class     // of messages or tokens; nil limits nothing
	Retry Retry             // what to do about requests that do not succeed
}

// NewTransport returns a Transport that sends requests through http.DefaultTransport at a
// rate of messages. A burst of 0 is none.
func NewTransport(rate string, burst int) (*Transport, error) {
	class, err := NewClass(rate, burst)
	if err != nil {
		return nil, err
	}
	return newTransport(class)
}

// newTransport returns a Transport of a class, or an error if the class would never limit it.
func newTransport(class *shaper.Class) (*Transport, error) {
	t := &Transport{Class: class}
	if err := t.check(); err != nil {
		return nil, err
	}
	return t, nil
}

// RoundTrip implements http.RoundTripper. It returns a *shaper.RefusedError if the class
// refuses the request, and the error of the context if that ends the wait.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	for attempt, next := 0, req; ; attempt++ {
		resp, sent, err := t.attempt(next)
		if !sent {
			return nil, err
		}
		wait, repeat := t.Retry.next(attempt, req, resp, err)
		if !repeat {
			return resp, err
		}
		discard(resp)
		if err := pause(req.Context(), wait); err != nil {
			return nil, err
		}
		if next, err = again(req); err != nil {
			return nil, err
		}
	}
}

// attempt sends a request once, in its turn. sent is false if that never came.
func (t *Transport) attempt(req *http.Request) (resp *http.Response, sent bool, err error) {
	if t.Class == nil {
		resp, err = t.base().RoundTrip(req)
		return resp, true, err
	}
	r, err := t.send(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, false, err
	}
	if resp, err = t.base().RoundTrip(req); err != nil {
		r.end(false)
		return nil, true, err
	}
	r.answered(resp)
	return resp, true, nil
}

// CloseIdleConnections closes the idle connections of Base, if it can. http.Client calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// check returns an error if the class would not limit requests as its policy says.
func (t *Transport) check() error {
	if err := checkPrices(t.Class); err != nil {
		return err
	}
	switch {
	case !t.Class.Policy().Per.Fits(policy.HTTP):
		return fmt.Errorf("client: %q has a bucket per %v, and a request has none", t.Class.Name(), t.Class.Policy().Per)
	case t.Class.Policy().Quieted.ByRecipient():
		return fmt.Errorf("client: %q has quiet hours for some recipients, and a request names none", t.Class.Name())
	case t.Class.Policy().Per.Has(policy.ByConnection):
		return fmt.Errorf("client: %q has a bucket for each connection, and a request is not a connection: it would never limit", t.Class.Name())
	}
	return nil
}

// send waits until the request may leave, and returns it in flight.
func (t *Transport) send(req *http.Request) (*request, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	address, _ := netip.ParseAddr(req.URL.Hostname()) // the zero address for a name
	who := policy.Conn{Destination: netip.AddrPortFrom(address, 0)}
	r := &request{class: t.Class.Join(time.Now(), who)}
	if joined := r.class; joined.Messages().HaveKeys() { // the class has a bucket for each key
		r.key = joined.Messages().Key(&who, seen(req))
		r.class = joined.JoinKey(time.Now(), r.key)
		joined.Quit(time.Now())
	}
	err := shaper.NewRequestWaiter(r.class).Wait(req.Context(), costOf(t.Class, req), false)
	if err != nil {
		r.class.QuitKey(time.Now(), r.key)
		return nil, err
	}
	return r, nil
}

// A request is a request in flight.
type request struct {
	class *shaper.Class // its bucket, if Transport.Class has several
	key   shaper.Key    // with which it has joined class; zero: with none
	ended sync.Once
}

// answered tells the class whether the answer says that requests come too fast. It makes
// the end of the body the end of the request.
func (r *request) answered(resp *http.Response) {
	throttle := frame.HTTPThrottle(resp.StatusCode, []byte(resp.Header.Get("Retry-After")))
	if throttle.Limited {
		now := time.Now()
		r.class.Provider().Throttled(now, throttle.Pause(now), strconv.Itoa(resp.StatusCode))
	}
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		r.end(!throttle.Limited) // after 101 the body is a connection, not an answer
		return
	}
	resp.Body = &answer{ReadCloser: resp.Body, request: r, ok: !throttle.Limited}
}

// end ends the request once: its answer has ended, or there is none. ok is false if the
// answer says "too fast", or if there is none.
func (r *request) end(ok bool) {
	r.ended.Do(func() {
		now := time.Now()
		r.class.Provider().Answered(now, ok)
		r.class.QuitKey(now, r.key)
	})
}

// An answer is the body of an HTTP response. When it ends, the request ends.
type answer struct {
	io.ReadCloser
	request *request
	ok      bool // the server did not say "too fast"
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		a.request.end(a.ok)
	}
	return n, err
}

// Close implements io.Closer.
func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	a.request.end(a.ok)
	return err
}
