package policy

import (
	"net/netip"
	"reflect"
	"slices"

	"shaper/calendar"
	"shaper/unit"
)

// Policy is a policy file with every default filled in. Nobody changes it after Load.
type Policy struct {
	Path      string     `json:"path"`             // the argument of Load
	Pieces    []string   `json:"pieces,omitempty"` // the files that it includes, in the order in which they are read
	Hash      string     `json:"hash"`             // first 12 hex digits of the SHA-256 of the file, or of all files
	Daemon    Daemon     `json:"daemon"`
	Classes   []Class    `json:"classes"`          // in file order
	Listeners []Listener `json:"listeners"`        // in file order
	Rules     []Rule     `json:"rules"`            // in file order: the first match wins
	TC        []TC       `json:"tc,omitempty"`     // in file order
	Fleets    []Fleet    `json:"fleets,omitempty"` // in file order

	places places // of the file; see BindError
}

// Files returns the names of all files of the policy, the main one first.
func (p *Policy) Files() []string { return append([]string{p.Path}, p.Pieces...) }

// Class returns the class with that name.
func (p *Policy) Class(name string) (Class, bool) {
	return named(p.Classes, name, func(c Class) string { return c.Name })
}

// Listener returns the listener with that name.
func (p *Policy) Listener(name string) (Listener, bool) {
	return named(p.Listeners, name, func(l Listener) string { return l.Name })
}

// Fleet returns the fleet with that name.
func (p *Policy) Fleet(name string) (Fleet, bool) { return named(p.Fleets, name, fleetName) }

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
	// Control is the path of the unix socket for the command line. In the file, a relative
	// path begins at the directory of the file.
	Control string `json:"control"`
	// HTTP is the "host:port" that serves the dashboard, metrics and health; "" serves none.
	HTTP string `json:"http"`
	// HTTPHosts are the names by which a browser may ask for the dashboard, besides addresses and
	// localhost: in lower case, without a final dot.
	HTTPHosts []string `json:"http_hosts,omitempty"`
	// State is the path of the file that keeps what limiters remember, over restarts; "" keeps
	// nothing. In the file, a relative path begins at the directory of the file. See
	// [StateOfService].
	State string `json:"state"`
	// Drain is how long open sessions may continue after a stop; 0 resets them at once.
	Drain unit.Duration `json:"drain"`
	// Include holds the paths of further files of the policy. Each part of a path may be a pattern
	// of [path.Match].
	Include []string `json:"include,omitempty"`
	// Punctual lets shaper wake up early for gaps and wait the rest by looking at the clock, so
	// that less of each gap is lost.
	Punctual bool `json:"punctual"`
}

// Algorithm is how a class computes when an item may leave.
type Algorithm string

// The algorithms of this version.
const (
	Leaky         Algorithm = "leaky"          // constant drain through a FIFO
	Token         Algorithm = "token"          // bursts up to Burst, then Rate
	GCRA          Algorithm = "gcra"           // like token, with exact fractions and a single number as its state
	FixedWindow   Algorithm = "fixed-window"   // what Rate allows in each Window of the clock
	SlidingLog    Algorithm = "sliding-log"    // what Rate allows in any Window
	SlidingWindow Algorithm = "sliding-window" // approximately like sliding-log, with two counters as its state
)

// Overflow is what happens to an item if the queue has no room for it, or it would wait longer
// than MaxWait. With the zero Overflow it depends on the protocol; see [Class.OverflowFor].
type Overflow string

// The values of Overflow.
const (
	Wait   Overflow = "wait"   // do not read from the client until there is room
	Drop   Overflow = "drop"   // discard it and count it
	Refuse Overflow = "refuse" // answer in the protocol, or close the connection
)

// Protocol is what a listener carries.
type Protocol string

// Mode is how a listener finds its upstream.
type Mode string

// The modes of this version.
const (
	Forward Mode = "forward" // the upstream that the listener names
	SOCKS5  Mode = "socks5"  // what the client asks for: SOCKS version 5
	Connect Mode = "connect" // what the client asks for: as of an HTTP proxy
	SNI     Mode = "sni"     // the name in the ClientHello of TLS
	// Transparent is the address to which the client has connected: nftables leads the connection
	// to the listener.
	Transparent Mode = "transparent"
)

// entries are the modes in which clients say where they want to go.
var entries = []Mode{SOCKS5, Connect, SNI, Transparent}

// IsEntry reports whether clients say where they want to go.
func (m Mode) IsEntry() bool { return slices.Contains(entries, m) }

