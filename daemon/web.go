package daemon

import (
	"cmp"
	"io"
	"net/http"

	"shaper/metrics"
	"shaper/web"
)

// webHandler serves the dashboard at /, and metrics and health beside it. It changes nothing. Metrics
// and health answer whatever the field Host is, since Prometheus and load balancers know machines
// by many names.
func (d *daemon) webHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", d.dashboard)
	mux.Handle("GET /metrics", metrics.Handler(d.reading))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", d.readyz)
	return mux
}

// readyz tells a load balancer whether to send connections here: not while the daemon drains.
// Before the policy is in force and its listeners are bound, the endpoint does not serve.
func (d *daemon) readyz(w http.ResponseWriter, _ *http.Request) {
	if d.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ready\n")
}

// serveEvents serves a view of the dashboard: "classes" if the request names none.
func (d *daemon) serveEvents(w http.ResponseWriter, r *http.Request, _ caller) error {
	no := d.dashboard.ServeEvents(w, r, cmp.Or(r.PathValue("view"), "classes"), web.MostStreams)
	if no == nil {
		return nil
	}
	code := CodeUsage
	switch no.Status {
	case http.StatusNotFound:
		code = CodeNotFound
	case http.StatusServiceUnavailable:
		code = CodeState
	}
	return &Error{Code: code, Message: no.Why, status: no.Status}
}
