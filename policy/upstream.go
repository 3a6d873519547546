package policy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"shaper/unit"
)

// Balance says which of its upstreams a session gets.
type Balance string

// The values of Balance.
const (
	InOrder          Balance = "order"             // the first that can be reached
	RoundRobin       Balance = "round-robin"       // each in turn
	LeastConnections Balance = "least-connections" // the one with the fewest sessions
	LeastInFlight    Balance = "least-in-flight"   // the one with the fewest requests without an answer
)

const (
	balanceForm = `"order", "round-robin", "least-connections" or "least-in-flight"`
	healthForm  = `a table like { every = "5s", timeout = "2s", http = "/health", rise = 2, fall = 3 }`
	addressForm = `an address is like "192.0.2.1:2775", or "unix:/run/x.sock"`
	checksForm  = `an integer from 1 to 100`
	checkForm   = `a path like "/health"`
)

// Health is the key health of a listener: how its upstreams are checked. The zero Health checks
// only those that a session could not reach.
type Health struct {
	Every   unit.Duration `json:"every"`   // between two checks of an address
	Timeout unit.Duration `json:"timeout"` // for one check
	// At most one of these is set. If none is, TCP is meant.
	TCP  bool   `json:"tcp,omitempty"`  // a connection, and the TLS handshake if there is TLS
	HTTP string `json:"http,omitempty"` // a GET of this path, answered by 2xx or 3xx; "": none
	SMPP bool   `json:"smpp,omitempty"` // an enquire_link, answered by any PDU

	Rise int `json:"rise"` // so many checks in a row that succeed bring an address back
	Fall int `json:"fall"` // so many that fail take it out
}

// DefaultHealth has the values of a table health that leaves keys out.
var DefaultHealth = Health{
	Every: unit.Duration(5 * time.Second), Timeout: unit.Duration(2 * time.Second),
	Rise: 2, Fall: 3, // as HAProxy
}

// ShownHTTP returns HTTP for people and logs: without the query, which may hold a key.
func (h Health) ShownHTTP() string { return withoutQuery(h.HTTP) }

// String prints the table as a policy file has it, but without the query of HTTP; and the zero Health as "".
func (h Health) String() string {
	if h == (Health{}) {
		return ""
	}
	check := "tcp = true"
	switch {
	case h.HTTP != "":
		check = "http = " + quote(h.ShownHTTP())
	case h.SMPP:
		check = "smpp = true"
	}
	return fmt.Sprintf("{ every = %q, timeout = %q, %s, rise = %d, fall = %d }", h.Every, h.Timeout, check, h.Rise, h.Fall)
}

var (
	parseBalance = choice(balanceForm, []Balance{InOrder, RoundRobin, LeastConnections, LeastInFlight})
	parseChecks  = integer(1, 100, checksForm)
)

var healthFields = []field[Health]{
	quantity("every", func(h *Health) *unit.Duration { return &h.Every }, parseWait),
	quantity("timeout", func(h *Health) *unit.Duration { return &h.Timeout }, parseWait),
	yesNo("tcp", func(h *Health) *bool { return &h.TCP }),
	one("http", checkForm, func(h *Health) *string { return &h.HTTP }, parseCheckPath),
	yesNo("smpp", func(h *Health) *bool { return &h.SMPP }),
	onlyIntegers(one("rise", checksForm, func(h *Health) *int { return &h.Rise }, parseChecks)),
	onlyIntegers(one("fall", checksForm, func(h *Health) *int { return &h.Fall }, parseChecks)),
}

// parseCheckPath reads the path of a check, which goes into a request as it is.
func parseCheckPath(s string) (string, error) {
	outside := func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }
	if !strings.HasPrefix(s, "/") || len(s) > 1000 || strings.ContainsFunc(s, outside) {
		return "", complain(checkForm, "%q is not a path", s)
	}
	return s, nil
}

// WeightOf returns the weight of upstream i.
func (l *Listener) WeightOf(i int) int {
	if i < len(l.Weights) {
		return l.Weights[i]
	}
	return 1
}

// ServerName returns the name of the host that an upstream means: that of "host:port", or the
// domain of a service ("acme.example" of "srv:_smpp._tcp.acme.example"; RFC 9525 section 6.1).
func ServerName(upstream string) string {
	if service, ok := strings.CutPrefix(upstream, SRV); ok {
		parts := strings.SplitN(service, ".", 3)
		return strings.TrimSuffix(parts[len(parts)-1], ".")
	}
	host, _, _ := net.SplitHostPort(upstream)
	host, _, _ = strings.Cut(strings.TrimSuffix(host, "."), "%")
	return host
}

// upstreamField is the key upstream. An item of its list is an address, or a table with one and
// its weight.
var upstreamField = func() field[Listener] {
	f := many("upstream", upstreamForm, func(l *Listener) *[]string { return &l.Upstream }, parseUpstream)
	parse := f.set
	f.set = func(l *Listener, s string) error {
		err := parse(l, s)
		if err == nil {
			l.weigh(1)
		}
		return err
	}
	f.keys = func() []Setting { return keysOf(weightedFields, weighted{weight: 1}) }
	f.decodeTable = func(r *report, key string, n *node, into *Listener, whole bool) {
		one := weighted{weight: 1}
		if decode(r, key, n, &one, weightedFields, whole); one.address != "" {
			into.Upstream = append(into.Upstream, one.address)
			into.weigh(one.weight)
		}
	}
	f.get = func(l *Listener) string {
		var all []string
		for i, upstream := range l.Upstream {
			if w := l.WeightOf(i); w != 1 {
				upstream += fmt.Sprintf(" (weight %d)", w)
			}
			all = append(all, upstream)
		}
		return list(all)
	}
	return f
}()

// weighted is an upstream as a table.
type weighted struct {
	address string
	weight  int
}

var weightedFields = []field[weighted]{
	require(one("address", addressForm, func(w *weighted) *string { return &w.address }, parseUpstream)),
	onlyIntegers(one("weight", weightForm, func(w *weighted) *int { return &w.weight }, parseWeight)),
}

// weigh gives the last upstream its weight. As long as each is 1, there are no Weights.
func (l *Listener) weigh(weight int) {
	if l.Weights == nil && weight == 1 {
		return
	}
	for len(l.Weights) < len(l.Upstream)-1 {
		l.Weights = append(l.Weights, 1)
	}
	l.Weights = append(l.Weights, weight)
}

// mostBinds is how many addresses the key bind may have.
const mostBinds = 64

// bindField is the key bind of a listener.
var bindField = func() field[Listener] {
	f := many("bind", addrForm, func(l *Listener) *[]netip.Addr { return &l.Bind }, parseAddr)
	parse := f.set
	f.set = func(l *Listener, s string) error {
		err := parse(l, s)
		last := len(l.Bind) - 1
		switch {
		case err != nil:
			return err
		case slices.Contains(l.Bind[:last], l.Bind[last]):
			return complain("name each address once", "%q is named twice", s)
		case last == mostBinds:
			return complain(fmt.Sprintf("a list of up to %d", mostBinds), "%q is one too many", s)
		}
		return nil
	}
	return f
}()
