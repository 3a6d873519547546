package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// Client asks a running daemon through its control socket. A method returns an [*Error] if
// the daemon refuses, and an error that wraps [ErrUnreachable] if no daemon answers. Several
// goroutines may use a Client at the same time.
type Client struct {
	path string
	http *http.Client
}

// ErrUnreachable says that no daemon answers on the control socket.
var ErrUnreachable = errors.New("the daemon is not reachable")

// NewClient returns a client for the control socket at a path. It does not connect yet.
func NewClient(path string) *Client {
	dialer := net.Dialer{}
	return &Client{path: path, http: &http.Client{
		Timeout: writePatience,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) },
		},
	}}
}

// Status returns the state of the daemon, without its classes.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.ask(ctx, "GET", "/v1/status", nil, &s)
}

// Classes returns all classes, sorted by name.
func (c *Client) Classes(ctx context.Context) (all []Class, err error) {
	return all, c.ask(ctx, "GET", "/v1/classes", nil, &all)
}

// Why says why a class waits.
func (c *Client) Why(ctx context.Context, class string) (w Why, err error) {
	return w, c.ask(ctx, "GET", "/v1/why/"+url.PathEscape(class), nil, &w)
}

// Sessions returns the open sessions, in the order in which they began.
func (c *Client) Sessions(ctx context.Context) (all []Session, err error) {
	return all, c.ask(ctx, "GET", "/v1/sessions", nil, &all)
}

// Upstreams returns each address of the upstreams, sorted by the listener.
func (c *Client) Upstreams(ctx context.Context) (all []Upstream, err error) {
	return all, c.ask(ctx, "GET", "/v1/upstreams", nil, &all)
}

// Fleets returns the fleets that some class uses, in the order of their names.
func (c *Client) Fleets(ctx context.Context) (all []Fleet, err error) {
	return all, c.ask(ctx, "GET", "/v1/fleet", nil, &all)
}

// CloseSession resets a session.
func (c *Client) CloseSession(ctx context.Context, id uint64) error {
	return c.ask(ctx, "DELETE", "/v1/sessions/"+strconv.FormatUint(id, 10), nil, nil)
}

// Reload makes the daemon read its policy file again, and returns when the policy is in
// force. If rollback is above 0, the daemon undoes the reload after that time unless Confirm
// comes first.
func (c *Client) Reload(ctx context.Context, rollback time.Duration) (done Reloaded, err error) {
	return done, c.ask(ctx, "POST", "/v1/reload", ReloadRequest{unit.Duration(rollback)}, &done)
}

// Policy returns the policy in force.
func (c *Client) Policy(ctx context.Context) (p policy.Policy, err error) {
	return p, c.ask(ctx, "GET", "/v1/policy", nil, &p)
}

// History returns the latest changes.
func (c *Client) History(ctx context.Context) (all History, err error) {
	return all, c.ask(ctx, "GET", "/v1/history", nil, &all)
}

// Note puts into the history what a command has changed without the daemon.
func (c *Client) Note(ctx context.Context, told Noted) error {
	return c.ask(ctx, "POST", "/v1/history", told, nil)
}

// Diff returns what a reload of a policy would change.
func (c *Client) Diff(ctx context.Context, text PolicyText) (done Compared, err error) {
	return done, c.ask(ctx, "POST", "/v1/diff", text, &done)
}

// Confirm keeps what the last reload has put in force, for good.
func (c *Client) Confirm(ctx context.Context) (done Confirmed, err error) {
	return done, c.ask(ctx, "POST", "/v1/confirm", nil, &done)
}

// Set changes a class until the next reload, or for the time lasts if that is above 0. Values
// are written as in the policy file: {"rate": "20mbit"}.
func (c *Client) Set(ctx context.Context, class string, values map[string]string, lasts time.Duration) (done Changed, err error) {
	body := map[string]string{}
	for key, value := range values {
		body[key] = value
	}
	if lasts > 0 {
		body["for"] = unit.FormatDuration(lasts)
	}
	return done, c.ask(ctx, "PATCH", "/v1/classes/"+url.PathEscape(class), body, &done)
}

// Shadow returns what the policy in the shadow would have done. File is "" if there is none.
func (c *Client) Shadow(ctx context.Context) (s Shadow, err error) {
	return s, c.ask(ctx, "GET", "/v1/shadow", nil, &s)
}

// StartShadow runs a policy in the shadow of the one in force. It replaces one that runs there.
func (c *Client) StartShadow(ctx context.Context, request PolicyText) (s Shadow, err error) {
	return s, c.ask(ctx, "POST", "/v1/shadow", request, &s)
}

// StopShadow ends the policy in the shadow, and returns what it would have done.
func (c *Client) StopShadow(ctx context.Context) (s Shadow, err error) {
	return s, c.ask(ctx, "DELETE", "/v1/shadow", nil, &s)
}

// Explain returns which rule and class a client gets, for each listener and port that the
// request allows.
func (c *Client) Explain(ctx context.Context, request ExplainRequest) (all []policy.Explanation, err error) {
	return all, c.ask(ctx, "POST", "/v1/explain", request, &all)
}

// ask sends one request. It reads the answer into what into points to, unless into is nil.
func (c *Client) ask(ctx context.Context, method, path string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	response, err := c.send(ctx, c.http, method, path, text)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("%s %s: the daemon's answer: %w", method, path, err)
	}
	return nil
}

// send sends a request, and returns an answer that is no error.
func (c *Client) send(ctx context.Context, via *http.Client, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://shaper"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := via.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, refusal(response)
	}
	return response, nil
}

// unreachable returns the error for a request that got no answer. If the socket may not be
// opened, that is the error, and not ErrUnreachable.
func (c *Client) unreachable(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("control socket %s: %w; its group may use it", c.path, err)
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.path, err)
}

// refusal returns the error that an answer holds.
func refusal(response *http.Response) error {
	e := &Error{Code: CodeFailed}
	text, err := io.ReadAll(response.Body) // it may be long: a line for each mistake of a large file
	if err != nil {
		return err
	}
	if json.Unmarshal(text, e) != nil || e.Message == "" {
		e.Message = fmt.Sprintf("the daemon answers %s", response.Status)
	}
	return e
}
