package policy

import (
	"fmt"
	"maps"
	"os"
	"shaper/unit"
	"strings"
)

// A warner reports what is legal and probably not meant.
type warner struct{ *checker }

// warnAll reports what is legal and probably not meant.
func (c warner) warnAll() {
	upwards, used := c.used()
	carried := c.carriedBelow()
	for _, class := range c.p.Classes {
		key := join("class", class.Name)
		if class.Limit().IsZero() {
			c.warn(key+".rate", fmt.Sprintf("%q lets nothing pass", class.Rate), "a rate above 0, unless this is to block")
		}
		if !used[class.Name] {
			c.warn(key, "it is never used", "name it in a listener or a rule")
		} else if class.MaxConnections > 0 && !upwards[class.Name] {
			c.warn(key+".max_connections", "it bounds nothing: sessions are in their class, not in their return_class",
				"put it into a class that a listener or a rule names as class")
		}
		c.warnKeys(key, &class)
		c.warnAnswers(&class, carried[class.Name])
	}
	pathChecker{c.checker}.warnAssured()
	c.warnTLS()
	kernelChecker{c.checker}.warnKernel()
	warnRules(c.report, c.p, kernelChecker{c.checker}.inKernel())
}

// used returns the names of all classes that a listener or a rule leads to, and
// of those above them: upwards those of sessions, and also of what goes back.
func (c warner) used() (upwards, either map[string]bool) {
	upwards = map[string]bool{}
	for _, l := range c.p.Listeners {
		c.mark(upwards, l.Class)
	}
	for _, rule := range c.p.Rules {
		c.mark(upwards, rule.Class)
	}
	either = maps.Clone(upwards)
	for _, l := range c.p.Listeners {
		c.mark(either, l.ReturnClass)
	}
	for _, rule := range c.p.Rules {
		c.mark(either, rule.ReturnClass)
	}
	for name := range (kernelChecker{c.checker}).inKernel() {
		c.mark(either, name)
	}
	return upwards, either
}

// mark adds a class and those above it.
func (c warner) mark(used map[string]bool, name string) {
	for class := c.classes[name]; class != nil && !used[class.Name]; class = c.above(class) {
		used[class.Name] = true
	}
}

// warnAnswers warns of an in_flight that bounds nothing, since only children carry
// messages, of which none has an answer.
func (c warner) warnAnswers(class *Class, carried map[Protocol]bool) {
	if class.InFlight > 0 && len(carried) > 0 && !carried[SMPP] && !carried[HTTP] {
		c.warn(join("class", class.Name)+".in_flight", "it bounds nothing: only messages of smpp and http have answers", "leave it out")
	}
}

// warnKeys reports limits that nobody reaches: a bucket of one connection never sees
// another.
func (c warner) warnKeys(key string, class *Class) {
	const allowed = `per = "source", for example`
	switch {
	case class.Per.By != ByConnection:
	case class.Rate.Kind() == unit.Connections && !class.Limit().IsZero():
		c.warn(key+".per", "each connection has a bucket of its own, so there is no limit to them", allowed)
	case class.MaxConnections > 0:
		c.warn(key+".max_connections", "each connection has a bucket of its own, so this bounds nothing", allowed)
	}
}

// warnTLS reports upstreams that could be anybody.
func (c warner) warnTLS() {
	for _, l := range c.p.Listeners {
		if l.UpstreamTLS != nil && l.UpstreamTLS.Insecure {
			c.warn(join("listener", l.Name)+".upstream_tls.insecure", "nobody verifies who the upstream is: whoever is on the way can read and change everything",
				"ca = the upstream's own certificate, or that of its authority")
		}
	}
}

// forOthers is the permission of those who are neither the owner nor of the group
// of a file to read it.
const readableByOthers = 0o004

// openKeys warns of private keys that everybody may read.
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
