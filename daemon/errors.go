package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"shaper/policy"
)

// Code is the kind of an error that the daemon answers with.
type Code string

// The codes, each with its HTTP status.
const (
	CodePolicy     Code = "policy"     // 422: the policy, or a value for it, is rejected
	CodeNoFile     Code = "no_file"    // 422: the policy file cannot be opened, or is a directory
	CodePermission Code = "permission" // 422: shaper lacks a capability or a permission
	CodeFailed     Code = "failed"     // 422: the request failed, or the policy could not come into force
	CodeForbidden  Code = "forbidden"  // 403: the caller may not use the control socket
	CodeUsage      Code = "usage"      // 400: the request makes no sense; 405: the path does not take the method
	CodeNotFound   Code = "not_found"  // 404
	CodeState      Code = "state"      // 409: not possible now
)

var statusOf = map[Code]int{
	CodePolicy: 422, CodeNoFile: 422, CodePermission: 422, CodeFailed: 422,
	CodeForbidden: 403, CodeUsage: 400, CodeNotFound: 404, CodeState: 409,
}

// Error is the answer of the control socket to a request that fails.
type Error struct {
	Code    Code          `json:"code"`
	Message string        `json:"error"`
	Errors  policy.Errors `json:"errors,omitempty"` // every mistake of a policy, and every address that cannot be bound
	status  int           // of HTTP; 0: that of the code
}

// Error returns the message. For a policy it has a line for each mistake.
func (e *Error) Error() string { return e.Message }

// CodeOf returns the code of an error of Run, of a Client or of package policy; CodeFailed for
// any other.
func CodeOf(err error) Code {
	var answered *Error
	var mistakes policy.Errors
	var path *fs.PathError
	var named *unusable
	switch {
	case errors.As(err, &answered):
		return answered.Code
	case errors.As(err, &mistakes):
		return CodePolicy
	case errors.As(err, &named) && named.denied:
		return CodePermission
	case errors.As(err, &named): // also a file that may not be read: at the next start it may be readable
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

// errorOf returns the answer of the control socket for an error.
func errorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeOf(err), Message: err.Error(), Errors: mistakesOf(err)}
}

// mistakesOf returns the parts of an error that have a place in a policy file.
func mistakesOf(err error) (mistakes policy.Errors) {
	var named *unusable
	if errors.As(err, &named) {
		return named.errs
	}
	errors.As(err, &mistakes)
	return mistakes
}

// noClass returns the answer to a request about a class that the policy does not have.
func noClass(name string, p *policy.Policy) error {
	var names []string
	for _, c := range p.Classes {
		names = append(names, c.Name)
	}
	return &Error{Code: CodeNotFound, Message: policy.NoClass(name, names)}
}

// usageError returns the answer to a request that makes no sense.
func usageError(format string, args ...any) error {
	return &Error{Code: CodeUsage, Message: fmt.Sprintf(format, args...)}
}
