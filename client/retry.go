package client

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"shaper/frame"
)

// A Retry says how a Transport repeats a request that has failed. The zero Retry repeats none.
//
// It repeats only what is safe:
//
//   - a request that the server has refused because it came too fast (429, or 503 with
//     Retry-After), whatever its method: the server has not carried it out;
//   - after an error of the connection, or 502, 503 and 504, a request that may be carried out
//     twice: GET, HEAD, OPTIONS, TRACE, PUT and DELETE (RFC 9110, section 9.2.2), and any with a
//     header Idempotency-Key or X-Idempotency-Key.
//
// If the request has a body, it must be possible to read it again (http.Request.GetBody).
//
// A Transport first waits for as long as Retry-After says, if the answer has it, and then for a random
// time ("full jitter"), so that programs that fail together do not come back together. That time is
// at most Base before the first repetition, twice that before the second, and so on up to Longest.
// Then the request waits for its turn in the class. The caller gets the last answer at once if
// Retry-After is longer than Longest, or if the context of the request would end first.
type Retry struct {
	Max     int           // how often a request is repeated; 0: never
	Base    time.Duration // 0: 500 ms
	Longest time.Duration // 0: a minute
}

// The waits of a Retry that names none.
const (
	retryBase    = 500 * time.Millisecond
	retryLongest = time.Minute
)

// next returns how long to wait before the request is repeated. resp or err is what came of an attempt,
// and attempt is its number, from 0. next returns false if the request is not repeated.
func (r Retry) next(attempt int, req *http.Request, resp *http.Response, err error) (wait time.Duration, again bool) {
	if attempt >= r.Max || !isSafe(req, resp, err) {
		return 0, false
	}
	base, longest := orElse(r.Base, retryBase), orElse(r.Longest, retryLongest)
	most := longest
	if base <= longest>>attempt {
		most = base << attempt
	}
	asked := retryAfter(resp)
	if wait = asked + rand.N(most+1); asked > longest || !lasts(req.Context(), wait) {
		return 0, false
	}
	return wait, true
}

func orElse(d, other time.Duration) time.Duration {
	if d <= 0 {
		return other
	}
	return d
}

// retryAfter returns how long an answer asks to wait; 0 if it does not. resp may be nil.
func retryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	return frame.HTTPThrottle(http.StatusTooManyRequests, []byte(resp.Header.Get("Retry-After"))).Pause(time.Now())
}

// isSafe reports whether a request may be sent again after an answer or an error.
func isSafe(req *http.Request, resp *http.Response, err error) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil || req.Context().Err() != nil {
		return false
	}
	if err != nil {
		return isIdempotent(req)
	}
	if frame.HTTPThrottle(resp.StatusCode, []byte(resp.Header.Get("Retry-After"))).Limited {
		return true
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return isIdempotent(req)
	}
	return false
}

// isIdempotent reports whether a request may be carried out twice.
func isIdempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// lasts reports whether a context goes on for longer than a wait.
func lasts(ctx context.Context, wait time.Duration) bool {
	end, bounded := ctx.Deadline()
	return !bounded || time.Until(end) > wait
}

// again returns the request with a body that has not been read.
func again(req *http.Request) (*http.Request, error) {
	next := req.Clone(req.Context())
	if req.GetBody == nil {
		return next, nil
	}
	body, err := req.GetBody()
	next.Body = body
	return next, err
}

// pause waits. It returns the error of the context if that ends before.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mostDrained is how much of an answer is read that is not the last one, so that its connection
// can be used again.
const mostDrained = 64 << 10

// discard ends an answer that the caller does not get. resp may be nil.
func discard(resp *http.Response) {
	if resp != nil && resp.Body != nil {
		io.CopyN(io.Discard, resp.Body, mostDrained)
		resp.Body.Close()
	}
}
