package policy

import (
	"net/netip"

	"shaper/unit"
)

// Policy is a whole policy file with every default filled in.
type Policy struct {
	Path      string     `json:"path"` // as it was given to Load
	Hash      string     `json:"hash"` // first 12 hex digits of the file's SHA-256
	Daemon    Daemon     `json:"daemon"`
	Classes   []Class    `json:"classes"`      // in file order
	Listeners []Listener `json:"listeners"`    // in file order
	Rules     []Rule     `json:"rules"`        // in file order: the first match wins
	TC        []TC       `json:"tc,omitempty"` // in file order

	places places
}

// Class returns the class of that name.
func (p *Policy) Class(name string) (Class, bool) {
	return named(p.Classes, name, func(c Class) string { return c.Name })
}

// Listener returns the listener of that name.
func (p *Policy) Listener(name string) (Listener, bool) {
	return named(p.Listeners, name, func(l Listener) string { return l.Name })
}

func named[T any](all []T, name string, nameOf func(T) string) (found T, ok bool) {
	for _, one := range all {
		if nameOf(one) == name {
			return one, true
		}
	}
	return found, false
}

// Daemon is the section [daemon]: the process itself.
type Daemon struct {
	// Control is the path of the unix socket for the command line. A path that
	// the file gives relatively is taken from the directory of the file.
	Control string `json:"control"`
	// HTTP is the host:port of metrics and health; "" turns them off.
	HTTP string `json:"http"`
	// Drain is how long open sessions may go on after a stop; 0 resets them at once.
	Drain unit.Duration `json:"drain"`
}

// Algorithm says how a class computes when an item may leave.
type Algorithm string

// The algorithms of this version.
const (
	Leaky         Algorithm = "leaky"          // constant drain through a FIFO
	Token         Algorithm = "token"          // bursts up to Burst, then Rate
	GCRA          Algorithm = "gcra"           // the same in exact fractions, from one number
	FixedWindow   Algorithm = "fixed-window"   // what Rate allows in each Window of the clock
	SlidingLog    Algorithm = "sliding-log"    // what Rate allows in any Window
	SlidingWindow Algorithm = "sliding-window" // the same approximately, from two counters
)

// Overflow says what happens to an item for which the queue has no room, or
// which would wait longer than MaxWait. The zero Overflow, "", leaves it to
// the protocol; see [Class.OverflowFor].
type Overflow string

// What may happen to an item that finds no room.
const (
	Wait   Overflow = "wait"   // stop reading from the client until there is room
	Drop   Overflow = "drop"   // discard it and count it
	Refuse Overflow = "refuse" // answer in the protocol, or close the connection
)

// Protocol is what a listener carries.
type Protocol string

// Mode says how a listener finds its upstream.
type Mode string

// Forward goes to the upstream that the listener names; it is the only mode of
// this version.
const Forward Mode = "forward"

// Upstreams that are built in.
const (
	Echo    = "echo:"    // sends everything back
	Discard = "discard:" // reads everything and answers nothing
)

