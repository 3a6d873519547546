package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Bounds of the streams.
const (
	mostStreams = 8                // a browser gets one only while fewer are open
	MostStreams = 2 * mostStreams  // a client of the control socket gets one while fewer are open
	streamPause = time.Second      // between two events, at least
	longestWait = 10 * time.Second // and at most, however long a view takes
	patience    = 5 * time.Second  // how long a browser may take to accept an event
)

// effort is how much of a processor the dashboard takes for a view, or for its samples: 1/effort.
const effort = 400

// pause returns how long to wait after work that took so long: as long as keeps to effort, and
// at least a time.
func pause(took, least time.Duration) time.Duration { return max(least, effort*took) }

// screens are the views that are open somewhere. Nothing is computed for any other.
type screens struct {
	mu      sync.Mutex
	open    map[string]*screen
	streams int
}

// screen is an open view. All streams that show it send the same events.
type screen struct {
	streams int // that show it; guarded by the mu of screens

	mu    sync.Mutex
	event []byte
	due   time.Time // of the next event
}

// enter adds a stream to a view; ok is false if most streams or more are open, of all views together.
func (s *screens) enter(view string, most int) (of *screen, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= most {
		return nil, false
	}
	of = s.open[view]
	if of == nil {
		of = &screen{}
		s.open[view] = of
	}
	s.streams++
	of.streams++
	return of, true
}

// leave removes a stream.
func (s *screens) leave(view string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	if of := s.open[view]; of.streams > 1 {
		of.streams--
	} else {
		delete(s.open, view)
	}
}

// Event is an event of the stream of a view: what the source says of itself, and what the view shows.
type Event[S, V any] struct {
	Now     time.Time `json:"now"`
	Summary S         `json:"summary"`
	View    V         `json:"view"`
}

// next returns the latest event of a view, and when the next one is due. It makes one if that is
// due; it returns nil if there is no such view.
func (d *Dashboard) next(view string, of *screen) (text []byte, due time.Time) {
	of.mu.Lock()
	defer of.mu.Unlock()
	now := time.Now()
	if now.Before(of.due) {
		return of.event, of.due
	}
	runtime.LockOSThread() // to wait for others, such as the store of a fleet, is no effort
	defer runtime.UnlockOSThread()
	before := d.worked()
	shown := d.view(view)
	if shown == nil {
		return nil, now
	}
	var event bytes.Buffer // a new one: streams may still write the old event
	event.Grow(len(of.event) + bytes.MinRead)
	event.WriteString("data: ")
	if json.NewEncoder(&event).Encode(Event[any, any]{now, d.source.Summary(), shown}) != nil {
		return nil, now // cannot be: the values are those of the control socket
	}
	event.WriteByte('\n') // the second one, which ends it
	of.event = event.Bytes()
	of.due = time.Now().Add(min(pause(d.worked()-before, streamPause), longestWait))
	return of.event, of.due
}

// Refusal is why a request gets no stream.
type Refusal struct {
	Status int // of HTTP
	Why    string
}

// ServeEvents serves the stream of a view until the browser goes or does not read, or the server of
// the request stops. If it refuses the request, for example because most streams are open already, it
// has written nothing.
func (d *Dashboard) ServeEvents(w http.ResponseWriter, r *http.Request, view string, most int) *Refusal {
	if no := refusal(r); no != nil {
		return no
	}
	of, ok := d.screens.enter(view, most)
	if !ok {
		return &Refusal{http.StatusServiceUnavailable, fmt.Sprintf("%d views are open already", most)}
	}
	defer d.screens.leave(view)
	text, due := d.next(view, of)
	if text == nil {
		return &Refusal{http.StatusNotFound, fmt.Sprintf("there is no view %.100q", view)}
	}
	out := http.NewResponseController(w)
	out.SetReadDeadline(time.Time{}) // that of the server is for requests
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	for {
		out.SetWriteDeadline(time.Now().Add(patience))
		if _, err := w.Write(text); err != nil || out.Flush() != nil {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-time.After(time.Until(due)):
		}
		if text, due = d.next(view, of); text == nil {
			return nil
		}
	}
}

// refusal returns why a request gets no stream, whatever its view; nil if it may get one. A stream holds
// its place as long as somebody reads it. Nobody reads the answer to a HEAD, a body that does not
// come would hold the place for ever, and a page of another site cannot read what it asks for.
func refusal(r *http.Request) *Refusal {
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case r.Method != http.MethodGet:
		return &Refusal{http.StatusMethodNotAllowed, "only GET reads a stream"}
	case r.ContentLength != 0:
		return &Refusal{http.StatusBadRequest, "a request for a stream has no body"}
	case site == "cross-site", site == "same-site":
		return &Refusal{http.StatusForbidden, "the stream is for the page of the dashboard"}
	}
	return nil
}