// HasNames reports whether clients may say by a name where they want to go.
func (m Mode) HasNames() bool { return m.IsEntry() && m != Transparent }

// Traffic is a kind of connections that a transparent listener gets.
type Traffic string

// The values of Traffic.
const (
	Forwarded Traffic = "forwarded" // what this machine would forward, as a router
	FromHost  Traffic = "host"      // what programs of this machine send
)

// ProxyVersion is a version of the PROXY protocol.
type ProxyVersion string

// The versions of the PROXY protocol.
const (
	ProxyV1 ProxyVersion = "v1" // a line of text
	ProxyV2 ProxyVersion = "v2" // binary
)

// The built-in upstreams.
const (
	Echo    = "echo:"    // sends everything back
	Discard = "discard:" // reads everything and answers nothing
)

// Class is a section [class.NAME]: how fast its items may leave. It charges only the unit
// that its rate counts.
type Class struct {
	Name string `json:"name"`
	// Parent is the class that is also charged for the items of this one; "" if there is
	// none.
	Parent string `json:"parent,omitempty"`

	// The pace.

	Algorithm Algorithm `json:"algorithm"`
	// Rate is the limit. If there is a Ceil, Rate is what the class is assured. A limit of
	// 0 is legal and lets nothing pass.
	Rate unit.Rate `json:"rate"`
	// Ceil is how fast the class may send by borrowing what its siblings do not use. If it
	// is the zero Rate, Rate is the limit.
	Ceil unit.Rate `json:"ceil,omitzero"`
	// Burst is the depth of the bucket; the zero Burst is one quantum. Only the algorithms
	// token and gcra have one.
	Burst Burst `json:"burst,omitzero"`
	// Window is the window of a window algorithm; zero is the period of Rate. The other
	// algorithms have none.
	Window Window `json:"window,omitzero"`
	// Zone and Reset say where and at what time of day a Window of the calendar begins.
	Zone  calendar.Zone  `json:"zone,omitzero"`
	Reset calendar.Clock `json:"reset,omitzero"`
	// Headroom is how far below Rate the class is paced; 0 paces at Rate.
	Headroom unit.Percent `json:"headroom"`
	// Also are further limits of the class, or of each of its buckets. An item leaves when all
	// of them allow it, and is charged to all.
	Also []Limit `json:"also,omitempty"`
	// At says what is different at certain times. [Class.Scheduled] returns the class as it is at
	// a time; package shaper takes that.
	At []At `json:"at,omitempty"`
	// Quiet are hours in which nothing leaves to some recipients. Quieted are all recipients that
	// have such hours in the class, also by a class above.
	Quiet   []Quiet     `json:"quiet,omitempty"`
	Quieted QuietGroups `json:"-"`
	// Closed is the present or the next time in which nothing leaves; zero: there is none. Only a
	// class that Scheduled returns has it.
	Closed Span `json:"-"`

	// What waits.

	Queue Queue `json:"queue"`
	// MaxWait is the longest time that an item may wait; 0 is no bound.
	MaxWait  unit.Duration `json:"max_wait,omitzero"`
	Overflow Overflow      `json:"overflow,omitempty"`

	// The answers of the provider, for a class that counts messages.

	// InFlight is how many requests without an answer there may be; 0 is no bound.
	InFlight int `json:"in_flight,omitzero"`
	// OnThrottle is how long the class pauses if the provider refuses its messages. If it is the
	// zero OnThrottle, the class above pauses, unless this one has Adapt or Learn, or none above has
	// any of the three. Then DefaultOnThrottle holds.
	OnThrottle OnThrottle `json:"on_throttle,omitzero"`
	// Adapt makes the class slower after such a pause, until it recovers.
	Adapt bool `json:"adapt,omitempty"`
	// Learn finds a limit of the provider below the rate.
	Learn Learn `json:"learn,omitzero"`
	// Retry sends messages again that the provider has refused as too fast. If it is the zero
	// Retry, that of the class above holds.
	Retry Retry `json:"retry,omitzero"`

	// What messages and their answers say, for a class that counts messages or tokens.
	Reads

	// Buckets and sessions.

	// Per gives each key, for example each client, limits of its own. The zero Per is one
	// bucket for all. A class beneath one with buckets has the same Per and MaxKeys, of which a
	// file says nothing: each of its buckets is beneath that of the same key.
	Per Per `json:"per,omitzero"`
	// MaxKeys is how many keys may have a bucket of their own. All others share one.
	MaxKeys int `json:"max_keys"`
	// MaxConnections is how many sessions may be open in the class and below it; 0 is no
	// bound.
	MaxConnections int `json:"max_connections,omitzero"`

	// The place among its siblings.

	// Priority is from 0, which goes first, to [LastPriority].
	Priority int `json:"priority"`
	// Weight is the share among siblings with the same priority, at least 1.
	Weight int `json:"weight"`

	// Shared is the fleet that has the budget of the class; "": this process has it.
	Shared string `json:"shared,omitempty"`
	// Shadow makes the class compute and report what it would do, and enforce nothing.
	Shadow bool `json:"shadow,omitempty"`
}

