package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"syscall"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// Code says what kind of error the daemon answers with.
type Code string

// The codes, each with the HTTP status it goes with.
const (
	CodePolicy     Code = "policy"     // 422: the policy, or a value for it, is rejected
	CodeNoFile     Code = "no_file"    // 422: the policy file cannot be opened, or is a directory
	CodePermission Code = "permission" // 422: a socket needs a capability that shaper has not
	CodeFailed     Code = "failed"     // 422: it could not be put in force
	CodeForbidden  Code = "forbidden"  // 403: who asks may not
	CodeUsage      Code = "usage"      // 400: the request makes no sense; 405: the method does not
	CodeNotFound   Code = "not_found"  // 404
	CodeState      Code = "state"      // 409: not now
)

var statusOf = map[Code]int{
	CodePolicy: 422, CodeNoFile: 422, CodePermission: 422, CodeFailed: 422,
	CodeForbidden: 403, CodeUsage: 400, CodeNotFound: 404, CodeState: 409,
}

// Error is what the control socket answers instead of what was asked for.
type Error struct {
	Code    Code          `json:"code"`
	Message string        `json:"error"`
	Errors  policy.Errors `json:"errors,omitempty"` // every mistake of a policy, or address that cannot be bound
	status  int           // of HTTP, where it is not that of the code
}

// Error is the message: for a policy, one line for each mistake.
func (e *Error) Error() string { return e.Message }

// CodeOf returns the code of an error of Run, a Client or package policy.
func CodeOf(err error) Code {
	var answered *Error
	var mistakes policy.Errors
	var path *fs.PathError
	var bind *unbound
	switch {
	case errors.As(err, &answered):
		return answered.Code
	case errors.As(err, &mistakes):
		return CodePolicy
	case errors.As(err, &bind) && errors.Is(err, fs.ErrPermission):
		return CodePermission
	case errors.As(err, &bind):
		return CodeFailed
	case errors.As(err, &path) && (path.Op == "open" || path.Err == syscall.EISDIR):
		return CodeNoFile
	case errors.Is(err, fs.ErrPermission):
		return CodePermission
	case errors.Is(err, ErrStopping), errors.Is(err, ErrNothingToConfirm):
		return CodeState
	}
	return CodeFailed
}

func answerFor(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeOf(err), Message: err.Error(), Errors: mistakesOf(err)}
}

// mistakesOf returns what of an error has its place in a policy file.
func mistakesOf(err error) (mistakes policy.Errors) {
	var bind *unbound
	if errors.As(err, &bind) {
		return bind.errs
	}
	errors.As(err, &mistakes)
	return mistakes
}

func usageError(format string, args ...any) error {
	return &Error{Code: CodeUsage, Message: fmt.Sprintf(format, args...)}
}

// ReloadRequest is the body of POST /v1/reload; it may be left out.
type ReloadRequest struct {
	// RollbackAfter is when the reload is undone unless it is confirmed; 0: never.
	RollbackAfter unit.Duration `json:"rollback_after,omitzero"`
}

// maxBody bounds the body of a request.
const maxBody = 64 << 10

// controlHandler serves the control socket.
func (d *daemon) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/status", answers(d.serveStatus))
	mux.Handle("GET /v1/classes", answers(func(caller, *http.Request) (any, error) { return d.classes(), nil }))
	mux.Handle("GET /v1/sessions", answers(func(caller, *http.Request) (any, error) {
		return append([]Session{}, d.server.Sessions()...), nil
	}))
	mux.Handle("GET /v1/policy", answers(func(caller, *http.Request) (any, error) { return d.keeper.view.Load().policy, nil }))
	mux.Handle("POST /v1/reload", answers(d.serveReload))
	mux.Handle("POST /v1/confirm", answers(d.serveConfirm))
	mux.Handle("POST /v1/explain", answers(d.serveExplain))
	mux.Handle("GET /v1/shadow", answers(d.serveShadow))
	mux.Handle("POST /v1/shadow", answersWithin(maxShadowBody, d.serveStartShadow))
	mux.Handle("DELETE /v1/shadow", answers(d.serveStopShadow))
	mux.Handle("PATCH /v1/classes/{name}", answers(d.serveSet))
	mux.Handle("DELETE /v1/sessions/{id}", answers(d.serveClose))
	return alwaysJSON(mux)
}

