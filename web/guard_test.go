package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A browser that asks for a name which is not ours may have been sent here by somebody else's page.
func TestHost(t *testing.T) {
	d := New(&fake{})
	for host, want := range map[string]int{
		"127.0.0.1:9780": 200, "127.0.0.1": 200, "10.1.2.3:80": 200, "[::1]:9780": 200, "[fe80::1]": 200,
		"localhost:9780": 200, "LOCALHOST": 200, "localhost.:9780": 200,
		"shaper.example.com": 200, "Shaper.Example.com:9780": 200, "shaper.example.com.": 200,
		"": 421, "evil.example": 421, "evil.example:9780": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421,
		"x.shaper.example.com": 421, "127.0.0.1x": 421, "0x7f.1": 421, "shaper.example.com@evil.example": 421,
	} {
		for _, path := range []string{"/", "/events/none", "/main.js"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			if refused := w.Code == http.StatusMisdirectedRequest; refused != (want == http.StatusMisdirectedRequest) {
				t.Errorf("host %q, path %s: status %d, want %d", host, path, w.Code, want)
			}
		}
	}
}

func TestBrowserMayLoadNothingElse(t *testing.T) {
	for _, path := range []string{"/", "/main.js", "/none"} {
		h := ask(New(&fake{}), path).Header
		if got := h.Get("Content-Security-Policy"); got != "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" {
			t.Errorf("%s: the policy is %q", path, got)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// Only the worker of the playground may compile WebAssembly. It gets no more than that: no eval.
func TestOnlyTheWorkerCompiles(t *testing.T) {
	for name := range assets() {
		got := ask(New(&fake{}), "/"+name).Header.Get("Content-Security-Policy")
		want := policy
		if name == "play-worker.js" {
			want += "; script-src 'self' 'wasm-unsafe-eval'"
		}
		if got != want {
			t.Errorf("%s: the policy is %q", name, got)
		}
	}
}

func TestNothingCanBeChanged(t *testing.T) {
	d := New(&fake{})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for _, path := range []string{"/", "/events/classes", "/main.js"} {
			w := httptest.NewRecorder()
			d.ServeHTTP(w, httptest.NewRequest(method, "http://127.0.0.1"+path, nil))
			if w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: status %d", method, path, w.Code)
			}
		}
	}
}
