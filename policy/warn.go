package policy

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"shaper/unit"
)

// A warner reports what is legal and probably not meant.
type warner struct{ *checker }

// warnAll reports all warnings that need no look at other files.
func (c warner) warnAll() {
	upstream, used := c.used()
	carried := answerChecker(c).carriedBelow()
	for _, class := range c.p.Classes {
		key := join("class", class.Name)
		if class.Limit().IsZero() && class.isBlocked() {
			c.warn(key+".rate", fmt.Sprintf("%q lets nothing pass", class.Rate), "a rate above 0, unless this is to block")
		}
		timesChecker(c).warnTimes(&class)
		for i, l := range class.Also {
			if l.Rate.IsZero() {
				c.warn(item(key+".also", i), fmt.Sprintf("%q lets nothing pass", l.Rate), "a rate above 0, unless this is to block")
			}
		}
		if used[class.Name] && class.MaxConnections > 0 && !upstream[class.Name] {
			c.warn(key+".max_connections", "it bounds nothing: sessions are in their class, not in their return_class",
				"put it into a class that a listener or a rule names as class")
		}
		c.warnKeys(key, &class)
		c.warnAnswers(&class, carried[class.Name])
		c.warnPrices(key, &class)
		c.warnPaths(key, &class)
	}
	c.warnUnused(used)
	pathChecker(c).warnAssured()
	c.warnTLS()
	c.warnFleets()
	c.warnOpen()
	c.warnPorts()
	c.warnClaims()
	kernelChecker(c).warnKernel()
	warnRules(c.report, c.p, kernelChecker(c).inKernel())
}

// warnUnused warns of the classes that are not in used, at the first of them.
func (c warner) warnUnused(used map[string]bool) {
	var unused []string
	for _, class := range c.p.Classes {
		if !used[class.Name] {
			unused = append(unused, class.Name)
		}
	}
	switch len(unused) {
	case 0:
	case 1:
		c.warn(join("class", unused[0]), "it is never used", "name it in a listener or a rule")
	default:
		c.warn(join("class", unused[0]), "it is never used, like "+few(unused[1:]), "name them in a listener or a rule")
	}
}

// used returns the names of the classes that listeners, rules or devices use, and of the
// classes above them: upstream only those of the direction upstream, and all of both.
func (c warner) used() (upstream, all map[string]bool) {
	upstream = map[string]bool{}
	for _, l := range c.p.Listeners {
		c.mark(upstream, l.Class)
	}
	for _, rule := range c.p.Rules {
		c.mark(upstream, rule.Class)
	}
	all = maps.Clone(upstream)
	for _, l := range c.p.Listeners {
		c.mark(all, l.ReturnClass)
	}
	for _, rule := range c.p.Rules {
		c.mark(all, rule.ReturnClass)
	}
	for name := range kernelChecker(c).inKernel() {
		c.mark(all, name)
	}
	return upstream, all
}

// mark adds a class and the classes above it to used.
func (c warner) mark(used map[string]bool, name string) {
	for class := c.classes[name]; class != nil && !used[class.Name]; class = c.above(class) {
		used[class.Name] = true
	}
}

// warnAnswers warns of an in_flight that bounds nothing, because no message of the class or
// below it has an answer. carried holds the protocols of those messages.
func (c warner) warnAnswers(class *Class, carried map[Protocol]bool) {
	if class.InFlight > 0 && len(carried) > 0 && !carried[SMPP] && !carried[HTTP] {
		c.warn(join("class", class.Name)+".in_flight", "it bounds nothing: only messages of smpp and http have answers", "leave it out")
	}
}

// warnPrices warns of a cost or settle that messages of the class do not use: the nearest class that has
// one for the unit says it for all classes above.
func (c warner) warnPrices(key string, class *Class) {
	const allowed = "leave out one of the two, or count in another unit"
	nearest := func(has func(*Class) bool) *Class {
		above := c.above(class)
		for above != nil && !(above.Rate.Kind() == class.Rate.Kind() && has(above)) {
			above = c.above(above)
		}
		return above
	}
	if above := nearest(func(c *Class) bool { return c.Cost != nil }); above != nil && class.Cost != nil && *class.Cost != *above.Cost {
		c.warn(key+".cost", fmt.Sprintf("it says what a message costs in class %q, too, so that class's own cost is not used for it", above.Name), allowed)
	}
	if above := nearest(func(c *Class) bool { return c.Settle != nil }); above != nil && class.Settle != nil && *class.Settle != *above.Settle {
		c.warn(key+".settle", fmt.Sprintf("it says where an answer has the cost for class %q, too, so that class's own settle is not used for it", above.Name), allowed)
	}
}

// warnPaths warns of paths in JSON that are written as other programs write them. They are valid, since a name may contain
// anything but a point.
func (c warner) warnPaths(key string, class *Class) {
	look := func(name string, path Path) {
		if plain := path.plain(); plain != path {
			c.warn(key+"."+name+".json", fmt.Sprintf("%q looks for a name with such signs in it, and is no JSONPath", path), fmt.Sprintf("write %q", plain))
		}
	}
	if class.Cost != nil {
		look("cost", class.Cost.JSON)
	}
	if class.Settle != nil {
		look("settle", class.Settle.JSON)
	}
	if class.ThrottledBy != nil {
		look("throttled_by", class.ThrottledBy.JSON)
	}
}

// warnKeys warns of limits that never apply, because the bucket of a connection never gets
// another connection.
func (c warner) warnKeys(key string, class *Class) {
	const allowed = `per = "source", for example`
	switch {
	case !class.Per.Has(ByConnection):
	case class.Rate.Kind() == unit.Connections && !class.Limit().IsZero():
		c.warn(key+".per", "each connection has a bucket of its own, so there is no limit to them", allowed)
	case class.MaxConnections > 0:
		c.warn(key+".max_connections", "each connection has a bucket of its own, so this bounds nothing", allowed)
	}
}

// warnTLS warns of upstreams that are not verified.
func (c warner) warnTLS() {
	for _, l := range c.p.Listeners {
		if l.UpstreamTLS != nil && l.UpstreamTLS.Insecure {
			c.warn(join("listener", l.Name)+".upstream_tls.insecure", "nobody verifies the upstream: anyone on the path can read and change everything",
				"ca = the upstream's own certificate, or that of its authority")
		}
	}
}

// readableByOthers is the permission to read a file for all but its owner and its group.
const readableByOthers = 0o004

// openKeys warns of private keys that every user of this host may read.
func (p *Policy) openKeys() (warnings Errors) {
	p.tlsPaths(func(key string, path *string) {
		if !strings.HasSuffix(key, ".key") || *path == "" {
			return
		}
		if info, err := os.Stat(*path); err == nil && info.Mode().Perm()&readableByOthers != 0 {
			warnings = append(warnings, p.BindError(key, "", fmt.Sprintf("others may read %s (mode %#o)", *path, info.Mode().Perm()), "chmod o= "+*path))
		}
	})
	return warnings
}
