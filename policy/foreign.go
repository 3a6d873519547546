package policy

import (
	"fmt"
	"slices"
	"strings"
)

// foreign are words of tc, nginx, HAProxy and others, and the keys and sections that mean the same
// here. Of those that a section supports, the first counts that it does not have yet.
var foreign = map[string][]string{
	"frontend": {"listener"}, "proxy": {"listener"}, "server": {"listener", "upstream"}, "port": {"listen"}, "address": {"listen", "http"},
	"backend": {"upstream"}, "default_backend": {"upstream"}, "proxy_pass": {"upstream"}, "servers": {"upstream"}, "target": {"upstream"},
	"global": {"daemon"}, "settings": {"daemon"}, "general": {"daemon"}, "redis": {"fleet", "shared"}, "store": {"fleet", "shared"},
	"interface": {"tc"}, "device": {"tc"}, "qdisc": {"tc"}, "acl": {"rule"}, "match": {"rule"}, "filter": {"rule"},
	"limit": {"rate", "queue", "class"}, "limits": {"also", "class"}, "bandwidth": {"rate"}, "speed": {"rate"}, "limit_rate": {"rate"}, "cir": {"rate"},
	"max_rate": {"ceil"}, "peak": {"ceil"}, "pir": {"ceil"}, "bucket": {"burst"}, "capacity": {"burst"}, "cbs": {"burst"},
	"latency": {"max_wait"}, "max_delay": {"max_wait"}, "interval": {"window"}, "period": {"window"}, "buffer": {"queue"}, "backlog": {"queue"}, "queue_size": {"queue"}, "quantum": {"weight"},
	"prio": {"priority"}, "type": {"algorithm", "protocol"}, "key": {"per"}, "by": {"per"}, "maxconn": {"max_connections", "max_sessions"},
	"concurrency": {"in_flight"}, "timeout": {"idle_timeout", "max_wait", "deadline"},
	"src": {"source"}, "source_ip": {"source"}, "client": {"source"}, "sport": {"source_port"}, "dst": {"destination"}, "dest": {"destination"},
	"destination_addr": {"recipient"}, "dest_addr": {"recipient"}, "to": {"recipient"}, "sender": {"source_addr"},
	"dport": {"port"}, "sni": {"server_name"}, "url": {"path", "upstream", "address"}, "uri": {"path", "address"},
	"ssl": {"tls"}, "cert": {"tls"}, "certificate": {"tls"}, "check": {"health"}, "healthcheck": {"health"}, "lb": {"balance"},
	"whitelist": {"allow"}, "blacklist": {"deny"}, "password": {"password_file", "users"}, "auth": {"users"},
	"metrics": {"http"}, "dashboard": {"http"}, "socket": {"control", "listen"}, "pieces": {"include"}, "includes": {"include"},
}

// explained are words of others that mean more here than one key, and what to write. key is one that a section
// supports in which that helps.
var explained = map[string]struct{ key, remedy string }{
	"nodelay": {"burst", atOnce}, "delay": {"burst", atOnce}, // of nginx
	"header": {headersKey, ofField}, "headers": {headersKey, ofField}, "hdr": {headersKey, ofField}, "http_header": {headersKey, ofField},
}

const (
	atOnce  = `algorithm = "token" with a burst lets so much leave at once, and max_wait says how long the rest may wait`
	ofField = `a rule names the field in the key, with quotes: "header:X-Api-Key" = "abc"`
)

// meant returns the one of the keys of a section that was probably meant by an unknown one, or "". given are
// the keys that the section has.
func meant(name string, supported []string, given ...string) string {
	ours := slices.DeleteFunc(slices.Clone(foreign[strings.ToLower(name)]), func(key string) bool { return !slices.Contains(supported, key) })
	for _, key := range ours {
		if !slices.Contains(given, key) {
			return key
		}
	}
	if len(ours) > 0 {
		return ours[0]
	}
	return nearest(name, supported)
}

// An owner is a kind of section, and its keys.
type owner struct {
	header string // "[class.NAME]"; "" for the file, whose keys are the sections
	keys   []string
}

// owners are set by an init, because the tables of the keys use the functions that use owners.
var owners []owner

// instead says what to write for a key that the section with these keys does not support: the key that
// was probably meant, the sections that have it, or else all that is supported. given are the keys that the section has.
func instead(name string, supported []string, given ...string) string {
	isSection := slices.ContainsFunc(owners, func(o owner) bool { return slices.Equal(o.keys, supported) })
	word, _, _ := strings.Cut(strings.ToLower(name), ".")
	switch e := explained[word]; {
	case e.key != "" && slices.Contains(supported, e.key):
		return e.remedy
	case e.key != "" && isSection && below(e.key) != "":
		return fmt.Sprintf("below %s, %s", below(e.key), e.remedy)
	}
	isField := slices.Contains(supported, headersKey) && looksLikeField(name)
	if ours := meant(name, supported, given...); ours != "" && !isField {
		return fmt.Sprintf("did you mean %q?", ours)
	}
	if isField {
		return fmt.Sprintf("did you mean %q, a field of HTTP?", headerKey+name)
	}
	for _, ours := range append([]string{name}, foreign[strings.ToLower(name)]...) {
		if below := below(ours); below != "" && isSection {
			return fmt.Sprintf("%s belongs below %s", ours, below)
		}
	}
	return Hint(name, "supported here", supported)
}

// looksLikeField reports whether a name is probably one of a field of HTTP: it has hyphens, as no key here, and begins with a
// capital, or with "x-".
func looksLikeField(name string) bool {
	return isName(name) && strings.Contains(name, "-") && ('A' <= name[0] && name[0] <= 'Z' || strings.HasPrefix(name, "x-"))
}

// below returns the headers of the sections that have a key; "" if none has.
func below(key string) string {
	var headers []string
	for _, o := range owners {
		if o.header != "" && slices.Contains(o.keys, key) {
			headers = append(headers, o.header)
		}
	}
	return orList(headers)
}