// Equal reports whether two classes say the same.
func (c Class) Equal(o Class) bool { return reflect.DeepEqual(c, o) }

// LastPriority is the priority of the classes that go last.
const LastPriority = 7

// Limit returns how fast the class may send: its Ceil, or its Rate if it has no Ceil.
func (c Class) Limit() unit.Rate {
	if c.Ceil == (unit.Rate{}) {
		return c.Rate
	}
	return c.Ceil
}

// OverflowFor returns what happens to an item of a listener with that protocol if the queue is full.
func (c Class) OverflowFor(p Protocol) Overflow { return c.Overflow.For(p, c.Rate.Kind()) }

// For returns what happens to an item of a listener with that protocol in a class that counts in that unit. For udp it
// is Drop. Else it is o if that is set, Refuse for connections and for messages that the protocol can refuse, and Wait for
// all others.
func (o Overflow) For(p Protocol, kind unit.Kind) Overflow {
	switch {
	case p == UDP:
		return Drop // the client of datagrams does not wait if nobody reads them
	case o != "":
		return o
	case kind == unit.Connections, kind.OfMessages() && p.Refuses():
		return Refuse
	}
	return Wait
}

// Burst is an amount in the unit that the rate of the class counts. The zero Burst is one
// quantum.
type Burst struct {
	N    int64
	Kind unit.Kind
}

// IsZero reports whether the burst is left out, which means one quantum.
func (b Burst) IsZero() bool { return b == Burst{} }

// String prints the burst as a policy file has it, and the zero Burst as "one quantum".
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

// Queue bounds the FIFO of a class. At least one bound is above 0. A bound of 0 is no bound,
// and if both are above 0, both hold.
type Queue struct {
	Items unit.Count `json:"items,omitzero"` // datagrams, pieces of a stream, messages or connections that wait
	Bytes unit.Size  `json:"bytes,omitzero"`
}

// String prints the bounds: "1000 items or 1MiB", "500 packets" or "64KiB".
func (q Queue) String() string {
	switch {
	case q.Items.N == 0:
		return q.Bytes.String()
	case q.Bytes == 0:
		return q.Items.String()
	}
	return q.Items.String() + " or " + q.Bytes.String()
}

