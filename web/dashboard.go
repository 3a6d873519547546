package web

import (
	"context"
	"net/http"
	"time"
)

// Dashboard is an http.Handler. Run must run beside it.
type Dashboard struct {
	source  Source
	handler http.Handler
	screens screens
	history *history
	stopped chan struct{} // closed when Run has ended
}

// New returns a dashboard that shows a source.
func New(source Source) *Dashboard {
	d := &Dashboard{source: source, screens: screens{open: map[string]*screen{}}, history: newHistory(), stopped: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events/{view...}", d.serveEvents)
	mux.HandleFunc("GET /", serveAsset)
	d.handler = guard(source.Hosts, mux)
	return d
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Run samples the classes until the context ends. Then it ends all streams. It is called once.
func (d *Dashboard) Run(ctx context.Context) {
	defer close(d.stopped)
	for {
		now := time.Now()
		d.history.add(now, d.source.Samples())
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause(time.Since(now), step)):
		}
	}
}