// Class is a section [class.NAME]: how fast what belongs to it may leave. It
// charges only the unit that its rate counts.
type Class struct {
	Name string `json:"name"`
	// Parent is the class whose budget this one also spends; "" for none.
	Parent    string    `json:"parent,omitempty"`
	Algorithm Algorithm `json:"algorithm"`
	// Rate is the limit; with a Ceil it is what the class is assured. A limit of
	// 0 is legal and lets nothing pass.
	Rate unit.Rate `json:"rate"`
	// Ceil is what the class may reach by borrowing what its siblings leave; the
	// zero Rate, of no unit, where Rate is the limit.
	Ceil unit.Rate `json:"ceil,omitzero"`
	// Burst is the depth of the bucket of a token or gcra class; the zero Burst
	// is one quantum. The others have none.
	Burst Burst `json:"burst,omitzero"`
	// Window is what a window algorithm counts in; 0 is the period of Rate. The
	// others have none.
	Window unit.Duration `json:"window,omitzero"`
	// Headroom is how far below Rate the class is paced; 0 paces at Rate.
	Headroom unit.Percent `json:"headroom"`
	Queue    Queue        `json:"queue"`
	// MaxWait is the longest an item may wait; 0 sets no bound.
	MaxWait  unit.Duration `json:"max_wait,omitzero"`
	Overflow Overflow      `json:"overflow,omitempty"`
	// InFlight bounds the requests that were sent and are not answered; 0 is no bound.
	InFlight int `json:"in_flight,omitzero"`
	// OnThrottle is for how long the class pauses when the provider refuses what left
	// it; the zero OnThrottle leaves it to the class above, or to the default.
	OnThrottle OnThrottle `json:"on_throttle,omitzero"`
	// Adapt has the class go on more slowly after such a pause, and recover.
	Adapt bool `json:"adapt,omitempty"`
	// Per has the class be as many as there are keys: everything that limits holds
	// for each of them by itself. The zero Per is one for all.
	Per Per `json:"per,omitzero"`
	// MaxKeys bounds how many keys have a bucket of their own; those for which
	// there is no room share one.
	MaxKeys int `json:"max_keys"`
	// MaxConnections bounds the sessions that are open at once in the class and
	// its children; 0 is no bound.
	MaxConnections int `json:"max_connections,omitzero"`
	// Priority is the place among the siblings that compete for their parent:
	// from 0, the first, to [LastPriority].
	Priority int `json:"priority"`
	// Weight is the share among siblings of one priority, at least 1.
	Weight int `json:"weight"`
	// Shadow has the class compute and report what it would do, and enforce nothing.
	Shadow bool `json:"shadow,omitempty"`
}

// LastPriority is the priority of those that come last.
const LastPriority = 7

// Limit returns the most that a class may send: its Ceil, or its Rate where it
// has none.
func (c Class) Limit() unit.Rate {
	if c.Ceil == (unit.Rate{}) {
		return c.Rate
	}
	return c.Ceil
}

// OverflowFor returns what a full queue does to an item of a listener with
// that protocol: Overflow where it is set, else refuse for connections, and for
// messages of a protocol that can; drop for udp; and wait.
func (c Class) OverflowFor(p Protocol) Overflow {
	switch {
	case p == UDP:
		return Drop // datagrams cannot be made to wait by not reading them
	case c.Overflow != "":
		return c.Overflow
	case c.Rate.Kind() == unit.Connections, c.Rate.Kind() == unit.Messages && p.Refuses():
		return Refuse
	}
	return Wait
}

// Burst is an amount of what the class's rate counts: bytes, packets or
// connections. The zero Burst stands for one quantum.
type Burst struct {
	N    int64
	Kind unit.Kind
}

// IsZero reports whether the burst was left out: one quantum.
func (b Burst) IsZero() bool { return b == Burst{} }

// String prints the burst as a policy file writes it, and the zero Burst as
// "one quantum".
func (b Burst) String() string {
	switch {
	case b.IsZero():
		return "one quantum"
	case b.Kind == unit.Bytes:
		return unit.Size(b.N).String()
	}
	return unit.Count{N: b.N, Kind: b.Kind}.String()
}

// MarshalText is String.
func (b Burst) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads a size or a count, or "one quantum".
func (b *Burst) UnmarshalText(text []byte) (err error) {
	if *b = (Burst{}); string(text) != b.String() {
		*b, err = parseBurst(string(text))
	}
	return err
}

// Queue bounds the FIFO of a class. A bound of 0 is no bound; at least one of
// the two is set, and where both are, both hold.
type Queue struct {
	Items unit.Count `json:"items,omitzero"` // waiting items: datagrams, pieces of a stream, connections
	Bytes unit.Size  `json:"bytes,omitzero"`
}