// Listener is a section [listener.NAME]: where clients connect, and what that leads to.
type Listener struct {
	Name string `json:"name"`
	// Listen holds addresses "host:port", unix sockets (see UnixName), and "systemd:NAME"
	// for sockets that systemd passes. With port 0 the kernel chooses a port. An empty host means all addresses.
	Listen   []string `json:"listen"`
	Protocol Protocol `json:"protocol"`
	Mode     Mode     `json:"mode"`
	// Inside is what an entry carries once a client is connected; Protocol is the same then. ""
	// is TCP.
	Inside Protocol `json:"inside,omitempty"`
	// Allow and Deny are where clients of an entry may go; see [Listener.Allows].
	Allow []Target `json:"allow,omitempty"`
	Deny  []Target `json:"deny,omitempty"`
	// Users is the path of a file with the users of an entry and the hashes of their passwords;
	// "": nobody has to log in.
	Users string `json:"users,omitempty"`
	// Intercept says what nftables leads to a transparent listener; KeepSource that its sessions
	// leave from the addresses of their clients.
	Intercept  []Traffic `json:"intercept,omitempty"`
	KeepSource bool      `json:"keep_source,omitempty"`
	// Unix says who may connect to the unix sockets of Listen. If it is nil, these are the
	// user and the group of the process.
	Unix *UnixAccess `json:"unix,omitempty"`
	// Upstream holds addresses "host:port", unix sockets and services "srv:_service._proto.name",
	// or Echo or Discard. An entry has none.
	Upstream    []string `json:"upstream"`
	Weights     []int    `json:"weights,omitempty"`      // of each Upstream; nil: each is 1
	Balance     Balance  `json:"balance"`                // which of them a session gets
	Health      Health   `json:"health,omitzero"`        // how they are checked
	Class       string   `json:"class"`                  // of the direction upstream, if no rule matches
	ReturnClass string   `json:"return_class,omitempty"` // of the direction downstream; "" does not shape it

	// The frames of ISO8583.

	// LengthPrefix is the form of the length before each message.
	LengthPrefix LengthPrefix `json:"length_prefix,omitempty"`
	// LengthIncludesItself says that this length includes the bytes of the prefix.
	LengthIncludesItself bool `json:"length_includes_itself,omitempty"`
	// HeaderLength is how many bytes are between the prefix and the message type.
	HeaderLength int `json:"header_length,omitempty"`

	// Connections and sessions.

	// AcceptProxy holds the networks whose connections begin with a PROXY header, which tells
	// the address of the client. If it is empty, there are none.
	AcceptProxy []netip.Prefix `json:"accept_proxy,omitempty"`
	// SendProxy is the version of the PROXY header that tells the upstream the address of the
	// client; "" sends none.
	SendProxy ProxyVersion `json:"send_proxy,omitempty"`
	// Bind holds the local addresses of connections to the upstream; see [Listener.Reaches]. If
	// it is empty, the kernel chooses one.
	Bind           []netip.Addr  `json:"bind,omitempty"`
	ConnectTimeout unit.Duration `json:"connect_timeout"`
	IdleTimeout    unit.Duration `json:"idle_timeout"`
	// HalfCloseTimeout replaces a longer IdleTimeout after one direction has ended. It is 0
	// for datagrams, which have no end.
	HalfCloseTimeout unit.Duration `json:"half_close_timeout,omitzero"`
	MaxSessions      int           `json:"max_sessions"` // if so many are open, the listener pauses
	// MaxSessionAge is how old a session gets before it ends, so that the next one may lead to
	// another address; 0: any age.
	MaxSessionAge unit.Duration `json:"max_session_age,omitzero"`

	// TLS, and the head of requests.

	// TLS makes the listener end the TLS of its clients. If it is nil, the listener passes
	// on what they send.
	TLS *ServerTLS `json:"tls,omitempty"`
	// UpstreamTLS makes the listener speak TLS to the upstream. If it is nil, the listener
	// passes on what clients send.
	UpstreamTLS *ClientTLS `json:"upstream_tls,omitempty"`
	// Host says what the field Host of HTTP requests contains; see [Listener.HostFor].
	Host Host `json:"host,omitempty"`
}

// Rule is a section [[rule]]. It matches if every key matches. A key matches if one of its
// values matches, or if it has none.
type Rule struct {
	Listener    []string       `json:"listener,omitempty"`
	Protocol    []Protocol     `json:"protocol,omitempty"`
	Source      []netip.Prefix `json:"source,omitempty"`
	SourcePort  []PortRange    `json:"source_port,omitempty"`
	Destination []netip.Prefix `json:"destination,omitempty"`
	Port        []PortRange    `json:"port,omitempty"` // the port that the client connected to
	// Keys that look at what clients say at an entry; see [Pattern].
	User       []Pattern `json:"user,omitempty"`
	ServerName []Pattern `json:"server_name,omitempty"`
	// Keys that look at messages of HTTP and of SMPP.
	Path       []Pattern        `json:"path,omitempty"`
	Method     []Pattern        `json:"method,omitempty"`
	Host       []Pattern        `json:"host,omitempty"`
	Header     []HeaderPatterns `json:"header,omitempty"`
	SystemID   []Pattern        `json:"system_id,omitempty"`
	SourceAddr []Pattern        `json:"source_addr,omitempty"`
	Recipient  []Pattern        `json:"recipient,omitempty"`
	DataCoding []Octet          `json:"data_coding,omitempty"`
	ESMClass   []Octet          `json:"esm_class,omitempty"`

	Class       string `json:"class"`
	ReturnClass string `json:"return_class,omitempty"` // "" keeps that of the listener
	File        string `json:"file"`                   // the file in which the rule stands
	Line        int    `json:"line"`                   // where it begins there
}

func tcDevice(t TC) string { return t.Device }

func className(c Class) string { return c.Name }

func fleetName(f Fleet) string { return f.Name }

func listenerName(l Listener) string { return l.Name }

func namesOf[T any](all []T, nameOf func(T) string) []string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = nameOf(one)
	}
	return names
}
