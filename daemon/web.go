package daemon

import (
	"io"
	"net/http"

	"shaper/metrics"
)

// page is what a browser gets at /.
const page = `<!DOCTYPE html>
<title>shaper</title>
<h1>shaper</h1>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus
<li><a href="/healthz">/healthz</a>: alive
<li><a href="/readyz">/readyz</a>: a policy is in force, its listeners are bound, and shaper is not stopping
</ul>
<p>In a terminal: <code>shaper classes</code>, <code>shaper sessions</code>, <code>shaper status</code>.
`

// webHandler serves metrics and health. It changes nothing.
func (d *daemon) webHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler(d.reading))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", d.readyz)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, page)
	})
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
