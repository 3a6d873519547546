package web

import (
	"context"
	"net/http"
	"time"
)

// Dashboard is an http.Handler. Its server must end the context of its requests when it stops: that
// ends the streams.
type Dashboard struct {
	source  Source
	handler http.Handler
	screens screens
	history *history
	worked  func() time.Duration // how long this thread has worked; threadTime, except in tests
}

// New returns a dashboard that shows a source.
func New(source Source) *Dashboard {
	d := &Dashboard{source: source, screens: screens{open: map[string]*screen{}}, history: newHistory(), worked: threadTime}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events/{view...}", func(w http.ResponseWriter, r *http.Request) {
		if no := d.ServeEvents(w, r, r.PathValue("view"), mostStreams); no != nil {
			http.Error(w, no.Why, no.Status)
		}
	})
	mux.HandleFunc("GET /", serveAsset)
	d.handler = guard(source.Hosts, mux)
	return d
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Run samples the classes until the context ends. While it does not run, the classes have no curves.
func (d *Dashboard) Run(ctx context.Context) {
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
