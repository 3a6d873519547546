package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// resolvConf is what resolv.conf(5) says.
type resolvConf struct {
	servers  []netip.AddrPort
	search   []string // domains, each with a dot at its end
	dots     int      // a name with so many dots is looked up as it is first
	timeout  time.Duration
	attempts int
	rotate   bool // begin with another server each time
	overTCP  bool
	silences *silences // of the servers
}

// The bounds of resolv.conf(5).
const (
	maxServers  = 3
	maxDots     = 15
	maxTimeout  = 30
	maxAttempts = 5
)

// readResolvConf reads a file. If there is none, the server is that of this machine, as
// resolv.conf(5) says. port is that of all servers.
func readResolvConf(path string, port uint16, silences *silences) *resolvConf {
	c := &resolvConf{dots: 1, timeout: 5 * time.Second, attempts: 2, silences: silences}
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		line, _, _ = strings.Cut(line, ";")
		if words := strings.Fields(line); len(words) > 1 {
			c.line(words[0], words[1:], port)
		}
	}
	if len(c.servers) == 0 {
		c.servers = []netip.AddrPort{
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), netip.AddrPortFrom(netip.IPv6Loopback(), port),
		}
	}
	return c
}

// line obeys a line of the file.
func (c *resolvConf) line(key string, values []string, port uint16) {
	switch key {
	case "nameserver":
		if addr, err := netip.ParseAddr(values[0]); err == nil && len(c.servers) < maxServers {
			c.servers = append(c.servers, netip.AddrPortFrom(addr, port))
		}
	case "domain", "search": // the last one holds
		c.search = nil
		for _, domain := range values {
			if domain = strings.Trim(domain, "."); domain != "" {
				c.search = append(c.search, domain+".")
			}
		}
	case "options":
		for _, option := range values {
			c.option(option)
		}
	}
}

// option obeys an option. It ignores those that do not concern us.
func (c *resolvConf) option(option string) {
	name, value, _ := strings.Cut(option, ":")
	n, err := strconv.Atoi(value)
	switch valid := err == nil && n >= 0; {
	case name == "ndots" && valid:
		c.dots = min(n, maxDots)
	case name == "timeout" && valid:
		c.timeout = time.Duration(min(max(n, 1), maxTimeout)) * time.Second
	case name == "attempts" && valid:
		c.attempts = min(max(n, 1), maxAttempts)
	case name == "rotate":
		c.rotate = true
	case name == "use-vc":
		c.overTCP = true
	}
}

// rotation counts the questions, for the option rotate.
var rotation atomic.Uint32

// firstServer returns the number of the server to ask first: the next one in turn that is not silent.
func (c *resolvConf) firstServer() int {
	from := 0
	if c.rotate {
		from = int(rotation.Add(1) % uint32(len(c.servers)))
	}
	return c.silences.first(time.Now(), c.servers, from)
}

// silences is which of the servers are silent. No question begins with these. Otherwise a name would never be found while
// the first server is down, if whoever waits for it gives up before the server has had its time. Any number of goroutines
// may use it.
type silences struct {
	mu       sync.Mutex            // guards the fields below
	servers  []netip.AddrPort      // whose silences these are
	until    [maxServers]time.Time // when each may be asked first again; not after now: it is not silent
	answered [maxServers]time.Time // when each did last
}

const (
	silentAfter = 250 * time.Millisecond // without an answer to a question that was then given up
	silentFor   = 5 * time.Minute        // unless it answers
)

// first returns the number of the first server, beginning with from, that is not silent; from if all are.
func (s *silences) first(now time.Time, servers []netip.AddrPort, from int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.servers, servers) { // the file has changed
		s.servers, s.until, s.answered = servers, [maxServers]time.Time{}, [maxServers]time.Time{}
	}
	for i := range servers {
		if n := (from + i) % len(servers); !s.until[n].After(now) {
			return n
		}
	}
	return from
}

// note notes how a question to a server has ended, which began at a time. A server that has answered another one since then
// is not silent: some never answer questions of a type.
func (s *silences) note(now time.Time, servers []netip.AddrPort, n int, began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var network net.Error
	switch {
	case !slices.Equal(s.servers, servers): // they are no longer in use
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if now.Sub(began) >= silentAfter && s.answered[n].Before(began) {
			s.until[n] = now.Add(silentFor)
		}
	case !errors.As(err, &network): // whatever it has answered
		s.until[n], s.answered[n] = time.Time{}, now
	}
}

// candidates returns the full names that a host may mean, in the order in which to ask for them.
func (c *resolvConf) candidates(host string) (all []string) {
	if strings.HasSuffix(host, ".") {
		return []string{host}
	}
	for _, domain := range c.search {
		all = append(all, host+"."+domain)
	}
	if strings.Count(host, ".") >= c.dots {
		return append([]string{host + "."}, all...)
	}
	return append(all, host+".")
}
