package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"shaper/web"
)

// Event is an event of the stream of a view. The control socket sends those of the dashboard.
type Event[V any] = web.Event[Summary, V]

// The views that programs read.
type (
	Tree      = web.Tree
	ClassView = web.ClassView[*Class] // Class is nil if there is no such class
)

// silence is how long a stream may bring nothing. The daemon sends an event at least every 10 s,
// unless it hangs.
const silence = 20 * time.Second

// errSilent is why a stream without events ends.
var errSilent = fmt.Errorf("the daemon has sent nothing for %v", silence)

// WatchTree calls show with each event of the tree of classes, one a second or fewer, until the
// context or the stream ends. It returns why.
func (c *Client) WatchTree(ctx context.Context, show func(Event[Tree])) error {
	return watch(ctx, c, "classes", show)
}

// WatchClass is like WatchTree for all that is known of a class.
func (c *Client) WatchClass(ctx context.Context, name string, show func(Event[ClassView])) error {
	return watch(ctx, c, "class/"+url.PathEscape(name), show)
}

// watch calls show with each event of a view of the dashboard.
func watch[V any](ctx context.Context, c *Client, view string, show func(Event[V])) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alarm := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer alarm.Stop()
	stream := http.Client{Transport: c.http.Transport} // without the time-out of other requests
	answer, err := c.send(ctx, &stream, "GET", "/v1/events/"+view, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for in := bufio.NewReader(answer.Body); ; {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(context.Cause(ctx), errSilent):
			return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.path, errSilent)
		case err != nil:
			return fmt.Errorf("%w at %s: the stream of events has ended", ErrUnreachable, c.path)
		}
		if text, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			var next Event[V]
			if err := json.Unmarshal(text, &next); err != nil {
				return fmt.Errorf("an event of %s: %w", view, err)
			}
			alarm.Reset(silence)
			show(next)
		}
	}
}
