package simulate

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaper/policy"
	"shaper/unit"
)

// A Pattern says how a load is spread over time.
type Pattern string

// The patterns.
const (
	Constant Pattern = "constant" // evenly
	Poisson  Pattern = "poisson"  // at random times, independent of one another, at the rate on average
	Bursts   Pattern = "bursts"   // evenly while it is on, nothing while it is off
	Seconds  Pattern = "seconds"  // all items of a second at its beginning
)

var patterns = []Pattern{Constant, Poisson, Bursts, Seconds}

// A Load is a client that sends items by a pattern.
type Load struct {
	Listener string         // "" stands for every listener, with the same arrivals
	Source   netip.AddrPort // the client
	Port     uint16         // that the client connects to; 0: one of the listener's
	Pattern  Pattern
	Rate     unit.Rate     // in bytes or in items
	Size     unit.Size     // of an item
	On, Off  unit.Duration // how long a burst lasts, and the pause after it
	Start    unit.Duration // when it begins
	Count    int64         // items that it sends; 0: no end
	Message  policy.Fields // what rules see of each item if it is a message
}

// loadForm says what ParseLoad reads.
const loadForm = `a load is like "pattern=poisson,rate=100 packets/s,size=1200B"`

// loadKeys are the keys of a load, and what reads each.
var loadKeys = []struct {
	name string
	read func(l *Load, value string) error
}{
	{"listener", func(l *Load, value string) error { l.Listener = value; return nil }},
	{"source", func(l *Load, value string) (err error) {
		if l.Source, err = parseClient(value); err != nil {
			return fmt.Errorf("%w; %s", err, clientForm)
		}
		return nil
	}},
	{"port", func(l *Load, value string) error {
		port, err := strconv.ParseUint(value, 10, 16)
		if l.Port = uint16(port); err != nil || port == 0 {
			return fmt.Errorf("%q is not a port; a port is from 1 to 65535", value)
		}
		return nil
	}},
	{"pattern", func(l *Load, value string) error {
		if l.Pattern = Pattern(value); !slices.Contains(patterns, l.Pattern) {
			return fmt.Errorf("%q is not a pattern; it is constant, poisson, bursts or seconds", value)
		}
		return nil
	}},
	{"rate", func(l *Load, value string) error { return l.Rate.UnmarshalText([]byte(value)) }},
	{"size", func(l *Load, value string) error { return l.Size.UnmarshalText([]byte(value)) }},
	{"on", func(l *Load, value string) error { return l.On.UnmarshalText([]byte(value)) }},
	{"off", func(l *Load, value string) error { return l.Off.UnmarshalText([]byte(value)) }},
	{"start", func(l *Load, value string) error { return l.Start.UnmarshalText([]byte(value)) }},
	{"count", func(l *Load, value string) (err error) {
		if l.Count, err = strconv.ParseInt(value, 10, 64); err != nil || l.Count < 1 {
			return fmt.Errorf("%q is not a count; it is a whole number from 1", value)
		}
		return nil
	}},
}

// ParseLoad reads a load as an operator writes it: KEY=VALUE, separated by commas. The keys
// are the fields of Load in lower case, and quantities are written as in a policy. The rate is
// required. The defaults are pattern=constant, size=1200B and source=127.0.0.1.
func ParseLoad(text string) (Load, error) {
	l := Load{Source: netip.MustParseAddrPort("127.0.0.1:0"), Pattern: Constant, Size: 1200}
	given := map[string]bool{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			return Load{}, fmt.Errorf("%q is not KEY=VALUE; %s", pair, loadForm)
		}
		if given[key] {
			return Load{}, fmt.Errorf("%s is given twice; %s", key, loadForm)
		}
		given[key] = true
		if err := l.set(key, value); err != nil {
			return Load{}, err
		}
	}
	return l, l.check(given)
}

