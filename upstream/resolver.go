package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"shaper/policy"
)

// A Resolver finds addresses as the system does, and also tells how long they hold, which the
// system's own resolver does not. It asks the hosts file, then the DNS as resolv.conf says, and
// for names that neither knows the system's own resolver: that may know them by mDNS or LDAP,
// for example. It reads the files at each lookup, and remembers which name servers are silent.
type Resolver struct {
	Hosts string // path of the hosts file
	Conf  string // path of resolv.conf
	Port  uint16 // of all name servers
	Other func(ctx context.Context, host string) ([]netip.Addr, error)

	silences silences
}

// System returns the resolver of this system.
func System() *Resolver {
	return &Resolver{Hosts: "/etc/hosts", Conf: "/etc/resolv.conf", Port: 53, Other: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
}

// fileTTL is how long an answer holds that comes without a TTL.
const fileTTL = 5 * time.Second

// otherTTL is how long an answer of the system's own resolver holds, which costs more to ask.
const otherTTL = 30 * time.Second

// Lookup is a [Lookup] for "host:port" and for "srv:_service._proto.name" (RFC 2782). The hosts
// of an SRV record come by their priority, without those that have no address.
func (r *Resolver) Lookup(ctx context.Context, upstream string, known []Address) (Answer, error) {
	if service, ok := strings.CutPrefix(upstream, policy.SRV); ok {
		return r.service(ctx, service, known)
	}
	host, port, err := net.SplitHostPort(upstream)
	if err != nil {
		return Answer{}, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Answer{}, fmt.Errorf("%q is not a port", port)
	}
	addrs, ttl, err := r.host(ctx, host, addrsOf(known, ""))
	if err != nil {
		return Answer{}, err
	}
	return Answer{addressesOf(addrs, uint16(number), Address{}), ttl}, nil
}

// addressesOf returns addresses with a port. Host, Priority and Weight are those of like.
func addressesOf(addrs []netip.Addr, port uint16, like Address) (all []Address) {
	for _, addr := range addrs {
		like.AddrPort = netip.AddrPortFrom(addr, port)
		all = append(all, like)
	}
	return all
}

// addrsOf returns those of known that are of a host of SRV records, each once; "": of no record.
func addrsOf(known []Address, host string) (all []netip.Addr) {
	for _, at := range known {
		if at.Host == host && !slices.Contains(all, at.Addr()) {
			all = append(all, at.Addr())
		}
	}
	return all
}

// service looks up the hosts of a service.
func (r *Resolver) service(ctx context.Context, service string, known []Address) (answer Answer, err error) {
	conf := readResolvConf(r.Conf, r.Port, &r.silences)
	records, err := firstOf(conf.candidates(service), func(name string) ([]dnsmessage.Resource, error) {
		return conf.query(ctx, name, dnsmessage.TypeSRV)
	})
	if err != nil {
		return answer, fmt.Errorf("lookup %s: %w", service, err)
	}
	hosts, ttl := servers(records)
	if len(hosts) == 0 {
		return answer, fmt.Errorf("lookup %s: the service is not available here", service)
	}
	found := make([]Answer, len(hosts))
	errs := make([]error, len(hosts))
	atOnce(ctx, len(hosts), func(ctx context.Context, i int) time.Duration {
		if found[i], errs[i] = r.server(ctx, hosts[i], known); errs[i] != nil {
			return 0
		}
		return graceAfter(addrsOf(found[i].Addresses, hosts[i].Target.String()), len(known) > 0)
	})
	if !slices.Contains(errs, nil) {
		return answer, errors.Join(errs...)
	}
	answer.TTL = ttl
	for _, one := range found {
		answer.Addresses = append(answer.Addresses, one.Addresses...)
		answer.TTL = min(answer.TTL, one.TTL)
	}
	answer.Addresses = answer.Addresses[:min(len(answer.Addresses), maxAddresses)]
	return answer, nil
}

// server looks up the host of an SRV record. If that fails, the host keeps its known addresses.
func (r *Resolver) server(ctx context.Context, h *dnsmessage.SRVResource, known []Address) (Answer, error) {
	host := h.Target.String()
	before := addrsOf(known, host)
	addrs, ttl, err := r.host(ctx, host, before)
	switch {
	case err == nil:
	case isNotFound(err):
		ttl = maxTTL
	default:
		addrs, ttl = before, partialTTL
	}
	return Answer{addressesOf(addrs, h.Port, Address{Host: host, Priority: h.Priority, Weight: h.Weight}), ttl}, err
}

// isNotFound reports whether an error says that there is no such host.
func isNotFound(err error) bool {
	var other *net.DNSError
	return errors.Is(err, errNoSuchHost) || errors.As(err, &other) && other.IsNotFound
}

// Some name servers never answer a question for IPv6 (RFC 4074), and a host of a service may have a name
// server that is down. So once a question has found addresses, the others have a grace. RFC 8305, section
// 3, says 50 ms; but there, an answer that comes later is still used. Here, the next lookup finds it.
const (
	grace     = time.Second     // if somebody may wait for the first answer
	longGrace = 6 * time.Second // if nobody does: to ask once more, after the 5 s of resolv.conf(5)
)

// graceAfter returns the grace of the other questions after one has found some addresses; 0 if it has
// found none. Addresses to which there is no route help nobody who waits.
func graceAfter(found []netip.Addr, known bool) time.Duration {
	switch {
	case len(found) == 0:
		return 0
	case known || !slices.ContainsFunc(found, hasRoute):
		return longGrace
	}
	return grace
}

// partialTTL is how long addresses hold if a question for others has failed.
const partialTTL = 5 * time.Second

// atOnce asks n questions at once. ask returns the grace after which ctx of the others ends; 0 for none.
// If ask panics, so does atOnce, when the others are over.
func atOnce(ctx context.Context, n int, ask func(ctx context.Context, i int) (grace time.Duration)) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	panics := make(chan string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- fmt.Sprintf("%v\n%s", p, debug.Stack())
				}
			}()
			if grace := ask(ctx, i); grace > 0 {
				time.AfterFunc(grace, end)
			}
		})
	}
	wg.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
}