// String prints the bounds: "1000 items or 1MiB", "500 packets", "64KiB".
func (q Queue) String() string {
	switch {
	case q.Items.N == 0:
		return q.Bytes.String()
	case q.Bytes == 0:
		return q.Items.String()
	}
	return q.Items.String() + " or " + q.Bytes.String()
}

// Listener is a section [listener.NAME]: where clients connect, and where that
// leads.
type Listener struct {
	Name string `json:"name"`
	// Listen holds "host:port" addresses and "systemd:NAME" for sockets that
	// systemd passes. Port 0 lets the kernel choose; an empty host is every
	// address.
	Listen   []string `json:"listen"`
	Protocol Protocol `json:"protocol"`
	Mode     Mode     `json:"mode"`
	// Upstream holds "host:port" addresses, tried in order, or Echo or Discard.
	Upstream    []string `json:"upstream"`
	Class       string   `json:"class"`                  // towards the upstream, where no rule matches
	ReturnClass string   `json:"return_class,omitempty"` // back to the client; "" does not shape it
	// LengthPrefix is how the length before each message of ISO8583 is written.
	LengthPrefix LengthPrefix `json:"length_prefix,omitempty"`
	// LengthIncludesItself says that this length counts the bytes of the prefix, too.
	LengthIncludesItself bool `json:"length_includes_itself,omitempty"`
	// HeaderLength is how many bytes stand between the prefix and the message type.
	HeaderLength int `json:"header_length,omitempty"`
	// Bind is the local address of connections to the upstream; the zero Addr
	// leaves it to the kernel.
	Bind           netip.Addr    `json:"bind,omitzero"`
	ConnectTimeout unit.Duration `json:"connect_timeout"`
	IdleTimeout    unit.Duration `json:"idle_timeout"`
	// HalfCloseTimeout takes the place of a longer IdleTimeout once one direction has
	// ended; 0 for datagrams, which have no end.
	HalfCloseTimeout unit.Duration `json:"half_close_timeout,omitzero"`
	MaxSessions      int           `json:"max_sessions"` // then accepting pauses
	// TLS has the TLS of clients end here; nil passes on what they send.
	TLS *ServerTLS `json:"tls,omitempty"`
	// UpstreamTLS has TLS to the upstream begin here; nil passes on what clients send.
	UpstreamTLS *ClientTLS `json:"upstream_tls,omitempty"`
	// Host is what requests of HTTP ask the upstream for; see [Listener.HostFor].
	Host Host `json:"host,omitempty"`
}

// Rule is a section [[rule]]. Keys are ANDed, the values of one key are ORed,
// and an empty key matches everything.
type Rule struct {
	Listener    []string       `json:"listener,omitempty"`
	Protocol    []Protocol     `json:"protocol,omitempty"`
	Source      []netip.Prefix `json:"source,omitempty"`
	SourcePort  []PortRange    `json:"source_port,omitempty"`
	Destination []netip.Prefix `json:"destination,omitempty"`
	Port        []PortRange    `json:"port,omitempty"` // the port that the client connected to
	// Of messages, of HTTP and of SMPP; see [Pattern].
	Path        []Pattern `json:"path,omitempty"`
	Method      []Pattern `json:"method,omitempty"`
	Host        []Pattern `json:"host,omitempty"`
	SystemID    []Pattern `json:"system_id,omitempty"`
	SourceAddr  []Pattern `json:"source_addr,omitempty"`
	Class       string    `json:"class"`
	ReturnClass string    `json:"return_class,omitempty"` // "" keeps the listener's
	Line        int       `json:"line"`                   // where the rule begins in the file
}

func tcDevice(t TC) string { return t.Device }

func className(c Class) string { return c.Name }

func listenerName(l Listener) string { return l.Name }

func namesOf[T any](all []T, nameOf func(T) string) []string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = nameOf(one)
	}
	return names
}
