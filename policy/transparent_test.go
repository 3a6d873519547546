package policy

import (
	"net/netip"
	"testing"
)

// A rule sees the port to which an intercepted client has connected, which is none of the listener's.
func TestRulesOfTransparentListeners(t *testing.T) {
	p, warnings, err := Parse("x.toml", []byte(`
[class.a]
rate = "20mbit"
[class.web]
rate = "10mbit"
[listener.x]
listen = ":15001"
mode = "transparent"
allow = "203.0.113.0/24"
class = "a"
[[rule]]
listener = "x"
port = 443
destination = "203.0.113.0/24"
class = "web"
`))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %v", err, warnings)
	}
	if l := p.Listeners[0]; l.Protocol != TCP || len(l.Intercept) != 1 || l.Intercept[0] != Forwarded || l.KeepSource {
		t.Errorf("the listener is %+v", l)
	}
	if marks := p.Marks(); len(marks) != 1 || marks[""] != OwnMark {
		t.Errorf("the marks are %v", marks)
	}
	conn := Conn{Listener: "x", Source: netip.MustParseAddrPort("192.0.2.1:5"), Destination: netip.MustParseAddrPort("203.0.113.9:443"), Port: 443}
	if got := Compile(p).Classify(conn).Class; got != "web" {
		t.Errorf("the class is %s", got)
	}
}
