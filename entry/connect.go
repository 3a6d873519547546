package entry

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"
)

// Connect is the server of an HTTP proxy: the method CONNECT (RFC 9110, 9.3.6) and, if Forward is
// set, requests with a URL (absolute-form; RFC 9112, 3.2.2). If Users is set, clients log in by
// Basic authentication (RFC 7617).
type Connect struct {
	Users    bool // the client must log in
	Forward  bool // requests with a URL are served
	over     bool // it reads nothing more
	forwards bool // a request with a URL has come
}

var (
	errNotHTTP   = errors.New("it is not a request of HTTP/1.1 or HTTP/1.0")
	errHead      = errors.New("the head of the request is too long")
	errMethod    = errors.New("only the method CONNECT is supported here")
	errAuthority = errors.New("the request has no valid host:port")
	errURL       = errors.New("the request has no valid http:// URL")
	errNoBasic   = errors.New("the request has no login")
	errAmbiguous = errors.New("the head of the request is ambiguous")
	endOfHead    = []byte("\r\n\r\n")
)

// The answers. A client that gets any but the first has to connect again.
const (
	answerConnected = "HTTP/1.1 200 Connection established\r\n\r\n"
	answerTail      = "Connection: close\r\nContent-Length: 0\r\n\r\n"
	answerLogin     = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"shaper\"\r\n" + answerTail
	answerBad       = "HTTP/1.1 400 Bad Request\r\n" + answerTail
	answerHead      = "HTTP/1.1 431 Request Header Fields Too Large\r\n" + answerTail
	answerMethod    = "HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\n" + answerTail
	answerDenied    = "HTTP/1.1 403 Forbidden\r\n" + answerTail
	answerFailed    = "HTTP/1.1 502 Bad Gateway\r\n" + answerTail
	answerLate      = "HTTP/1.1 504 Gateway Timeout\r\n" + answerTail
)

// Feed implements Entry.
func (c *Connect) Feed(data []byte) (used int, step Step, err error) {
	if c.over {
		return 0, Step{}, nil
	}
	head, _, found := bytes.Cut(data, endOfHead)
	if !found {
		if len(data) >= MaxEntry {
			return c.refuse(len(data), answerHead, errHead)
		}
		if !mayBeHTTP(data) || bytes.Count(data, []byte("\n")) != bytes.Count(data, []byte("\r\n")) {
			return c.refuse(len(data), answerBad, errNotHTTP)
		}
		return 0, Step{}, nil
	}
	used = len(head) + len(endOfHead)
	r, err := parseRequest(string(head))
	if err == nil {
		step, err = c.request(r)
	}
	switch {
	case err == errMethod:
		return c.refuse(used, answerMethod, err)
	case err == errNoBasic:
		return c.refuse(used, answerLogin, err)
	case err != nil:
		return c.refuse(used, answerBad, err)
	}
	c.over = true
	return used, step, nil
}

// request returns the step that a request asks for.
func (c *Connect) request(r *request) (step Step, err error) {
	if r.method == "CONNECT" {
		step.To, err = r.tunnel()
	} else if c.Forward {
		step.To, step.Head, err = r.forward()
		c.forwards = true
	} else {
		err = errMethod
	}
	if err != nil || !c.Users {
		return step, err
	}
	ok := false
	if step.User, step.Password, ok = basic(r.login); !ok {
		return Step{}, errNoBasic
	}
	step.Login = true
	return step, nil
}

// refuse ends the connection with an answer.
func (c *Connect) refuse(used int, answer string, err error) (int, Step, error) {
	c.over = true
	return used, Step{Reply: []byte(answer)}, err
}

// mayBeHTTP reports whether data can be the beginning of a request line: a method and a blank.
func mayBeHTTP(data []byte) bool {
	method, _, _ := bytes.Cut(data, []byte(" "))
	return len(method) <= 32 && len(bytes.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")) == 0
}

// basic reads the credentials of Basic authentication.
func basic(login string) (user, password string, ok bool) {
	scheme, coded, _ := strings.Cut(login, " ")
	text, err := base64.StdEncoding.DecodeString(strings.Trim(coded, " "))
	if !strings.EqualFold(scheme, "Basic") || err != nil {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(text), ":")
	return user, password, ok && user != ""
}

// LoggedIn implements Entry. A good login has no answer of its own.
func (c *Connect) LoggedIn(ok bool) []byte {
	if ok {
		return nil
	}
	return []byte(answerLogin)
}

// Connected implements Entry. A request with a URL is answered by its server.
func (c *Connect) Connected(netip.AddrPort) []byte {
	if c.forwards {
		return nil
	}
	return []byte(answerConnected)
}

// Refused implements Entry.
func (c *Connect) Refused(why Refusal) []byte {
	switch why {
	case Denied:
		return []byte(answerDenied)
	case Unreachable:
		return []byte(answerLate)
	case Malformed:
		return []byte(answerBad)
	}
	return []byte(answerFailed)
}