func (l *Load) set(key, value string) error {
	if policy.IsField(key) {
		l.Message.Set(key, value)
		return l.Message.Check()
	}
	var known []string
	for _, k := range loadKeys {
		if k.name != key {
			known = append(known, k.name)
			continue
		}
		if err := k.read(l, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	}
	return fmt.Errorf("%q is not a key of a load; the keys are %s", key, strings.Join(append(known, policy.FieldNames()...), ", "))
}

// check checks keys that depend on each other.
func (l *Load) check(given map[string]bool) error {
	units, ns := l.Rate.Exact()
	bursts := l.Pattern == Bursts
	switch {
	case !given["rate"]:
		return fmt.Errorf("the rate is missing; %s", loadForm)
	case l.Rate.IsZero():
		return fmt.Errorf("rate: %q sends nothing; a rate above 0", l.Rate)
	case l.Size == 0 && l.Rate.Kind() == unit.Bytes:
		return fmt.Errorf(`size: items of 0B never make up %q; a size above 0B, or a rate like "100 packets/s"`, l.Rate)
	case bursts && (l.On == 0 || !given["off"]):
		return fmt.Errorf(`bursts have no length; give on and off, like "on=100ms,off=900ms"`)
	case !bursts && (given["on"] || given["off"]):
		return fmt.Errorf("on and off are for bursts; set pattern=bursts, or leave them out")
	case l.Pattern == Seconds && l.Rate.Units(time.Second) < l.cost():
		return fmt.Errorf("rate: %q is less than one item a second; a higher rate, or another pattern", l.Rate)
	case units/l.cost() > ns:
		return fmt.Errorf("rate: %q is more than one item in a nanosecond; a lower rate, or a larger size", l.Rate)
	}
	return nil
}

// cost returns what an item costs in the unit of the rate.
func (l *Load) cost() int64 {
	if l.Rate.Kind() == unit.Bytes {
		return int64(l.Size)
	}
	return 1
}

// Sources returns sources that generate the loads, for the listeners of a policy. The same
// seed always gives the same arrivals.
func Sources(p *policy.Policy, loads []Load, seed uint64) ([]Source, error) {
	var sources []Source
	for i, l := range loads {
		listeners := p.Listeners
		if l.Listener != "" {
			one, _, problem, allowed := entry(p, l.Listener, l.Port)
			if problem != "" {
				return nil, fmt.Errorf("%s; %s", problem, allowed)
			}
			listeners = []policy.Listener{one}
		}
		listeners, problem := carrying(listeners, l.Message)
		if problem != nil {
			return nil, problem
		}
		for _, listener := range listeners {
			port := l.Port
			if port == 0 {
				port = firstPort(listener)
			}
			sources = append(sources, l.source(connTo(listener, l.Source, port), rand.New(rand.NewPCG(seed, uint64(i)))))
		}
	}
	return sources, nil
}

// carrying returns the listeners whose messages have the given fields; an error if there are
// none.
func carrying(listeners []policy.Listener, said policy.Fields) (fit []policy.Listener, err error) {
	for _, l := range listeners {
		if field := said.Misfit(l.Protocol); field == "" {
			fit = append(fit, l)
		} else {
			err = fmt.Errorf("%s: listener %q has protocol %q, whose messages have none; %s", field, l.Name, l.Protocol, messageForm)
		}
	}
	if len(fit) > 0 {
		return fit, nil
	}
	return nil, err
}

// messageForm says which listeners have messages with fields.
const messageForm = "http has path, method, host and header:NAME, smpp system_id, source_addr, recipient, data_coding and esm_class"

// source returns the source of the load on one connection.
func (l Load) source(conn policy.Conn, random *rand.Rand) Source {
	next := l.times(random)
	sent := int64(0)
	return Source{Holds: true, Next: func(a *Arrival) error {
		after := next()
		if l.Count > 0 && sent == l.Count || after == math.MaxInt64 {
			return io.EOF
		}
		sent++
		*a = Arrival{At: Epoch.Add(plus(time.Duration(l.Start), after)), Conn: conn, Message: l.Message, Bytes: int64(l.Size), Opens: true}
		return nil
	}}
}

// times returns a function that returns, for one item after the other, when it is sent after
// the start. Constant times are computed from the number of items, so they do not drift.
func (l Load) times(random *rand.Rand) func() time.Duration {
	n := int64(-1)
	switch l.Pattern {
	case Poisson:
		mean, at := float64(l.cost())/l.Rate.PerSecond()*1e9, 0.
		return func() time.Duration {
			if at += random.ExpFloat64() * mean; at >= math.MaxInt64 {
				return math.MaxInt64
			}
			return time.Duration(at)
		}
	case Bursts:
		cycle := time.Duration(0)
		return func() time.Duration {
			n++
			after := l.after(n)
			if after >= time.Duration(l.On) {
				n, after = 0, 0
				cycle = plus(cycle, plus(time.Duration(l.On), time.Duration(l.Off)))
			}
			return plus(cycle, after)
		}
	case Seconds:
		each := l.Rate.Units(time.Second) / l.cost()
		return func() time.Duration {
			n++
			return time.Duration(n/each) * time.Second
		}
	}
	return func() time.Duration {
		n++
		return l.after(n)
	}
}

// after returns when item n is sent, counted from 0, by the rate alone.
func (l *Load) after(n int64) time.Duration {
	if n > math.MaxInt64/l.cost() {
		return math.MaxInt64
	}
	return l.Rate.Time(n * l.cost())
}

// plus returns a+b, or the longest Duration if the sum is longer. That means for ever.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
