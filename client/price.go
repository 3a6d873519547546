package client

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net"
	"net/http"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// checkPrices returns an error if a class, or one above it, would charge a request nothing, or by what
// a Transport does not read.
func checkPrices(class *shaper.Class) error {
	m := class.Messages()
	for c := class; c != nil; c = c.Parent() {
		kind, reads := c.Rate().Kind(), c.Reads()
		switch cost := m.Cost(kind); {
		case !kind.OfMessages():
			return neverLimits(c, "a request is a message", "20 messages/s")
		case cost == nil && kind == unit.Tokens:
			return neverLimits(c, "nothing says how many a request costs", "20 messages/s")
		case cost != nil && cost.ReadsBody():
			return fmt.Errorf(`client: %q reads in the body of a request what it costs, and a Transport does not; it takes a cost that is an integer or has header or bytes`, c.Name())
		case cost != nil && cost.Segments:
			return fmt.Errorf("client: %q counts the parts of an SMS, and a request has none", c.Name())
		case m.SettledBy(kind) != nil:
			return fmt.Errorf("client: %q has settle, and a Transport does not read what an answer says of the cost", c.Name())
		case reads != nil && reads.ThrottledBy != nil:
			return fmt.Errorf(`client: %q has throttled_by, and a Transport knows "too fast" by the status alone`, c.Name())
		}
	}
	return nil
}

// costOf returns what a request costs in a class. It is what the proxy charges, if checkPrices has no
// error.
func costOf(class *shaper.Class, req *http.Request) shaper.Cost {
	cost := shaper.Cost{Messages: 1}
	if c := class.Messages().Cost(unit.Messages); c != nil {
		cost.Messages = unitsOf(c, req)
	}
	if c := class.Messages().Cost(unit.Tokens); c != nil {
		cost.Tokens = int32(min(unitsOf(c, req), math.MaxInt32))
	}
	return cost
}

// unitsOf returns what a request costs in one unit.
func unitsOf(c *policy.Cost, req *http.Request) int64 {
	isEmpty := req.Body == nil || req.Body == http.NoBody
	switch {
	case c.Header != "":
		return c.Of(policy.Number(string(seen(req).Header(c.Header))))
	case c.Bytes > 0 && isEmpty:
		return c.InBytes(0)
	case c.Bytes > 0 && req.ContentLength > 0: // 0 says here that nobody knows
		return c.InBytes(req.ContentLength)
	}
	return c.Of(0, false)
}

// seen returns what keys see of a request.
func seen(req *http.Request) *policy.Message {
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	path, headers := req.URL.EscapedPath(), new(bytes.Buffer)
	if path == "" {
		path = "/"
	}
	fmt.Fprintf(headers, "Host: %s\r\n", cmp.Or(req.Host, req.URL.Host)) // what Go keeps apart
	if req.ContentLength > 0 {
		fmt.Fprintf(headers, "Content-Length: %d\r\n", req.ContentLength)
	}
	req.Header.Write(headers) // to memory, which does not fail
	return &policy.Message{Method: []byte(cmp.Or(req.Method, http.MethodGet)), Host: []byte(host), Path: []byte(path), Headers: headers.Bytes()}
}
