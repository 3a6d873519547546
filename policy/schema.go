package policy

import (
	"fmt"
	"net/netip"
	"strings"

	"shaper/calendar"
	"shaper/unit"
)

// The tables in this file are the file format: the keys of each section, in the order in
// which they are printed.

const (
	hostPortForm = `an address is like "127.0.0.1:2775", "[::1]:2775" or "host.example:2775"`
	listenForm   = `an address is like "127.0.0.1:2775" or "[::1]:2775", or "unix:/run/x.sock", or "systemd:NAME", or a list of them`
	upstreamForm = `"host:port", "srv:_service._proto.name", "unix:/run/x.sock", a list of them, "echo:" or "discard:"`
	httpForm     = `an address is like "127.0.0.1:9780"; "" turns it off`
	hostsForm    = `the name of a host, like "shaper.example.com", or a list of them`
	includeForm  = `names of files beside this one, like "shaper.d/*.toml", or a list of them`
	stateForm    = `the path of a file; "" keeps nothing over a restart`
	controlForm  = `the path of a unix socket, at most 107 bytes`
	addrForm     = `an address is like "10.0.0.1" or "fd00::1"`
	prefixForm   = `an address or prefix is like "10.1.2.3", "10.1.0.0/16" or "fd00:1::/64"`
	portForm     = `a port is an integer from 1 to 65535, or a range like "8000-8100"`
	burstForm    = `a burst is a size like "64KiB" or a count like "100 packets"`
	queueForm    = `a queue is bounded by a size like "64KiB" or a count like "500 packets"`
	sessionsForm = `an integer from 1 to 2147483647`
	keysForm     = `an integer from 1 to 16777216`
	priorityForm = `an integer from 0, the first, to 7`
	weightForm   = `an integer from 1 to 10000`
	classForm    = `the name of a class`
	listenerForm = `the name of a listener, or a list of them`

	algorithmForm    = `"leaky", "token", "gcra", "fixed-window", "sliding-log" or "sliding-window"`
	overflowForm     = `"wait", "drop" or "refuse"`
	protocolForm     = `"tcp", "udp", "smpp", "http", "iso8583" or "lines"`
	lengthPrefixForm = `"binary2", "ascii4", "bcd2" or "vml"`
	throttleForm     = `a table like { pause = "1s", max = "60s" }`
	inFlightForm     = `an integer from 1 to 1000000`
	headerForm       = `an integer from 0 to 64`
	boolForm         = `true or false`
	modeForm         = `"forward", "socks5", "connect", "sni" or "transparent"`
	interceptForm    = `"forwarded", "host", or a list of both`
	insideForm       = `"tcp", "udp", "smpp", "http", "iso8583" or "lines"`
	usersForm        = `the path of a file with lines NAME:HASH`
	sendProxyForm    = `"v1" or "v2"`
)

var (
	parseAlgorithm    = choice(algorithmForm, Algorithms)
	parseOverflow     = choice(overflowForm, []Overflow{Wait, Drop, Refuse})
	parseBareProtocol = choice(protocolForm, []Protocol{TCP, UDP, SMPP, HTTP, ISO8583, Lines})
	parseSendProxy    = choice(sendProxyForm, []ProxyVersion{ProxyV1, ProxyV2})
	parseLengthPrefix = choice(lengthPrefixForm, []LengthPrefix{Binary2, ASCII4, BCD2, VML})
	parseMode         = choice(modeForm, append([]Mode{Forward}, entries...))
	parseIntercept    = choice(interceptForm, []Traffic{Forwarded, FromHost})
	parseInside       = choice(insideForm, []Protocol{TCP, UDP, SMPP, HTTP, ISO8583, Lines})
)

var daemonFields = []field[Daemon]{
	one("control", controlForm, func(d *Daemon) *string { return &d.Control }, parseControl),
	emptyAs("off", one("http", httpForm, func(d *Daemon) *string { return &d.HTTP }, parseHTTP)),
	emptyAs("none", many("http_hosts", hostsForm, func(d *Daemon) *[]string { return &d.HTTPHosts }, parseHTTPHost)),
	emptyAs("off", one("state", stateForm, func(d *Daemon) *string { return &d.State }, parseState)),
	quantity("drain", func(d *Daemon) *unit.Duration { return &d.Drain }, unit.ParseDuration),
	emptyAs("none", many("include", includeForm, func(d *Daemon) *[]string { return &d.Include }, parseInclude)),
	yesNo("punctual", func(d *Daemon) *bool { return &d.Punctual }),
}