// alwaysJSON answers in JSON too what a mux itself answers in plain text:
// paths that do not exist, methods that a path does not have, and redirects to
// another spelling of a path.
func alwaysJSON(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own, pattern := mux.Handler(r)
		if pattern != "" && r.URL.Path == path.Clean(r.URL.Path) {
			mux.ServeHTTP(w, r)
			return
		}
		said := headerOnly{}
		own.ServeHTTP(said, r)
		allow := said.Header().Get("Allow")
		answers(func(caller, *http.Request) (any, error) {
			if allow == "" {
				return nil, &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no %.100q", r.URL.Path)}
			}
			w.Header().Set("Allow", allow)
			return nil, &Error{Code: CodeUsage, status: http.StatusMethodNotAllowed,
				Message: fmt.Sprintf("%.100q does not take %.20q; it takes %s", r.URL.Path, r.Method, allow)}
		}).ServeHTTP(w, r)
	})
}

// headerOnly takes an answer of which only the header is wanted.
type headerOnly http.Header

func (h headerOnly) Header() http.Header       { return http.Header(h) }
func (headerOnly) WriteHeader(int)             {}
func (headerOnly) Write(b []byte) (int, error) { return len(b), nil }

// answers turns a function into a handler for those whom the socket has let in.
func answers(f func(by caller, r *http.Request) (any, error)) http.Handler {
	return answersWithin(maxBody, f)
}

// answersWithin is answers with a bound of its own for the body.
func answersWithin(most int64, f func(by caller, r *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, most)
		by := callerOf(r.Context())
		if by.err != nil {
			answer(w, http.StatusForbidden, &Error{Code: CodeForbidden, Message: by.err.Error()})
			return
		}
		v, err := f(by.caller, r)
		if err != nil {
			e := answerFor(err)
			answer(w, cmp.Or(e.status, statusOf[e.Code]), e)
			return
		}
		answer(w, http.StatusOK, v)
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}

// decode reads the body strictly. An empty one leaves v as it is.
func decode(r *http.Request, v any) error {
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil && err != io.EOF {
		return usageError("the body: %v", err)
	}
	if _, err := in.Token(); err != io.EOF { // More does not see a lone "}"
		return usageError("the body: there is something behind the JSON value")
	}
	return nil
}

func (d *daemon) serveStatus(caller, *http.Request) (any, error) {
	s := d.status()
	s.Classes = nil // there may be very many; GET /v1/classes has them
	return s, nil
}

func (d *daemon) serveReload(by caller, r *http.Request) (any, error) {
	var ask ReloadRequest
	if err := decode(r, &ask); err != nil {
		return nil, err
	}
	return d.keeper.reload(by, time.Duration(ask.RollbackAfter))
}

func (d *daemon) serveConfirm(by caller, r *http.Request) (any, error) {
	if err := decode(r, &struct{}{}); err != nil {
		return nil, err
	}
	return d.keeper.confirm(by)
}

// serveSet takes the values by their keys, and beside them "for".
func (d *daemon) serveSet(by caller, r *http.Request) (any, error) {
	values := map[string]string{}
	if err := decode(r, &values); err != nil {
		return nil, err
	}
	var lasts unit.Duration
	if text, ok := values["for"]; ok {
		var err error
		if lasts, err = unit.ParseDuration(text); err != nil || lasts <= 0 {
			return nil, usageError("for: %q is not a time; a time is like \"90s\" or \"10m\"", text)
		}
		delete(values, "for")
	}
	if len(values) == 0 {
		return nil, usageError("nothing to set; a request is like {\"rate\": \"20mbit\", \"for\": \"10m\"}")
	}
	return d.keeper.set(by, r.PathValue("name"), values, time.Duration(lasts))
}

func (d *daemon) serveClose(by caller, r *http.Request) (any, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, usageError("%q is not the id of a session", r.PathValue("id"))
	}
	if !d.server.CloseSession(id) {
		return nil, &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no session %d; shaper sessions shows those that are open", id)}
	}
	d.Log.Info("close session", "by", by.String(), "session", id)
	return struct{}{}, nil
}
