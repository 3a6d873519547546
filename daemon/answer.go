package daemon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
)

// maxBody bounds the body of a request.
const maxBody = 64 << 10

// alwaysJSON serves a mux and answers in JSON what a mux itself answers in plain text: paths
// that do not exist, methods that a path does not take, and redirects to another spelling of a
// path, which become "not found".
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
		jsonHandler(func(caller, *http.Request) (any, error) {
			if allow == "" {
				return nil, &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no %.100q", r.URL.Path)}
			}
			w.Header().Set("Allow", allow)
			return nil, &Error{Code: CodeUsage, status: http.StatusMethodNotAllowed,
				Message: fmt.Sprintf("%.100q does not take %.20q; it takes %s", r.URL.Path, r.Method, allow)}
		}).ServeHTTP(w, r)
	})
}

// headerOnly is an http.ResponseWriter that keeps only the header.
type headerOnly http.Header

func (h headerOnly) Header() http.Header       { return http.Header(h) }
func (headerOnly) WriteHeader(int)             {}
func (headerOnly) Write(b []byte) (int, error) { return len(b), nil }

// jsonHandler returns a guarded handler that answers with what f returns, as JSON. The body of a
// request has at most maxBody bytes.
func jsonHandler(f func(by caller, r *http.Request) (any, error)) http.Handler {
	return jsonHandlerWithin(maxBody, f)
}

// jsonHandlerWithin is jsonHandler with another bound for the body, in bytes.
func jsonHandlerWithin(most int64, f func(by caller, r *http.Request) (any, error)) http.Handler {
	return guarded(func(w http.ResponseWriter, r *http.Request, by caller) error {
		r.Body = http.MaxBytesReader(w, r.Body, most)
		v, err := f(by, r)
		if err == nil {
			writeJSON(w, http.StatusOK, v)
		}
		return err
	})
}

// guarded returns a handler that refuses callers whom the control socket does not allow, and answers
// with the error of f as JSON. If f returns an error, it has written nothing.
func guarded(f func(w http.ResponseWriter, r *http.Request, by caller) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by := callerOf(r.Context())
		err := by.err
		if err != nil {
			err = &Error{Code: CodeForbidden, Message: err.Error()}
		} else {
			err = f(w, r, by.caller)
		}
		if err != nil {
			e := errorOf(err)
			writeJSON(w, cmp.Or(e.status, statusOf[e.Code]), e)
		}
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}

// decode reads the JSON body of a request into v. Unknown keys and trailing text are errors.
// An empty body leaves v as it is.
func decode(r *http.Request, v any) error {
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil && err != io.EOF {
		return usageError("the body: %v", err)
	}
	if _, err := in.Token(); err != io.EOF { // Decoder.More overlooks a lone "}"
		return usageError("the body: text follows the JSON value")
	}
	return nil
}
