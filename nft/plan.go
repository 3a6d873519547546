package nft

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"shaper/policy"
)

// Plan is what the transparent listeners of a policy need of the kernel.
type Plan struct {
	chains   []chain // those that others jump to come first
	sets     []set   // the special addresses of each family that has transparent listeners
	families []int   // whose marked packets are routed to this machine
}

// chain is a chain of rules. If it has no hook, another chain jumps to it.
type chain struct {
	name  string
	hook  *hook
	rules []rule
}

// hook is where packets come to a chain.
type hook struct {
	kind     nftables.ChainType
	at       *nftables.ChainHook
	priority *nftables.ChainPriority
	words    string
}

var (
	// The order among other tables: tproxy comes before the routing, redirect where NAT is.
	prerouting = hook{nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle, "type filter hook prerouting priority mangle; policy accept;"}
	output     = hook{nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest, "type nat hook output priority -100; policy accept;"}
)

// rule does something with packets for some destinations.
type rule struct {
	to   destination
	does []statement
}

// Of returns the plan of a policy. It is an error if there is no transparent listener.
func Of(p *policy.Policy) (*Plan, error) {
	plan := &Plan{}
	forwarded := chain{name: "prerouting", hook: &prerouting, rules: []rule{{does: []statement{isLocal, returns}}}}
	host := chain{name: "output", hook: &output, rules: []rule{{does: []statement{isOurs, returns}}, {does: []statement{isLocal, returns}}}}
	for _, l := range p.Listeners {
		if l.Mode != policy.Transparent {
			continue
		}
		if slices.Contains(l.Intercept, policy.Forwarded) {
			name := plan.add("forwarded_", &l, intercept)
			taken := begins
			if l.Network() == policy.UDP {
				taken = isDatagram
			}
			forwarded.rules = append(forwarded.rules, rule{does: []statement{taken, jumpTo(name)}})
		}
		if slices.Contains(l.Intercept, policy.FromHost) {
			host.rules = append(host.rules, rule{does: []statement{jumpTo(plan.add("host_", &l, redirect))}})
		}
	}
	if len(plan.chains) == 0 {
		return nil, fmt.Errorf(`shaper: %s has no listener with mode = "transparent"`, p.Path)
	}
	if len(forwarded.rules) > 1 {
		// What follows in a connection, and what comes for a session that has the address of its
		// client. A listener that is bound to all addresses would match what others send to its port.
		forwarded.rules = append(forwarded.rules, rule{does: []statement{isWildcard, returns}}, rule{does: []statement{isTransparent, marked, accepts}})
		plan.chains = append(plan.chains, forwarded)
		plan.families = plan.has()
	}
	if len(host.rules) > 2 {
		plan.chains = append(plan.chains, host)
	}
	plan.chains = append(plan.chains, chain{name: markName})
	return plan, nil
}

// add adds the chain of a listener, and returns its name. It takes exactly those destinations that
// [policy.Listener.Allows] allows, apart from what is embedded in an address, and from broadcasts,
// which stay with this machine: prefixes within a special range come before the set of special
// addresses, and wider ones after it.
func (p *Plan) add(prefix string, l *policy.Listener, take func(netip.AddrPort) []statement) (name string) {
	c := chain{name: prefix + l.Name}
	if l.Network() == policy.UDP {
		c.rules = append(c.rules, rule{does: []statement{isBroadcast, returns}})
	}
	to := func(t policy.Target) destination {
		return destination{protocol: l.Network(), prefix: t.Prefix, ports: t.Ports}
	}
	for _, t := range l.Deny {
		c.rules = append(c.rules, rule{to(t), []statement{returns}})
	}
	var wide []rule
	for _, t := range l.Allow {
		at, _ := l.InterceptAt(t.Prefix.Addr().Is6())
		one := rule{to(t), take(at)}
		if _, special := policy.SpecialOf(t.Prefix); special {
			c.rules = append(c.rules, one)
			continue
		}
		if len(wide) == 0 || !slices.ContainsFunc(wide, func(r rule) bool { return r.to.is6() == one.to.is6() }) {
			wide = append(wide, rule{destination{prefix: t.Prefix, special: true}, []statement{returns}})
			p.needs(one.to.is6())
		}
		wide = append(wide, one)
	}
	c.rules = append(c.rules, wide...)
	p.chains = append(p.chains, c)
	return c.name
}

// needs adds the set of special addresses of a family, unless the plan has it.
func (p *Plan) needs(v6 bool) {
	if s := specials(v6); !slices.ContainsFunc(p.sets, func(o set) bool { return o.name == s.name }) {
		p.sets = append(p.sets, s)
	}
}

// has returns the families of the destinations of all chains.
func (p *Plan) has() (all []int) {
	for _, c := range p.chains {
		for _, r := range c.rules {
			if family := r.to.family(); r.to.prefix.IsValid() && !slices.Contains(all, family) {
				all = append(all, family)
			}
		}
	}
	slices.Sort(all)
	return all
}
