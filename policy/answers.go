package policy

import (
	"fmt"
	"maps"

	"shaper/unit"
)

// messages checks the keys of a listener that depend on the protocol of its messages.
func (c *checker) messages(key string, l *Listener) {
	if !c.sound(key + ".protocol") {
		return
	}
	if l.Protocol != HTTP && c.given(key+".host") {
		c.wrong(key+".host", fmt.Sprintf("the listener is for %s, and only http has a Host", l.Protocol), `leave it out, or set protocol = "http"`)
	}
	if l.Protocol == ISO8583 {
		return
	}
	for _, name := range []string{"length_prefix", "length_includes_itself", "header_length"} {
		if c.given(key + "." + name) {
			c.wrong(key+"."+name, fmt.Sprintf("%s has no length before its messages", l.Protocol), `leave it out, or set protocol = "iso8583"`)
		}
	}
}

// messageRule checks the keys of a rule that look at messages.
func (c *checker) messageRule(key string, r *Rule) {
	switch {
	case r.looksAtHTTP() && r.looksAtSMPP():
		c.wrong(key, "no message belongs to both HTTP and SMPP", "path, method, host and header:NAME, or system_id, source_addr, recipient, data_coding and esm_class")
	case r.looksAtMessages() && r.ReturnClass != "":
		c.wrong(key+".return_class", "a rule that looks at messages applies to messages for the upstream", "leave it out; the listener has one")
	}
}

// feedback checks that a class with keys about answers counts messages.
func (c *checker) feedback(key string, class *Class) {
	if class.Rate.Kind().OfMessages() {
		if o := class.OnThrottle; o.Pause > o.Max && c.sound(key+".on_throttle") {
			c.wrong(key+".on_throttle.pause", fmt.Sprintf("%q is longer than max, %q", o.Pause, o.Max), "at most max")
		}
		return
	}
	for _, name := range []string{"in_flight", "on_throttle", "adapt"} {
		if at := key + "." + name; c.given(at) && c.sound(at) {
			c.wrong(at, fmt.Sprintf("the class counts %v, and only messages are answered", class.Rate.Kind()), "leave it out, or set a rate in messages")
		}
	}
}

// answers checks that a class with keys about answers limits messages that have answers. It
// gets the protocols that the class and the classes below it carry.
func (c *checker) answers(class *Class, carried map[Protocol]bool) {
	key := join("class", class.Name)
	for _, p := range []Protocol{ISO8583, Lines} {
		only := carried[p] && !carried[SMPP] && !carried[HTTP]
		noSignal := fmt.Sprintf("no message of %s says \"too fast\"", p)
		c.needsAnswers(key+".in_flight", class.InFlight > 0 && c.carries[class.Name][p], fmt.Sprintf("which message of %s answers which is not known", p))
		c.needsAnswers(key+".on_throttle", class.OnThrottle != (OnThrottle{}) && only, noSignal)
		c.needsAnswers(key+".adapt", class.Adapt && only, noSignal)
	}
}

// needsAnswers reports a mistake at key if wrong is set.
func (c *checker) needsAnswers(key string, wrong bool, problem string) {
	if wrong && c.sound(key) {
		c.wrong(key, problem, "leave it out; smpp and http have it")
	}
}

// readsAnswers reports whether the class has keys about answers.
func (c *Class) readsAnswers() bool {
	return c.InFlight > 0 || c.OnThrottle != (OnThrottle{}) || c.Adapt || c.ReadsAnswers()
}

// carriedBelow returns, for each class that reads answers, the protocols that it and the
// classes below it carry.
func (c *checker) carriedBelow() map[string]map[Protocol]bool {
	all := map[string]map[Protocol]bool{}
	for i := range c.p.Classes {
		for class := &c.p.Classes[i]; class != nil; class = c.above(class) {
			if !class.readsAnswers() {
				continue
			}
			if all[class.Name] == nil {
				all[class.Name] = map[Protocol]bool{}
			}
			maps.Copy(all[class.Name], c.carries[c.p.Classes[i].Name])
		}
	}
	return all
}

// queue checks that one connection can hold the messages that fill the queue of a class. On a
// connection of http at most one message waits, so there the queue does not matter.
func (c *checker) queue(class *Class) {
	key := join("class", class.Name) + ".queue"
	if !c.sound(key) || class.Rate.Kind() == unit.Connections {
		return
	}
	const most = int64(ConnectionHolds / MessageHolds)
	for _, p := range []Protocol{SMPP, ISO8583, Lines} {
		switch {
		case !c.carries[class.Name][p]:
			continue
		case class.Queue.Items.N > most:
			c.wrong(key, fmt.Sprintf("%q is more than a connection of %s holds, %d", class.Queue, p, most), fmt.Sprintf("at most %d messages", most))
		case class.Queue.Bytes > ConnectionHolds:
			c.wrong(key, fmt.Sprintf("%q is more than a connection of %s holds, %v", class.Queue, p, ConnectionHolds), fmt.Sprintf("at most %v", ConnectionHolds))
		default:
			continue
		}
		return
	}
}
