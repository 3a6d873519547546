package policy

import "fmt"

// A Reaction is a key by which a class reacts to the answers of its provider: retry, learn or hints.
type Reaction struct {
	Class string `json:"class"`
	Key   string `json:"key"`
	Value string `json:"value"` // as in the policy
	// Learned is the limit that a class with learn has found below its rate, in messages a second; 0
	// if it has found none. Only a daemon sets it.
	Learned float64 `json:"learned_per_second,omitempty"`
}

// String prints "learn = { floor = "5 messages/s" } of class acme".
func (r Reaction) String() string {
	text := fmt.Sprintf("%s = %s of class %s", r.Key, r.Value, r.Class)
	if r.Learned > 0 {
		text += fmt.Sprintf(", which has found %.4g/s", r.Learned)
	}
	return text
}

// Reactions returns how a class and those above it react to the answers to messages of a listener.
// Of several retries, the nearest holds. A class with shadow does nothing.
func (p *Policy) Reactions(listener, class string) (all []Reaction) {
	l, _ := p.Listener(listener)
	retries := false
	for c, ok := p.Class(class); ok && l.Protocol.Refuses(); c, ok = p.Class(c.Parent) {
		add := func(set bool, key, value string) {
			if set && !c.Shadow {
				all = append(all, Reaction{Class: c.Name, Key: key, Value: value})
			}
		}
		add(c.Retry != Retry{} && !retries, "retry", c.Retry.String())
		add(c.Learn != Learn{}, "learn", c.Learn.String())
		add(c.Hints && l.Protocol == HTTP, "hints", "true")
		retries = retries || c.Retry != Retry{} && !c.Shadow
	}
	return all
}