var classFields = []field[Class]{
	emptyAs("none", one("parent", classForm, func(c *Class) *string { return &c.Parent }, anyText)),
	one("algorithm", algorithmForm, func(c *Class) *Algorithm { return &c.Algorithm }, parseAlgorithm),
	require(quantity("rate", func(c *Class) *unit.Rate { return &c.Rate }, unit.ParseRate)),
	emptyAs("the rate", quantity("ceil", func(c *Class) *unit.Rate { return &c.Ceil }, unit.ParseRate)),
	quantity("burst", func(c *Class) *Burst { return &c.Burst }, parseBurst),
	emptyAs("the period of the rate", quantity("window", func(c *Class) *Window { return &c.Window }, parseWindow)),
	one("zone", zoneForm, func(c *Class) *calendar.Zone { return &c.Zone }, parseZone),
	one("reset", clockForm, func(c *Class) *calendar.Clock { return &c.Reset }, parseReset),
	quantity("headroom", func(c *Class) *unit.Percent { return &c.Headroom }, unit.ParsePercent),
	emptyAs("none", alsoField),
	emptyAs("none", atField),
	emptyAs("none", quietField),
	quantity("queue", func(c *Class) *Queue { return &c.Queue }, parseQueue),
	emptyAs("none", quantity("max_wait", func(c *Class) *unit.Duration { return &c.MaxWait }, parseWait)),
	emptyAs("by protocol", one("overflow", overflowForm, func(c *Class) *Overflow { return &c.Overflow }, parseOverflow)),
	onlyIntegers(one("priority", priorityForm, func(c *Class) *int { return &c.Priority }, parsePriority)),
	onlyIntegers(one("weight", weightForm, func(c *Class) *int { return &c.Weight }, parseWeight)),
	emptyAs("none", perField),
	onlyIntegers(one("max_keys", keysForm, func(c *Class) *int { return &c.MaxKeys }, parseKeys)),
	emptyAs("none", onlyIntegers(one("max_connections", sessionsForm, func(c *Class) *int { return &c.MaxConnections }, parseSessions))),
	yesNo("shadow", func(c *Class) *bool { return &c.Shadow }),
	emptyAs("none", onlyIntegers(one("in_flight", inFlightForm, func(c *Class) *int { return &c.InFlight }, parseInFlight))),
	emptyAs("the class above pauses, or 1s up to 1min", group("on_throttle", throttleForm, func(c *Class) *OnThrottle { return &c.OnThrottle }, DefaultOnThrottle, onThrottleFields)),
	yesNo("adapt", func(c *Class) *bool { return &c.Adapt }),
	emptyAs("none", group("learn", learnForm, func(c *Class) *Learn { return &c.Learn }, Learn{}, learnFields)),
	emptyAs("none, or that of the class above", group("retry", retryForm, func(c *Class) *Retry { return &c.Retry }, DefaultRetry, retryFields)),
	emptyAs("1 for each message, or that of the class above", costField),
	emptyAs("none", nested("settle", settleForm, func(c *Class) **Place { return &c.Settle }, settleFields, false)),
	emptyAs("none", nested("throttled_by", signalForm, func(c *Class) **Signal { return &c.ThrottledBy }, signalFields, false)),
	yesNo("hints", func(c *Class) *bool { return &c.Hints }),
	emptyAs("none", one("shared", fleetForm, func(c *Class) *string { return &c.Shared }, anyText)),
}

var listenerFields = []field[Listener]{
	require(many("listen", listenForm, func(l *Listener) *[]string { return &l.Listen }, parseListen)),
	emptyAs(DefaultUnixMode.String(), nested("unix", unixAccessForm, func(l *Listener) **UnixAccess { return &l.Unix }, unixAccessFields, false)),
	one("protocol", protocolForm, func(l *Listener) *Protocol { return &l.Protocol }, parseProtocol),
	one("mode", modeForm, func(l *Listener) *Mode { return &l.Mode }, parseMode),
	emptyMeans("tcp", one("inside", insideForm, func(l *Listener) *Protocol { return &l.Inside }, parseInside)),
	emptyAs("none", many("allow", targetForm, func(l *Listener) *[]Target { return &l.Allow }, parseTarget)),
	emptyAs("none", many("deny", targetForm, func(l *Listener) *[]Target { return &l.Deny }, parseTarget)),
	emptyAs("none", secretPath("users", usersForm, func(l *Listener) *string { return &l.Users })),
	emptyMeans("forwarded", many("intercept", interceptForm, func(l *Listener) *[]Traffic { return &l.Intercept }, parseIntercept)),
	yesNo("keep_source", func(l *Listener) *bool { return &l.KeepSource }),
	emptyAs("none", upstreamField),
	one("balance", balanceForm, func(l *Listener) *Balance { return &l.Balance }, parseBalance),
	emptyAs("none", group("health", healthForm, func(l *Listener) *Health { return &l.Health }, DefaultHealth, healthFields)),
	require(one("class", classForm, func(l *Listener) *string { return &l.Class }, anyText)),
	emptyAs("none", one("return_class", classForm, func(l *Listener) *string { return &l.ReturnClass }, anyText)),
	emptyAs("none", one("length_prefix", lengthPrefixForm, func(l *Listener) *LengthPrefix { return &l.LengthPrefix }, parseLengthPrefix)),
	yesNo("length_includes_itself", func(l *Listener) *bool { return &l.LengthIncludesItself }),
	onlyIntegers(one("header_length", headerForm, func(l *Listener) *int { return &l.HeaderLength }, parseHeaderLength)),
	emptyAs("any", bindField),
	quantity("connect_timeout", func(l *Listener) *unit.Duration { return &l.ConnectTimeout }, parseWait),
	quantity("idle_timeout", func(l *Listener) *unit.Duration { return &l.IdleTimeout }, parseWait),
	quantity("half_close_timeout", func(l *Listener) *unit.Duration { return &l.HalfCloseTimeout }, parseWait),
	emptyAs("none", quantity("max_session_age", func(l *Listener) *unit.Duration { return &l.MaxSessionAge }, parseWait)),
	onlyIntegers(one("max_sessions", sessionsForm, func(l *Listener) *int { return &l.MaxSessions }, parseSessions)),
	emptyAs("none", nested("tls", tlsForm, func(l *Listener) **ServerTLS { return &l.TLS }, serverTLSFields, false)),
	emptyAs("none", nested("upstream_tls", upstreamTLSForm, func(l *Listener) **ClientTLS { return &l.UpstreamTLS }, clientTLSFields, true)),
	hostField,
	emptyAs("none", many("accept_proxy", prefixForm, func(l *Listener) *[]netip.Prefix { return &l.AcceptProxy }, parsePrefix)),
	emptyAs("none", one("send_proxy", sendProxyForm, func(l *Listener) *ProxyVersion { return &l.SendProxy }, parseSendProxy)),
}

