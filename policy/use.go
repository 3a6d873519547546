package policy

import (
	"fmt"
	"shaper/unit"
)

// use checks that a class can limit what goes to the upstream of a listener:
// an algorithm only limits what it counts. The way out begins what is allowed;
// a rule has one that a listener has not.
func (c *checker) use(key, name string, l *Listener, wayOut string) {
	kind, ok := c.kindFor(key, name, l)
	if ok && !l.Protocol.Counts(kind, false) {
		c.cannotLimit(key, name, l, kind, alternative(wayOut, protocolFor(kind))+"give the class a rate in "+countedOn(l.Protocol, false))
	}
}

// useBack is use for what goes back to the client.
func (c *checker) useBack(key, name string, l *Listener, wayOut string) {
	kind, ok := c.kindFor(key, name, l)
	switch {
	case !ok:
	case kind == unit.Connections:
		c.wrong(key, fmt.Sprintf("class %q counts connections, and none are made towards the client: it would never limit", name),
			"a class with a rate in bytes, or packets for udp")
	case kind == unit.Messages && l.Protocol == HTTP:
		c.wrong(key, fmt.Sprintf("class %q counts messages, and a response is none of its own: it would never limit", name),
			"a class with a rate in bytes")
	case !l.Protocol.Counts(kind, true):
		c.cannotLimit(key, name, l, kind, alternative(wayOut, protocolFor(kind))+"give the class a rate in "+countedOn(l.Protocol, true))
	}
}

// protocolFor returns a protocol that has what a class counts.
func protocolFor(kind unit.Kind) Protocol {
	switch kind {
	case unit.Packets:
		return UDP
	case unit.Messages:
		return SMPP
	}
	return TCP
}

// countedOn says what can be counted of a protocol.
func countedOn(p Protocol, back bool) string {
	var kinds []string
	for _, kind := range []unit.Kind{unit.Bytes, unit.Packets, unit.Messages, unit.Connections} {
		if p.Counts(kind, back) {
			kinds = append(kinds, kind.String())
		}
	}
	return orList(kinds)
}

func (c *checker) cannotLimit(key, name string, l *Listener, kind unit.Kind, allowed string) {
	c.wrong(key, fmt.Sprintf("class %q counts %v, and the %s listener %q has none: it would never limit", name, kind, l.Protocol, l.Name), allowed)
}

func alternative(out string, p Protocol) string {
	if out == "" {
		return ""
	}
	return fmt.Sprintf(out, string(p))
}

// kindFor notes that a class limits what a listener carries, and returns what
// the class counts; ok is false where a mistake leaves that open.
func (c *checker) kindFor(key, name string, l *Listener) (kind unit.Kind, ok bool) {
	if !c.sound(key, join("class", name)+".rate", join("listener", l.Name)+".protocol") {
		return 0, false
	}
	c.carries[name][l.Protocol] = true
	return c.classes[name].Rate.Kind(), true
}
