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

// resolver keeps the address of a name for sessions that cannot wait for it:
// those of datagrams.
type resolver struct {
	mu     sync.Mutex
	name   string
	addr   netip.AddrPort // invalid: not known
	at     time.Time      // when it was asked last
	asking bool
}

const (
	namesFresh    = 30 * time.Second // then a name is asked for again
	namesRetry    = time.Second      // the same where it is not known
	namesPatience = 10 * time.Second
)

// lookup returns the address of an upstream; invalid while it is not known.
// A name is asked for in the background, so a stale answer may be returned.
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

// known is lookup without asking.
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

// ask looks a name up. Where that panics, it has no address.
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

func (r *resolver) answer(upstream string, addr netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = false
	if r.name == upstream && addr.IsValid() { // else the stale one serves on
		r.addr = addr
	}
}

// resolve returns the first address of "host:port"; invalid where there is
// none, as for what is built in.
func (s *Server) resolve(ctx context.Context, upstream string) netip.AddrPort {
	addrs, known := literally(upstream)
	if !known {
		addrs, _ = s.lookup(ctx, upstream)
	}
	if len(addrs) == 0 {
		return netip.AddrPort{}
	}
	return addrs[0]
}

// literally returns the addresses of an upstream that is no name. What is built in
// stands for the zero AddrPort.
func literally(upstream string) (addrs []netip.AddrPort, known bool) {
	if upstream == policy.Echo || upstream == policy.Discard {
		return []netip.AddrPort{{}}, true
	}
	if ap, err := netip.ParseAddrPort(upstream); err == nil {
		return []netip.AddrPort{unmapped(ap)}, true
	}
	return nil, false
}

// reachable takes out the addresses that cannot be dialled from bind, which may be
// the zero Addr.
func reachable(addrs []netip.AddrPort, bind netip.Addr) []netip.AddrPort {
	return slices.DeleteFunc(addrs, func(ap netip.AddrPort) bool {
		return ap.IsValid() && bind.IsValid() && bind.Is4() != ap.Addr().Is4()
	})
}

// lookup returns the addresses of "host:port", at least one, in the order in
// which they are to be tried (RFC 6724).
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
