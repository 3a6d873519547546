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
	"shaper/unit"
)

// A Transport is an http.RoundTripper whose requests wait for their class. It paces them
// as it hands them to Base, which may have to connect first. The context of a request
// ends its wait, and so does the Timeout of the http.Client.
//
// If the server answers 429, or 503 with Retry-After, the caller gets that answer, and the
// class pauses: for as long as Retry-After says, else for a second at first; at most for
// its on_throttle.max, a minute by default. Whatever waits goes on in order after that.
//
// A request is in flight until Base fails or the caller has read the body of the answer
// to its end or closed it; in_flight of the class bounds how many are. Each redirect is a
// request. What Base sends again by itself, as http.Transport does if an idle connection
// turns out to be closed, is not another one.
type Transport struct {
	Base  http.RoundTripper // nil: http.DefaultTransport
	Class *shaper.Class     // of messages; nil limits nothing
}

// NewTransport returns a Transport on http.DefaultTransport, which sends requests at a
// rate of messages.
func NewTransport(rate string, burst int) (*Transport, error) {
	class, err := NewClass(rate, burst)
	if err != nil {
		return nil, err
	}
	t := &Transport{Class: class}
	if err := t.check(); err != nil {
		return nil, err
	}
	return t, nil
}

// RoundTrip implements http.RoundTripper. It returns a *shaper.RefusedError if the class
// refuses the request, and the error of the context if that ends the wait.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.Class == nil {
		return t.base().RoundTrip(req)
	}
	r, err := t.send(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := t.base().RoundTrip(req)
	if err != nil {
		r.end(false)
		return nil, err
	}
	r.answered(resp)
	return resp, nil
}

// CloseIdleConnections closes those of Base, as http.Client.CloseIdleConnections asks it to.
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

// check returns an error if the class would never limit.
func (t *Transport) check() error {
	switch {
	case !t.Class.Counts(unit.Messages):
		return neverLimits(t.Class, "a request is a message", "20 messages/s")
	case t.Class.Policy().Per.By == policy.ByConnection:
		return fmt.Errorf("client: %q has a bucket for each connection, and a request is none: it would never limit", t.Class.Name())
	}
	return nil
}

// send waits until the request may leave.
func (t *Transport) send(req *http.Request) (*request, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	address, _ := netip.ParseAddr(req.URL.Hostname()) // a name is not looked up
	who := policy.Conn{Destination: netip.AddrPortFrom(address, 0)}
	r := &request{class: t.Class.Join(time.Now(), who)}
	err := shaper.NewRequestWaiter(r.class).Wait(req.Context(), shaper.Cost{Messages: 1}, false)
	if err != nil {
		r.class.Quit(time.Now())
		return nil, err
	}
	return r, nil
}

// A request is one in flight.
type request struct {
	class *shaper.Class
	ended sync.Once
}

// answered tells the class what the head of the answer says about the rate. The request
// ends with the body.
func (r *request) answered(resp *http.Response) {
	throttle := frame.HTTPThrottle(resp.StatusCode, []byte(resp.Header.Get("Retry-After")))
	if throttle.Limited {
		now := time.Now()
		r.class.Throttled(now, throttle.Pause(now), strconv.Itoa(resp.StatusCode))
	}
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		r.end(!throttle.Limited) // after 101 the body is a connection, and no answer
		return
	}
	resp.Body = &answer{ReadCloser: resp.Body, request: r, ok: !throttle.Limited}
}

// end says that the request has its answer, or gets none. ok says that it was not too
// fast.
func (r *request) end(ok bool) {
	r.ended.Do(func() {
		now := time.Now()
		r.class.Answered(now, ok)
		r.class.Quit(now)
	})
}

// An answer is the body of an answer. Its end is that of the request.
type answer struct {
	io.ReadCloser
	request *request
	ok      bool
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