// maxServices bounds the hosts of an SRV record that are looked up.
const maxServices = 32

// maxAddresses bounds the addresses of an upstream, whatever the DNS answers. Each session
// chooses among them, and each has its checks. It is even: half of them are of each family.
const maxAddresses = 64

// servers returns the hosts of SRV records by their priority, and how long they hold.
func servers(records []dnsmessage.Resource) (all []*dnsmessage.SRVResource, ttl time.Duration) {
	ttl = maxTTL
	for _, record := range records {
		ttl = min(ttl, time.Duration(record.Header.TTL)*time.Second)
		if srv, ok := record.Body.(*dnsmessage.SRVResource); ok && srv.Target.String() != "." {
			all = append(all, srv)
		}
	}
	slices.SortStableFunc(all, func(a, b *dnsmessage.SRVResource) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Weight, a.Weight))
	})
	return all[:min(len(all), maxServices)], ttl
}

// host looks up the addresses of a host, and returns them in the order in which to try them. known are
// those that it had.
func (r *Resolver) host(ctx context.Context, host string, known []netip.Addr) (all []netip.Addr, ttl time.Duration, err error) {
	if addr, err := netip.ParseAddr(strings.TrimSuffix(host, ".")); err == nil {
		return []netip.Addr{addr.Unmap()}, maxTTL, nil
	}
	if all = inHosts(r.Hosts, host); len(all) > 0 {
		return inTurn(all, hasRoute), fileTTL, nil
	}
	conf := readResolvConf(r.Conf, r.Port, &r.silences)
	all, err = firstOf(conf.candidates(host), func(name string) ([]netip.Addr, error) {
		var found []netip.Addr
		found, ttl, err = conf.addresses(ctx, name, known)
		return found, err
	})
	if errors.Is(err, errNoSuchHost) && r.Other != nil {
		ttl = otherTTL
		if all, err = r.Other(ctx, host); err != nil {
			return nil, 0, err
		}
		for i, addr := range all {
			all[i] = addr.Unmap()
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("lookup %s: %w", host, err)
	}
	return inTurn(all, hasRoute), ttl, nil
}

// firstOf returns what find returns for the first of names that exists.
func firstOf[T any](names []string, find func(string) ([]T, error)) (all []T, err error) {
	for _, name := range names {
		if all, err = find(name); !errors.Is(err, errNoSuchHost) {
			break
		}
	}
	return all, err
}

// addresses asks for the IPv4 and the IPv6 addresses of a full name at once. If there are some of one
// family, and the question for the other has failed, that keeps its known addresses.
func (c *resolvConf) addresses(ctx context.Context, name string, known []netip.Addr) (all []netip.Addr, ttl time.Duration, err error) {
	kinds := [...]dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeA}
	var found [len(kinds)]family
	atOnce(ctx, len(kinds), func(ctx context.Context, i int) time.Duration {
		found[i] = c.family(ctx, name, kinds[i])
		return graceAfter(found[i].addrs, len(known) > 0)
	})
	answered := len(found[0].addrs)+len(found[1].addrs) > 0
	for i, f := range found {
		switch {
		case f.failed() && !answered:
			return nil, 0, f.err // it may have addresses
		case f.failed():
			f.addrs = slices.DeleteFunc(slices.Clone(known), func(a netip.Addr) bool { return a.Is4() != (kinds[i] == dnsmessage.TypeA) })
		}
		all = append(all, f.addrs...)
	}
	if len(all) == 0 {
		return nil, 0, errNoSuchHost
	}
	return all, min(found[0].ttl, found[1].ttl), nil
}

