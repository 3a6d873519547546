package policy

import (
	"fmt"
	"maps"

	"shaper/unit"
)

// An answerChecker checks what listeners, rules and classes say about messages and their answers.
type answerChecker struct{ *checker }

// messages checks the keys of a listener that depend on the protocol of its messages.
func (c answerChecker) messages(key string, l *Listener) {
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
func (c answerChecker) messageRule(key string, r *Rule) {
	switch {
	case r.looksAtHTTP() && r.looksAtSMPP():
		c.wrong(key, "no message belongs to both HTTP and SMPP", "path, method, host and header:NAME, or system_id, source_addr, recipient, data_coding and esm_class")
	case r.looksAtMessages() && r.ReturnClass != "":
		c.wrong(key+".return_class", "a rule that looks at messages applies to messages for the upstream", "leave it out; the listener has one")
	}
}

// feedback checks that a class with keys about answers counts messages.
func (c answerChecker) feedback(key string, class *Class) {
	if class.Rate.Kind().OfMessages() {
		if o := class.OnThrottle; o.Pause > o.Max && c.sound(key+".on_throttle") {
			c.wrong(key+".on_throttle.pause", fmt.Sprintf("%q is longer than max, %q", o.Pause, o.Max), "at most max")
		}
		c.learns(key, class)
		return
	}
	for _, name := range []string{"in_flight", "on_throttle", "adapt", "learn", "retry"} {
		if at := key + "." + name; c.given(at) && c.sound(at) {
			c.wrong(at, fmt.Sprintf("the class counts %v, and only messages are answered", class.Rate.Kind()), "leave it out, or set a rate in messages")
		}
	}
}

// learns checks that a class with learn can find a limit.
func (c answerChecker) learns(key string, class *Class) {
	at := key + ".learn"
	floor, limit := class.Learn.Floor, class.Limit()
	if class.Learn == (Learn{}) && !c.given(at) || !c.sound(at, at+".floor", key+".rate", key+".ceil") {
		return
	}
	switch {
	case floor == (unit.Rate{}):
		c.wrong(at, "it has no floor, below which the class is never paced", learnForm)
	case floor.Kind() != unit.Messages:
		c.wrong(at+".floor", fmt.Sprintf("%q counts %v, and the rate %q counts messages", floor, floor.Kind(), class.Rate), "a floor in messages")
	case floor.IsZero():
		c.wrong(at+".floor", "at a floor of 0 nothing would be left to learn from", "a floor above 0")
	case floor.Compare(limit) >= 0 && c.given(at): // a set, which does not give it, may stop the class for a while
		c.wrong(at+".floor", fmt.Sprintf("%q leaves nothing to find below the limit of the class, %q", floor, limit), "a floor below the limit")
	case class.Adapt:
		c.wrong(at, "adapt is another answer to the same refusals: one would undo what the other does", "leave adapt out, or learn")
	case class.Shared != "":
		c.wrong(at, "the fleet spreads what is sent over its members, and each of them would learn another pace", "leave shared out, or learn")
	case class.Per != (Per{}):
		c.wrong(at, "each key would have to learn by itself, from too few messages", "leave it out, or set it in the class above")
	case class.Algorithm.HasWindow() && floor.Units(class.Own().WindowInForce()) == 0:
		c.wrong(at+".floor", fmt.Sprintf("%q is less than one message in a window of %v", floor, class.Own().WindowInForce()), "a higher floor")
	}
}

// answers checks that a class with keys about answers limits messages that have answers. It
// gets the protocols that the class and the classes below it carry.
func (c answerChecker) answers(class *Class, carried map[Protocol]bool) {
	key := join("class", class.Name)
	for _, p := range []Protocol{ISO8583, Lines} {
		only := carried[p] && !carried[SMPP] && !carried[HTTP]
		noSignal := fmt.Sprintf("no message of %s says \"too fast\"", p)
		c.needsAnswers(key+".in_flight", class.InFlight > 0 && c.carries[class.Name][p], fmt.Sprintf("which message of %s answers which is not known", p))
		c.needsAnswers(key+".on_throttle", class.OnThrottle != (OnThrottle{}) && only, noSignal)
		c.needsAnswers(key+".adapt", class.Adapt && only, noSignal)
		c.needsAnswers(key+".learn", class.Learn != (Learn{}) && only, noSignal)
		c.needsAnswers(key+".retry", class.Retry != (Retry{}) && only, noSignal)
	}
}

// needsAnswers reports a mistake at key if wrong is set.
func (c answerChecker) needsAnswers(key string, wrong bool, problem string) {
	if wrong && c.sound(key) {
		c.wrong(key, problem, "leave it out; smpp and http have it")
	}
}

// readsAnswers reports whether the class has keys about answers.
func (c *Class) readsAnswers() bool {
	return c.InFlight > 0 || c.OnThrottle != (OnThrottle{}) || c.Adapt || c.Learn != (Learn{}) || c.Retry != (Retry{}) || c.ReadsAnswers()
}

// carriedBelow returns, for each class that reads answers, the protocols that it and the
// classes below it carry.
func (c answerChecker) carriedBelow() map[string]map[Protocol]bool {
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
func (c answerChecker) queue(class *Class) {
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