var ruleFields = []field[Rule]{
	many("listener", listenerForm, func(r *Rule) *[]string { return &r.Listener }, anyText),
	many("protocol", protocolForm, func(r *Rule) *[]Protocol { return &r.Protocol }, parseProtocol),
	many("source", prefixForm, func(r *Rule) *[]netip.Prefix { return &r.Source }, parsePrefix),
	alsoIntegers(many("source_port", portForm, func(r *Rule) *[]PortRange { return &r.SourcePort }, ParsePortRange)),
	many("destination", prefixForm, func(r *Rule) *[]netip.Prefix { return &r.Destination }, parsePrefix),
	alsoIntegers(many("port", portForm, func(r *Rule) *[]PortRange { return &r.Port }, ParsePortRange)),
	many("user", patternForm, func(r *Rule) *[]Pattern { return &r.User }, parsePattern),
	many("server_name", patternForm, func(r *Rule) *[]Pattern { return &r.ServerName }, parseHostPattern),
	pathField,
	many("method", patternForm, func(r *Rule) *[]Pattern { return &r.Method }, parsePattern),
	many("host", patternForm, func(r *Rule) *[]Pattern { return &r.Host }, parseHostPattern),
	many("system_id", patternForm, func(r *Rule) *[]Pattern { return &r.SystemID }, parsePattern),
	many("source_addr", patternForm, func(r *Rule) *[]Pattern { return &r.SourceAddr }, parsePattern),
	many("recipient", patternForm, func(r *Rule) *[]Pattern { return &r.Recipient }, parsePattern),
	onlyIntegers(many("data_coding", octetForm, func(r *Rule) *[]Octet { return &r.DataCoding }, parseOctet)),
	onlyIntegers(many("esm_class", octetForm, func(r *Rule) *[]Octet { return &r.ESMClass }, parseOctet)),
	headerFields,
	require(one("class", classForm, func(r *Rule) *string { return &r.Class }, anyText)),
	emptyAs("the listener's", one("return_class", classForm, func(r *Rule) *string { return &r.ReturnClass }, anyText)),
}

func init() {
	owners = []owner{
		{"", sections}, owns("[daemon]", daemonFields), owns("[class.NAME]", classFields), owns("[listener.NAME]", listenerFields),
		owns("[[rule]]", ruleFields), owns("[tc.DEVICE]", tcFields), owns("[fleet.NAME]", fleetFields),
	}
}

// owns returns the keys that a kind of section supports.
func owns[T any](header string, fields []field[T]) owner {
	return owner{header, namesOf(fields, field[T].key)}
}

// tlsProtocols are names of protocols over TLS. The file sets TLS with other keys.
var tlsProtocols = map[string]Protocol{"https": HTTP, "smpps": SMPP, "tls": TCP, "ssl": TCP}

// parseProtocol reads a protocol, and says how to write one over TLS.
func parseProtocol(s string) (Protocol, error) {
	if plain, ok := tlsProtocols[strings.ToLower(s)]; ok {
		return "", complain(fmt.Sprintf("write %q, with upstream_tls = true if the upstream speaks TLS, and with tls if the clients do", plain), "%q is not known", s)
	}
	return parseBareProtocol(s)
}
