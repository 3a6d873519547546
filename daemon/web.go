package daemon

import (
	"context"
	"io"
	"net/http"

	"shaper/metrics"
	"shaper/web"
)

// webHandler serves the dashboard at /, and metrics and health beside it. It changes nothing. Metrics
// and health answer whatever the field Host is, since Prometheus and load balancers know machines
// by many names.
func (d *daemon) webHandler(dashboard http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", dashboard)
	mux.Handle("GET /metrics", metrics.Handler(d.reading))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", d.readyz)
	return mux
}

// newWeb returns what an endpoint of daemon.http serves, and what runs beside it.
func (d *daemon) newWeb() (http.Handler, func(context.Context)) {
	dashboard := web.New(page{d})
	return d.webHandler(dashboard), dashboard.Run
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
