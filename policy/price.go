package policy

import (
	"fmt"

	"shaper/unit"
)

// A priceChecker checks what a class reads in messages and in their answers.
type priceChecker struct{ *checker }

// reads checks the keys of a class on their own.
func (c priceChecker) reads(key string, class *Class) {
	kind := class.Rate.Kind()
	for _, one := range []struct {
		name string
		set  bool
	}{{"cost", class.Cost != nil}, {"settle", class.Settle != nil}, {"throttled_by", class.ThrottledBy != nil}} {
		if at := key + "." + one.name; one.set && !kind.OfMessages() && c.sound(at) {
			c.wrong(at, fmt.Sprintf("the class counts %v, and only messages say what they cost", kind), "leave it out, or set a rate in messages or tokens")
		}
	}
	if class.Cost != nil && c.sound(key+".cost") {
		c.cost(key+".cost", class.Cost)
	}
	if s := class.Settle; s != nil {
		c.onePlace(key+".settle", s.Header, s.JSON, settleForm)
	}
	if s := class.ThrottledBy; s != nil {
		c.onePlace(key+".throttled_by", s.Header, s.JSON, signalForm)
	}
}

// cost checks that one thing says what a message costs.
func (c priceChecker) cost(key string, cost *Cost) {
	switch n := cost.sources(); {
	case c.badUnder(key + "."):
	case n == 0:
		c.wrong(key, "nothing says the cost", costForm)
	case n > 1:
		c.wrong(key, "several things say the cost", "one of json, header, bytes and segments")
	case cost.Default > cost.Most():
		c.wrong(key+".default", fmt.Sprintf("%d is above max, %d", cost.Default, cost.Most()), "a default that is not above max")
	}
}

// onePlace checks that a table names a single place.
func (c priceChecker) onePlace(key, header string, path Path, form string) {
	if !c.sound(key) || c.badUnder(key+".") {
		return
	}
	switch {
	case header == "" && path == "":
		c.wrong(key, "it names no place", form)
	case header != "" && path != "":
		c.wrong(key, "it names two places", "json or header, not both")
	}
}

// onListener checks that the messages of a listener say what they cost in a class that it
// leads to.
func (c priceChecker) onListener(key, name string, l *Listener, other string) {
	for _, kind := range []unit.Kind{unit.Messages, unit.Tokens} {
		class := c.classes[name]
		switch cost := costOf(class, kind, c.above); {
		case cost == nil && kind == unit.Tokens && l.Protocol == HTTP && c.counts(class, kind):
			c.wrong(key, fmt.Sprintf("nothing says how many tokens a message costs in class %q", name), `give the class a cost, like { json = "max_tokens", default = 1000 }`)
		case cost != nil && l.Protocol.HasMessages() && cost.protocol() != "" && cost.protocol() != l.Protocol:
			c.wrong(key, fmt.Sprintf("the cost of class %q stands in messages of %s, and listener %q is for %s", name, cost.protocol(), l.Name, l.Protocol),
				alternative(other, cost.protocol())+"another class, or another cost")
		}
	}
}

// counts reports whether a class, or one above it, counts in a unit, and its cost has no mistake.
func (c priceChecker) counts(class *Class, kind unit.Kind) bool {
	for ; class != nil; class = c.above(class) {
		if key := join("class", class.Name); class.Rate.Kind() == kind {
			return c.sound(key+".rate", key+".cost")
		}
	}
	return false
}

// answers checks that a class with keys about the text of answers has such answers: those of
// HTTP. It gets the protocols that the class and the classes below it carry.
func (c priceChecker) answers(class *Class, carried map[Protocol]bool) {
	key := join("class", class.Name)
	if c.hints(key, class, carried); len(carried) == 0 || carried[HTTP] {
		return
	}
	for _, one := range []struct {
		name string
		set  bool
	}{{"settle", class.Settle != nil}, {"throttled_by", class.ThrottledBy != nil}, {"hints", class.Hints}} {
		if at := key + "." + one.name; one.set && c.sound(at) {
			c.wrong(at, "no listener of http leads to the class", "leave it out; only answers of http say this")
		}
	}
}

// hints checks that a class which keeps to hints can know what its provider has counted.
func (c priceChecker) hints(key string, class *Class, carried map[Protocol]bool) {
	at, kind := key+".hints", class.Rate.Kind()
	switch {
	case !class.Hints || !c.sound(at, key+".rate"):
		return
	case !kind.OfMessages():
		c.wrong(at, fmt.Sprintf("the class counts %v, and answers tell limits of requests and tokens", kind), "leave it out, or set a rate in messages or tokens")
		return
	case class.Shared != "":
		c.wrong(at, "an answer tells one member of the fleet what remains, and the others would use it too", "leave shared out, or hints")
		return
	}
	for _, p := range []Protocol{SMPP, ISO8583, Lines} {
		if carried[HTTP] && carried[p] {
			c.wrong(at, fmt.Sprintf("messages of %s go through the class too, and no answer to them says whether the provider has counted them", p),
				"leave it out, or set it in a class of http alone")
			return
		}
	}
}
