package conn

import (
	"context"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"shaper/policy"
)

// resolver caches the address of a name for UDP sessions, which cannot wait for it.
type resolver struct {
	mu     sync.Mutex // guards the fields below
	name   string
	addr   netip.AddrPort // invalid: not known
	at     time.Time      // when the last lookup began
	asking bool           // a lookup runs
}

const (
	namesFresh    = 30 * time.Second // between two lookups of a name
	namesRetry    = time.Second      // the same while its address is not known
	namesPatience = 10 * time.Second // for one lookup
)

// lookup returns the address of an upstream; invalid while it is not known. It looks names up
// in the background, so the address may be stale.
func (r *resolver) lookup(s *Server, upstream string) netip.AddrPort {
	if ap, err := netip.ParseAddrPort(upstream); err == nil {
		return unmapped(ap)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.name != upstream {
		r.name, r.addr, r.at = upstream, netip.AddrPort{}, time.Time{}
	}
	fresh := namesFresh
	if !r.addr.IsValid() {
		fresh = namesRetry
	}
	if !r.asking && time.Since(r.at) > fresh {
		r.asking, r.at = true, time.Now()
		s.wg.Go(func() { r.ask(s, upstream) })
	}
	return r.addr
}

// known is lookup, but starts none.
func (r *resolver) known(upstream string) netip.AddrPort {
	if ap, err := netip.ParseAddrPort(upstream); err == nil {
		return unmapped(ap)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.name != upstream {
		return netip.AddrPort{}
	}
	return r.addr
}

// ask looks a name up. A panic counts as no answer.
func (r *resolver) ask(s *Server, upstream string) {
	var addr netip.AddrPort
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("lookup panicked", "upstream", upstream, "panic", p, "stack", string(debug.Stack()))
		}
		r.answer(upstream, addr)
	}()
	ctx, cancel := context.WithTimeout(s.ctx, namesPatience)
	defer cancel()
	addr = s.resolve(ctx, upstream)
}

// answer ends a lookup.
func (r *resolver) answer(upstream string, addr netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = false
	if r.name == upstream && addr.IsValid() { // otherwise the stale address stays
		r.addr = addr
	}
}

// resolve returns the first address of an upstream; invalid if it has none or is built in.
func (s *Server) resolve(ctx context.Context, upstream string) netip.AddrPort {
	addrs, known := literal(upstream)
	if !known {
		addrs, _ = s.lookup(ctx, upstream)
	}
	if len(addrs) == 0 {
		return netip.AddrPort{}
	}
	return addrs[0]
}

// literal returns the addresses of an upstream that needs no lookup: an address, or the zero
// AddrPort for a built-in upstream and for a unix socket.
func literal(upstream string) (addrs []netip.AddrPort, known bool) {
	if _, isUnix := policy.UnixName(upstream); isUnix || upstream == policy.Echo || upstream == policy.Discard {
		return []netip.AddrPort{{}}, true
	}
	if ap, err := netip.ParseAddrPort(upstream); err == nil {
		return []netip.AddrPort{unmapped(ap)}, true
	}
	return nil, false
}

// reachable returns the addresses that can be dialled from bind: those of its family. The zero
// bind allows all. It changes addrs.
func reachable(addrs []netip.AddrPort, bind netip.Addr) []netip.AddrPort {
	return slices.DeleteFunc(addrs, func(ap netip.AddrPort) bool {
		return ap.IsValid() && bind.IsValid() && bind.Is4() != ap.Addr().Is4()
	})
}

// lookup returns the addresses of "host:port", at least one, in the order in which to try them
// (RFC 6724).
func lookup(ctx context.Context, upstream string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(upstream)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	all := make([]netip.AddrPort, len(addrs))
	for i, addr := range addrs {
		all[i] = netip.AddrPortFrom(addr.Unmap(), uint16(port))
	}
	return all, nil
}
