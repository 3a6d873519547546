package daemon

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
)

// Why says why a class waits: what holds up the next item of the class or beneath it, on each
// class of the path to the root.
type Why struct {
	Class string `json:"class"`
	Items int64  `json:"items"` // what waits in the class and beneath it
	Bytes int64  `json:"bytes"`
	// Sessions is how many sessions wait for a permit in the class and in those above it.
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
type Hold = policy.Hold

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
	w := Why{Class: name, Items: of.Items, Bytes: of.Bytes, Sessions: of.Sessions, From: of.From, At: known(of.At), Exact: of.Exact, Path: holdsOf(of)}
	w.Text = w.summary(now)
	return w
}

// holdsOf returns what holds an item up, down its path.
func holdsOf(why shaper.Why) []Hold {
	all := make([]Hold, 0, len(why.Path)) // JSON has a list, also if there is nothing
	for _, h := range why.Path {
		all = append(all, Hold{Class: h.Class, Cause: string(h.Cause), Until: known(h.Until), Text: h.Text})
	}
	return all
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
	return text + leaves(now, w.At, w.Exact)
}

// leaves says in words when an item leaves; at is zero if time alone never lets it leave.
func leaves(now, at time.Time, exact bool) string {
	switch {
	case at.IsZero():
		return "waits for something that time alone does not end"
	case !at.After(now):
		return "leaves at once"
	case !exact:
		return "leaves at about " + moment(at)
	}
	return "leaves at " + moment(at)
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
