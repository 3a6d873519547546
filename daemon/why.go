package daemon

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"shaper/limit"
	"shaper/shaper"
)

// Why says why a class waits: what holds up the next item of the class or beneath it, on each
// class of the path to the root.
type Why struct {
	Class string `json:"class"`
	Items int64  `json:"items"` // what waits in the class and beneath it
	Bytes int64  `json:"bytes"`
	// Sessions is how many sessions wait for a slot in the class and in those above it.
	Sessions int    `json:"waiting_sessions,omitempty"`
	From     string `json:"from"` // the class in which the next item waits
	// At is when that item leaves if nothing else comes; zero if time alone never lets it leave.
	// It is in the past if nothing waits, and an item that came now would leave at once.
	At    time.Time `json:"at,omitzero"`
	Exact bool      `json:"exact"` // At is no estimate
	Text  string    `json:"text"`  // all this in words
	Path  []Hold    `json:"path"`
}

// Hold is what holds an item up in one class.
type Hold struct {
	Class string       `json:"class"`
	Cause shaper.Cause `json:"cause"`
	Until time.Time    `json:"until,omitzero"` // zero: nobody knows
	Text  string       `json:"text"`
}

func (d *daemon) serveWhy(_ caller, r *http.Request) (any, error) {
	name := r.PathValue("name")
	w, ok := d.why(name)
	if !ok {
		return nil, noClass(name, d.keeper.view.Load().policy)
	}
	return w, nil
}

// why explains a class by its name; ok is false if there is none.
func (d *daemon) why(name string) (w Why, ok bool) {
	class := d.shaper.Class(name)
	if class == nil {
		return w, false
	}
	now := time.Now()
	return newWhy(name, now, class.Status().Why(now)), true
}

func newWhy(name string, now time.Time, of shaper.Why) Why {
	w := Why{Class: name, Items: of.Items, Bytes: of.Bytes, Sessions: of.Sessions, From: of.From, At: known(of.At), Exact: of.Exact, Path: []Hold{}}
	for _, h := range of.Path {
		w.Path = append(w.Path, Hold{h.Class, h.Cause, known(h.Until), h.Text})
	}
	w.Text = w.summary(now)
	return w
}

// known returns a time, or the zero time instead of limit.Never.
func known(t time.Time) time.Time {
	if t == limit.Never {
		return time.Time{}
	}
	return t
}

// summary says in words what waits, and until when.
func (w Why) summary(now time.Time) string {
	text := fmt.Sprintf("class %s: ", w.Class)
	if w.Sessions > 0 {
		text += fmt.Sprintf("waiting sessions: %d; ", w.Sessions)
	}
	switch {
	case w.Items > 0:
		text += fmt.Sprintf("waiting items: %d; the next ", w.Items)
	case w.Sessions > 0:
		text += "an item of a session that is open "
	default:
		text += "nothing waits, and an item that comes now "
	}
	switch {
	case w.At.IsZero():
		return text + "waits until an answer comes or a limit changes"
	case !w.At.After(now):
		return text + "leaves at once"
	case !w.Exact:
		return text + "leaves at about " + moment(w.At)
	}
	return text + "leaves at " + moment(w.At)
}

// moment prints a time to the millisecond.
func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// String prints the summary, and a line for each hold.
func (w Why) String() string {
	var b strings.Builder
	b.WriteString(w.Text + "\n")
	for _, h := range w.Path {
		b.WriteString("  " + h.String() + "\n")
	}
	return b.String()
}

// String prints the class, what holds an item up there, and until when.
func (h Hold) String() string {
	text := fmt.Sprintf("class %s: %s", h.Class, h.Text)
	if !h.Until.IsZero() {
		text += ", until " + moment(h.Until)
	}
	return text
}
