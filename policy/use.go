package policy

import (
	"fmt"

	"shaper/unit"
)

// A useChecker checks that a class can limit what a listener carries.
type useChecker struct{ *checker }

// upstream checks that a class can limit the direction upstream of a listener: it limits only what
// it counts. other is a format for another remedy, which names a protocol; it may be "".
func (c useChecker) upstream(key, name string, l *Listener, other string) {
	kind, ok := c.kindFor(key, name, l)
	if ok && !l.Protocol.Counts(kind, false) {
		c.cannotLimit(key, name, l, kind, l.insideFor(kind)+alternative(other, protocolFor(kind))+"give the class a rate in "+countedOn(l.Protocol, false))
	} else if ok {
		c.buckets(key, name, l, other)
		c.quiet(key, name, l, other)
		priceChecker(c).onListener(key, name, l, other)
	}
}

// quiet checks that the messages of a listener say to whom they go, if a class has quiet hours
// for some recipients.
func (c useChecker) quiet(key, name string, l *Listener, other string) {
	for class := c.classes[name]; class != nil && l.Protocol != SMPP; class = c.above(class) {
		for _, q := range class.Quiet {
			if len(q.Recipient) > 0 {
				c.wrong(key, fmt.Sprintf("class %q has quiet hours for %s, and a message on the %s listener %q names no recipient", class.Name, few(q.Recipient), l.Protocol, l.Name),
					alternative(other, SMPP)+"a class whose quiet hours have no recipient")
				return
			}
		}
	}
}

// buckets checks that the messages of a listener have what tells the buckets of a class apart.
func (c useChecker) buckets(key, name string, l *Listener, other string) {
	per := c.classes[name].Per
	if !c.sound(join("class", name) + ".per") {
		return
	}
	if c.bind(key, name, l) {
		return
	}
	for _, part := range per.parts() {
		if problem := l.hasNo(part.By); problem != "" {
			c.wrong(key, fmt.Sprintf("class %q has a bucket per %v, and on listener %q %s", name, part, l.Name, problem), fmt.Sprintf("a class without per = %q", part))
			return
		}
		needs := part.protocol()
		if needs == "" || needs == l.Protocol {
			continue
		}
		problem := fmt.Sprintf("a message of %s has none", l.Protocol)
		if !l.Protocol.HasMessages() {
			problem = fmt.Sprintf("%s has no messages", l.Protocol)
		}
		c.wrong(key, fmt.Sprintf("class %q has a bucket per %v, and on listener %q %s", name, part, l.Name, problem),
			l.insideOf(needs)+alternative(other, needs)+fmt.Sprintf("a class without per = %q", part))
		return
	}
}

// bind checks that a listener names the addresses that tell the buckets of a class apart. It
// reports whether that is a mistake.
func (c useChecker) bind(key, name string, l *Listener) (wrong bool) {
	wrong = c.classes[name].Per.Has(ByBind) && len(l.Bind) == 0 && c.sound(join("class", name)+".per", join("listener", l.Name)+".bind")
	if wrong {
		c.wrong(key, fmt.Sprintf("class %q has a bucket per %v, and listener %q has no bind", name, ByBind, l.Name),
			fmt.Sprintf(`bind = ["192.0.2.1", "192.0.2.2"] on the listener, for example, or a class without per = %q`, ByBind))
	}
	return wrong
}

// hasNo says why connections of the listener do not have what tells the buckets of a class apart;
// "" if they have it.
func (l *Listener) hasNo(kind PerKind) (problem string) {
	switch {
	case kind == ByUser && l.Users == "":
		return "nobody logs in (it has no users)"
	case kind == ByServerName && l.Mode == Transparent:
		return "clients ask for addresses, not for names"
	case kind == ByServerName && !l.Mode.IsEntry():
		return "no client asks for a name (it is no entry)"
	}
	return ""
}

// insideOf says how an entry would carry messages of a protocol; "" for a listener that is none.
func (l *Listener) insideOf(p Protocol) string {
	switch {
	case l.Mode == SNI:
		return `set mode = "forward", with tls and upstream_tls, or `
	case !l.Mode.IsEntry():
		return ""
	}
	return fmt.Sprintf("add inside = %q, or ", p)
}

// insideFor says how an entry would carry what a class of that Kind counts; "" if it cannot.
func (l *Listener) insideFor(kind unit.Kind) string {
	carriesPackets := kind == unit.Packets && (l.Mode == SOCKS5 || l.Mode == Transparent)
	if !kind.OfMessages() && !carriesPackets {
		return ""
	}
	return l.insideOf(protocolFor(kind))
}

// downstream checks that a class can limit the direction downstream of a listener.
func (c useChecker) downstream(key, name string, l *Listener, other string) {
	kind, ok := c.kindFor(key, name, l)
	switch {
	case !ok:
	case kind == unit.Connections:
		c.wrong(key, fmt.Sprintf("class %q counts connections, and none are made towards the client: it would never limit", name),
			"a class with a rate in bytes, or packets for udp")
	case kind.OfMessages() && l.Protocol == HTTP:
		c.wrong(key, fmt.Sprintf("class %q counts %v, and a response does not count as one: it would never limit", name, kind),
			"a class with a rate in bytes")
	case c.classes[name].Per.ByMessage() && c.sound(join("class", name)+".per"):
		c.wrong(key, fmt.Sprintf("class %q has a bucket per %v, and only messages for the upstream have keys", name, c.classes[name].Per),
			`a class with per = "source", for example, or without per`)
	case len(c.classes[name].Quiet) > 0:
		c.wrong(key, fmt.Sprintf("class %q has quiet hours, and these are of messages for the upstream", name), "a class without quiet")
	case !l.Protocol.Counts(kind, true):
		c.cannotLimit(key, name, l, kind, alternative(other, protocolFor(kind))+"give the class a rate in "+countedOn(l.Protocol, true))
	default:
		c.bind(key, name, l)
	}
}

// protocolFor returns a protocol that has what a class of that Kind counts.
func protocolFor(kind unit.Kind) Protocol {
	switch kind {
	case unit.Packets:
		return UDP
	case unit.Messages:
		return SMPP
	case unit.Tokens:
		return HTTP
	}
	return TCP
}

// countedOn says what a class can count in one direction of a protocol.
func countedOn(p Protocol, back bool) string {
	var kinds []string
	for _, kind := range []unit.Kind{unit.Bytes, unit.Packets, unit.Messages, unit.Tokens, unit.Connections} {
		if p.Counts(kind, back) {
			kinds = append(kinds, kind.String())
		}
	}
	return orList(kinds)
}

// cannotLimit reports a class that would never limit what a listener carries.
func (c useChecker) cannotLimit(key, name string, l *Listener, kind unit.Kind, allowed string) {
	c.wrong(key, fmt.Sprintf("class %q counts %v, and the %s listener %q has none: it would never limit", name, kind, l.Protocol, l.Name), allowed)
}

// alternative formats another remedy, if there is one.
func alternative(format string, p Protocol) string {
	if format == "" {
		return ""
	}
	return fmt.Sprintf(format, string(p))
}

// kindFor notes that a class limits what a listener carries, and returns what the class counts.
// It returns false if that is not known because of a mistake.
func (c useChecker) kindFor(key, name string, l *Listener) (kind unit.Kind, ok bool) {
	if !c.sound(key, join("class", name)+".rate", join("listener", l.Name)+".protocol") {
		return 0, false
	}
	c.carries[name][l.Protocol] = true
	return c.classes[name].Rate.Kind(), true
}