// A family is what is known of the addresses of one family.
type family struct {
	addrs []netip.Addr
	ttl   time.Duration
	err   error
}

// failed reports whether no server has said what there is.
func (f *family) failed() bool { return f.err != nil && !errors.Is(f.err, errNoSuchHost) }

// family asks for the addresses of one family.
func (c *resolvConf) family(ctx context.Context, name string, kind dnsmessage.Type) (f family) {
	var records []dnsmessage.Resource
	f.ttl = maxTTL
	if records, f.err = c.query(ctx, name, kind); f.failed() {
		f.ttl = partialTTL
	}
	for _, record := range records {
		f.ttl = min(f.ttl, time.Duration(record.Header.TTL)*time.Second) // that of an alias holds, too
		switch body := record.Body.(type) {
		case *dnsmessage.AAAAResource:
			f.addrs = append(f.addrs, netip.AddrFrom16(body.AAAA).Unmap())
		case *dnsmessage.AResource:
			f.addrs = append(f.addrs, netip.AddrFrom4(body.A))
		}
	}
	return f
}

// inTurn returns addresses in the order in which to try them: those to which there is a route
// first, and of these one of each family in turn, beginning with native IPv6 (RFC 6724, RFC
// 8305 section 4). Within a family the order stays. Of each family it returns only the first
// maxAddresses/2.
func inTurn(addrs []netip.Addr, routed func(netip.Addr) bool) (all []netip.Addr) {
	var six, four, unrouted []netip.Addr
	seen, ofFamily := map[netip.Addr]bool{}, map[bool]int{}
	for _, a := range addrs {
		if seen[a] || ofFamily[a.Is4()] == maxAddresses/2 {
			continue
		}
		seen[a] = true
		ofFamily[a.Is4()]++
		switch {
		case !routed(a):
			unrouted = append(unrouted, a)
		case a.Is4():
			four = append(four, a)
		default:
			six = append(six, a)
		}
	}
	first, second := six, four
	if len(six) > 0 && !native(six[0]) {
		first, second = four, six
	}
	for i := range max(len(first), len(second)) {
		all = append(all, first[min(i, len(first)):min(i+1, len(first))]...)
		all = append(all, second[min(i, len(second)):min(i+1, len(second))]...)
	}
	return append(all, unrouted...)
}

// tunnelled are the IPv6 addresses to which RFC 6724 prefers IPv4: 6to4, Teredo, and those
// within a site.
var tunnelled = []netip.Prefix{netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("fc00::/7")}

func native(a netip.Addr) bool {
	return !slices.ContainsFunc(tunnelled, func(p netip.Prefix) bool { return p.Contains(a) })
}

// hasRoute reports whether the kernel has a route to an address. It sends nothing.
func hasRoute(a netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false
	}
	c.Close()
	return true
}
