package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// tableName is the name of our table, in the family inet.
const tableName = "shaper"

// markName is the name of a chain without rules that nothing uses. Tables that others have made do
// not have it.
const markName = "made_by_shaper_nft"

func ourTable() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

// Apply puts the plan into the kernel of the network namespace of the caller. At no moment is
// there only a part of the rules: if there were rules of an earlier plan, the new ones take their
// place at once. If the kernel refuses them, or if others have made a table of that name, everything
// is as it was.
func (p *Plan) Apply() error {
	if _, err := find(); err != nil {
		return err
	}
	before, err := routed()
	if err != nil {
		return err
	}
	if err := route(p.families); err != nil {
		return errors.Join(err, route(before))
	}
	if err := p.install(); err != nil {
		return errors.Join(err, route(before))
	}
	return nil
}

// install replaces the table.
func (p *Plan) install() error {
	c, err := nftables.New()
	if err != nil {
		return refused("connect", "to nftables", err)
	}
	t := ourTable()
	c.AddTable(t) // or there may be nothing to delete
	c.DelTable(t)
	c.AddTable(t)
	sets := map[string]*nftables.Set{}
	for _, s := range p.sets {
		one := &nftables.Set{Table: t, Name: s.name, KeyType: s.kind(), Interval: true}
		if err := c.AddSet(one, s.elements()); err != nil {
			return refused("add", "the set "+s.name, err)
		}
		sets[s.name] = one
	}
	accept := nftables.ChainPolicyAccept
	for _, one := range p.chains {
		ours := &nftables.Chain{Name: one.name, Table: t}
		if h := one.hook; h != nil {
			ours.Type, ours.Hooknum, ours.Priority, ours.Policy = h.kind, h.at, h.priority, &accept
		}
		c.AddChain(ours)
		for _, r := range one.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: ours, Exprs: r.exprs(sets)})
		}
	}
	return refused("add", "the table inet "+tableName, c.Flush())
}

// exprs returns a rule for the kernel.
func (r rule) exprs(sets map[string]*nftables.Set) []expr.Any {
	all := r.to.exprs(sets)
	for _, s := range r.does {
		all = append(all, s.exprs...)
	}
	return all
}

// Clear removes what plans have put into the kernel, whatever the policy is now. It reports whether
// there was anything. A table that others have made is an error.
func Clear() (found bool, err error) {
	if found, err = find(); err != nil {
		return false, err
	}
	if found {
		if err := deleteTable(); err != nil {
			return true, err
		}
	}
	before, err := routed()
	if err != nil {
		return found, err
	}
	return found || len(before) > 0, route(nil)
}

// find reports whether our table is there. It is an error if others have made it.
func find() (found bool, err error) {
	c, err := nftables.New()
	if err != nil {
		return false, refused("connect", "to nftables", err)
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, refused("read", "the tables", err)
	}
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName }) {
		return false, nil
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, refused("read", "the chains", err)
	}
	if !slices.ContainsFunc(chains, func(one *nftables.Chain) bool { return one.Table.Name == tableName && one.Name == markName }) {
		return false, fmt.Errorf("nft: there is a table inet %[1]s, and others have made it: it has no chain %[2]s; nft delete table inet %[1]s", tableName, markName)
	}
	return true, nil
}

func deleteTable() error {
	c, err := nftables.New()
	if err != nil {
		return refused("connect", "to nftables", err)
	}
	c.DelTable(ourTable())
	return refused("delete", "the table inet "+tableName, c.Flush())
}
