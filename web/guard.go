package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// policy is what a browser may load for the page: nothing that does not come from here.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard refuses requests for hosts that are not this one, and forbids browsers what the page does
// not need. A page of somebody else can give its own name the address of this machine (DNS
// rebinding), and would then read what the operator's browser may read. It cannot have an address
// as its name.
func guard(hosts func() []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isHere(r.Host, hosts()) {
			http.Error(w, fmt.Sprintf("there is no dashboard at the host %.100q: ask for an address, or add the name to http_hosts in [daemon]", r.Host),
				http.StatusMisdirectedRequest)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// isHere reports whether the field Host of a request is an address, localhost, or one of the hosts.
func isHere(host string, hosts []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return host == "localhost" || slices.Contains(hosts, host)
}
