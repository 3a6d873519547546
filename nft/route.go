package nft

import (
	"errors"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"shaper/policy"
)

const (
	routeTable   = policy.InterceptedMark >> 16 // of routes
	rulePriority = 100                          // before the rules of most others
)

// families are those that may be routed.
var families = []int{unix.AF_INET, unix.AF_INET6}

// route routes the marked packets of some families to this machine, and those of no other.
func route(wanted []int) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return refused("find the device", "lo", err)
	}
	for _, family := range families {
		if !slices.Contains(wanted, family) {
			if err := unroute(family, lo); err != nil {
				return err
			}
			continue
		}
		if err := netlink.RuleAdd(routingRule(family)); err != nil && !errors.Is(err, unix.EEXIST) {
			return refused("add", "the routing rule", err)
		}
		if err := netlink.RouteReplace(localRoute(family, lo)); err != nil {
			return refused("add", "the route to lo", err)
		}
	}
	return nil
}

// unroute removes the rule and the route of a family, if they are there.
func unroute(family int, lo netlink.Link) error {
	absent := []error{unix.ENOENT, unix.ESRCH, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.ENODEV}
	isAbsent := func(err error) bool {
		return err == nil || slices.ContainsFunc(absent, func(one error) bool { return errors.Is(err, one) })
	}
	if err := netlink.RuleDel(routingRule(family)); !isAbsent(err) {
		return refused("delete", "the routing rule", err)
	}
	if err := netlink.RouteDel(localRoute(family, lo)); !isAbsent(err) {
		return refused("delete", "the route to lo", err)
	}
	return nil
}

// routingRule sends marked packets to our table of routes.
func routingRule(family int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Mark, r.Table = family, rulePriority, policy.InterceptedMark, routeTable
	return r
}

// localRoute is the only route there: every address is one of this machine.
func localRoute(family int, lo netlink.Link) *netlink.Route {
	all := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if family == unix.AF_INET6 {
		all = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{Family: family, LinkIndex: lo.Attrs().Index, Table: routeTable, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Dst: all}
}

// routed returns the families that have the routing rule.
func routed() (all []int, err error) {
	for _, family := range families {
		rules, err := netlink.RuleListFiltered(family, routingRule(family), netlink.RT_FILTER_MARK|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PRIORITY)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return nil, refused("read", "the routing rules", err)
		}
		if len(rules) > 0 {
			all = append(all, family)
		}
	}
	return all, nil
}
