package daemon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// ReloadRequest is the body of POST /v1/reload. The body may be empty.
type ReloadRequest struct {
	// RollbackAfter is how long after the reload it is undone if nobody confirms it; 0: never.
	RollbackAfter unit.Duration `json:"rollback_after,omitzero"`
}

// controlHandler serves the requests of the control socket.
func (d *daemon) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/status", jsonHandler(d.serveStatus))
	mux.Handle("GET /v1/classes", jsonHandler(func(caller, *http.Request) (any, error) { return d.classes(), nil }))
	mux.Handle("GET /v1/sessions", jsonHandler(func(caller, *http.Request) (any, error) {
		return append([]Session{}, d.server.Sessions()...), nil
	}))
	mux.Handle("GET /v1/upstreams", jsonHandler(func(caller, *http.Request) (any, error) {
		return append([]Upstream{}, d.server.Upstreams()...), nil
	}))
	mux.Handle("GET /v1/fleet", jsonHandler(func(_ caller, r *http.Request) (any, error) {
		return append([]Fleet{}, d.engine.fleets.readPeers(r.Context())...), nil
	}))
	mux.Handle("GET /v1/policy", jsonHandler(func(caller, *http.Request) (any, error) { return d.keeper.view.Load().policy, nil }))
	mux.Handle("GET /v1/history", jsonHandler(d.serveHistory))
	mux.Handle("POST /v1/history", jsonHandler(func(by caller, r *http.Request) (any, error) { return d.keeper.serveNote(by, r) }))
	mux.Handle("POST /v1/diff", jsonHandlerWithin(maxPolicyBody, d.serveDiff))
	mux.Handle("POST /v1/reload", jsonHandler(d.serveReload))
	mux.Handle("POST /v1/confirm", jsonHandler(d.serveConfirm))
	mux.Handle("POST /v1/explain", jsonHandler(d.serveExplain))
	mux.Handle("GET /v1/why/{name}", jsonHandler(d.serveWhy))
	mux.Handle("GET /v1/events", guarded(d.serveEvents))
	mux.Handle("GET /v1/events/{view...}", guarded(d.serveEvents))
	mux.Handle("GET /v1/shadow", jsonHandler(d.serveShadow))
	mux.Handle("POST /v1/shadow", jsonHandlerWithin(maxPolicyBody, d.serveStartShadow))
	mux.Handle("DELETE /v1/shadow", jsonHandler(d.serveStopShadow))
	mux.Handle("PATCH /v1/classes/{name}", jsonHandler(d.serveSet))
	mux.Handle("DELETE /v1/sessions/{id}", jsonHandler(d.serveClose))
	return alwaysJSON(mux)
}

func (d *daemon) serveStatus(caller, *http.Request) (any, error) {
	s := d.status()
	s.Classes = nil // there may be very many: GET /v1/classes returns them
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

// serveSet takes an object of keys and values of a class. The key "for" is how long they hold.
func (d *daemon) serveSet(by caller, r *http.Request) (any, error) {
	var given map[string]json.RawMessage
	if err := decode(r, &given); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for key, value := range given {
		text, ok := word(value)
		if !ok {
			return nil, usageError("%s: %s cannot be set; a value is a text, a number, true or false, as in a policy", key, value)
		}
		values[key] = text
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
	name := r.PathValue("name")
	done, err := d.keeper.set(by, name, values, time.Duration(lasts))
	if p := d.keeper.view.Load().policy; err != nil && CodeOf(err) == CodePolicy {
		if _, ok := p.Class(name); !ok {
			return nil, noClass(name, p)
		}
	}
	return done, err
}

// word returns a text, a number or a boolean of JSON as the command line has it; ok is false if it is
// something else.
func word(value json.RawMessage) (text string, ok bool) {
	switch value[0] {
	case '{', '[', 'n': // null
		return "", false
	case '"':
		return text, json.Unmarshal(value, &text) == nil
	}
	return string(value), true
}

func (d *daemon) serveClose(by caller, r *http.Request) (any, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, usageError("%q is not the id of a session", r.PathValue("id"))
	}
	was, closed := d.server.CloseSession(id)
	if !closed {
		return nil, &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no session %d; shaper sessions shows those that are open", id)}
	}
	d.keeper.note(by, Record{What: sessionClosed, Changes: []policy.Change{{Op: "-", What: "session", Name: r.PathValue("id"),
		Old: fmt.Sprintf("client %s, listener %s, class %s, upstream %s", was.Client, was.Listener, cmp.Or(was.Class, "-"), cmp.Or(was.Upstream, "-"))}}})
	return struct{}{}, nil
}

// Noted is the body of POST /v1/history: what a command has changed without the daemon.
type Noted struct {
	What    string          `json:"what"` // one of Notable
	Changes []policy.Change `json:"changes"`
}

// serveNote puts into the history what a command says that it has changed.
func (k *keeper) serveNote(by caller, r *http.Request) (any, error) {
	var told Noted
	if err := decode(r, &told); err != nil {
		return nil, err
	}
	of, _, _ := strings.Cut(told.What, " ")
	alien := func(c policy.Change) bool { return c.What != of }
	if !slices.Contains(Notable, told.What) || len(told.Changes) == 0 || slices.ContainsFunc(told.Changes, alien) {
		return nil, usageError("what: %q is not a change of the kernel, or it has no changes, or others; a request is like {\"what\": \"tc apply\", \"changes\": [{\"op\": \"+\", \"what\": \"tc\", \"name\": \"eth0\"}]}", told.What)
	}
	k.note(by, Record{What: told.What, Changes: told.Changes})
	return struct{}{}, nil
}
