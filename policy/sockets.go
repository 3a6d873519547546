package policy

import "fmt"

// A socket is an address that the policy binds.
type socket struct {
	key     string
	owner   string // as errors call it
	network Protocol
	addr    string
}

// A socketChecker checks the addresses that the policy binds, and the unix sockets of listeners.
type socketChecker struct{ *checker }

// sockets checks that no address is bound twice, and that no upstream is an address that the
// policy binds. It compares only the texts. A name, or another address of this host, is
// recognized when it is dialled.
func (c socketChecker) sockets() {
	bound := map[string][]socket{} // by port
	for _, s := range c.bound() {
		e, ok := endpointOf(s.addr)
		place := e.port
		if !ok {
			place = s.addr // "systemd:NAME" has no port
		}
		for _, before := range bound[place] {
			if conflict(before, s) && s.addr != "" {
				c.wrong(s.key, fmt.Sprintf("%q is taken by %s (%s)", s.addr, before.owner, before.addr), "each address is bound once")
				break
			}
		}
		bound[place] = append(bound[place], s)
	}
	for i := range c.p.Listeners {
		c.upstreamLoops(&c.p.Listeners[i], bound)
	}
}

// bound returns all addresses that the policy binds.
func (c socketChecker) bound() (all []socket) {
	if c.sound("daemon.control") {
		all = append(all, socket{"daemon.control", "daemon.control", TCP, unixPrefix + beside(c.p.Path, c.p.Daemon.Control)})
	}
	if c.sound("daemon.http") {
		all = append(all, socket{"daemon.http", "daemon.http", TCP, c.p.Daemon.HTTP})
	}
	for _, l := range c.p.Listeners {
		key := join("listener", l.Name)
		for i, addr := range l.Listen {
			if c.sound(key+".listen", key+".protocol") {
				all = append(all, socket{item(key+".listen", i), fmt.Sprintf("listener %q", l.Name), l.Network(), addr})
			}
		}
	}
	return all
}

// conflict reports whether two sockets cannot both be bound, or are the same socket of systemd.
func conflict(a, b socket) bool {
	ae, aok := endpointOf(a.addr)
	be, bok := endpointOf(b.addr)
	if !aok || !bok {
		return a.addr == b.addr && isSystemd(a.addr)
	}
	return a.network == b.network && ae.collides(be)
}

// upstreamLoops checks that no upstream of a listener is an address that the policy binds.
func (c socketChecker) upstreamLoops(l *Listener, bound map[string][]socket) {
	key := join("listener", l.Name) + ".upstream"
	if !c.sound(key, join("listener", l.Name)+".protocol") {
		return
	}
	for i, s := range l.Upstream {
		target, ok := endpointOf(s)
		if !ok {
			continue
		}
		for _, own := range bound[target.port] {
			e, _ := endpointOf(own.addr)
			if own.network == l.Protocol.Network() && own.key != "daemon.http" && e.reachedBy(target) {
				c.wrong(item(key, i), fmt.Sprintf("%q is our own %s (%s)", s, own.owner, own.addr), "the address of another program")
				break
			}
		}
	}
}

// unix checks what only listeners with unix sockets can have, and what they cannot have.
func (c socketChecker) unix(key string, l *Listener) {
	if !c.sound(key+".listen", key+".upstream", key+".protocol") {
		return
	}
	if l.Protocol == UDP {
		c.unixDatagrams(key+".listen", l.Listen)
		c.unixDatagrams(key+".upstream", l.Upstream)
		return
	}
	if l.Unix != nil && !l.bindsFiles() {
		c.wrong(key+".unix", "no address of listen is the path of a unix socket", `listen = "unix:/run/shaper/x.sock", for example, or leave it out`)
	}
	for i, s := range l.Upstream {
		if u := l.UpstreamTLS; u != nil && isUnix(s) && u.ServerName == "" && !u.Insecure {
			c.wrong(item(key+".upstream", i), fmt.Sprintf("%q has no host for which its certificate could be", s), "upstream_tls = { server_name = \"NAME\" }")
		}
	}
}

// unixDatagrams reports unix sockets of a udp listener.
func (c socketChecker) unixDatagrams(key string, addresses []string) {
	for i, s := range addresses {
		if isUnix(s) {
			c.wrong(item(key, i), fmt.Sprintf("%q is a stream, and the listener is for udp", s), "host:port, or another protocol")
		}
	}
}
