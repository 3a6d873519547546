package policy

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"shaper/unit"
)

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		match         bool
	}{
		{"/v1", "/v1", true}, {"/v1", "/v1/", false}, {"/v1", "", false},
		{"/v1/*", "/v1/", true}, {"/v1/*", "/v1/charges", true}, {"/v1/*", "/v1", false}, {"/v1/*", "/V1/a", false},
		{"*.example", "a.example", true}, {"*.example", "example", false},
		{"*otp*", "my otp code", true}, {"*otp*", "opt", false},
		{"*", "", true}, {"*", "all", true}, {"**", "all", true},
	} {
		if p, err := parsePattern(c.pattern); err != nil || p.Match([]byte(c.text)) != c.match {
			t.Errorf("%q matches %q: %v, %v", c.pattern, c.text, !c.match, err)
		}
	}
}

const messagePolicy = `
[class.bulk]
rate = "10 messages/s"
in_flight = 7
on_throttle = { pause = "2s" }
adapt = true
[class.otp]
rate = "10 messages/s"
[class.internal]
rate = "10 messages/s"
[listener.sms]
protocol = "smpp"
listen = "127.0.0.1:2775"
upstream = "192.0.2.1:2775"
class = "bulk"
[listener.api]
protocol = "http"
listen = "127.0.0.1:80"
upstream = "192.0.2.1:80"
class = "bulk"
[listener.cards]
protocol = "iso8583"
length_prefix = "ascii4"
length_includes_itself = true
header_length = 5
listen = "127.0.0.1:81"
upstream = "192.0.2.1:80"
class = "otp"
[[rule]]
source_addr = "OTP*"
class = "otp"
[[rule]]
method = ["GET", "HEAD"]
host = "API.example"
path = "/v1/*"
class = "otp"
[[rule]]
source = "10.0.0.0/8"
class = "internal"
[[rule]]
system_id = "late"
class = "otp"
`

// Rules that look at messages are tried in file order, up to the rule that decides for the
// connection. Rules for another protocol are never tried.
func TestMessages(t *testing.T) {
	p := mustParse(t, messagePolicy)
	c := Compile(p)
	of := func(listener, source string) []MessageRule {
		return c.Messages(Conn{Listener: listener, Source: netip.MustParseAddrPort(source)})
	}
	for _, tt := range []struct {
		listener, source string
		rules            int
		class            string
	}{
		{"sms", "192.0.2.9:1", 2, "bulk"},
		{"sms", "10.0.0.1:1", 1, "internal"},
		{"api", "192.0.2.9:1", 1, "bulk"},
		{"cards", "192.0.2.9:1", 0, "otp"},
		{"none", "192.0.2.9:1", 0, ""},
	} {
		if got := of(tt.listener, tt.source); len(got) != tt.rules {
			t.Errorf("%s from %s: %d rules, want %d", tt.listener, tt.source, len(got), tt.rules)
		}
		if d := c.Classify(Conn{Listener: tt.listener, Source: netip.MustParseAddrPort(tt.source)}); d.Class != tt.class {
			t.Errorf("%s from %s: class %q, want %q", tt.listener, tt.source, d.Class, tt.class)
		}
	}
	sms := of("sms", "192.0.2.9:1")
	for text, want := range map[string][2]bool{"OTP1": {true, false}, "otp1": {false, false}} {
		m := Message{SourceAddr: []byte(text)}
		if got := [2]bool{sms[0].Match(&m), sms[1].Match(&m)}; got != want {
			t.Errorf("source_addr %q: %v, want %v", text, got, want)
		}
	}
	api := of("api", "192.0.2.9:1")
	for _, tt := range []struct {
		method, host, path string
		match              bool
	}{
		{"GET", "api.EXAMPLE", "/v1/x", true}, {"POST", "api.example", "/v1/x", false},
		{"HEAD", "api.example", "/v2", false}, {"GET", "", "/v1/x", false}, {"GET", strings.Repeat("x", 300), "/v1/x", false},
	} {
		m := Message{Method: []byte(tt.method), Host: []byte(tt.host), Path: []byte(tt.path)}
		if api[0].Match(&m) != tt.match {
			t.Errorf("%+v matches: %v", tt, !tt.match)
		}
	}
	e := c.Explain(Conn{Listener: "sms", Source: netip.MustParseAddrPort("10.0.0.1:1")}, Fields{})
	if e.Class != "internal" || !strings.Contains(e.String(), "not rule 1 (test.toml:29): it looks at messages, and no message is given") {
		t.Errorf("Explain returns %s", e)
	}
}

func TestMatchAllocates(t *testing.T) {
	rules := Compile(mustParse(t, messagePolicy)).Messages(Conn{Listener: "api", Source: netip.MustParseAddrPort("192.0.2.9:1")})
	m := Message{Method: []byte("GET"), Host: []byte("API.example"), Path: []byte("/v1/x")}
	if n := testing.AllocsPerRun(100, func() { rules[0].Match(&m) }); n != 0 {
		t.Errorf("a match allocates %v times", n)
	}
}

func TestOnThrottle(t *testing.T) {
	p := mustParse(t, messagePolicy)
	want := OnThrottle{Pause: unit.Duration(2 * time.Second), Max: unit.Duration(time.Minute)}
	if got := p.Classes[0]; got.OnThrottle != want || !got.Adapt || got.InFlight != 7 {
		t.Errorf("%+v", got)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Policy
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if changes := Diff(p, &back); len(changes) > 0 {
		t.Errorf("through JSON it changes: %v", changes)
	}
	var b strings.Builder
	if err := p.WriteTree(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`on_throttle      { pause = "2s", max = "1min" }`, "in_flight        7", "length_prefix           ascii4", "header_length           5", `source_addr OTP*, class otp`} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("%q is missing in\n%s", line, b.String())
		}
	}
	if strings.Count(b.String(), "length_prefix") != 1 {
		t.Error("a listener without a length before messages prints one")
	}
}

// What happens if a queue is full depends on the protocol.
func TestOverflowOfMessages(t *testing.T) {
	c := DefaultClass("a")
	c.Rate = unit.NewRate(unit.Messages, 1, time.Second)
	for p, want := range map[Protocol]Overflow{SMPP: Refuse, HTTP: Refuse, ISO8583: Wait, Lines: Wait} {
		if got := c.OverflowFor(p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	c.Rate = unit.BytesPerSecond(1)
	if got := c.OverflowFor(HTTP); got != Wait {
		t.Errorf("bytes over http: %s", got)
	}
}

// A class may have keys about answers if only some classes below it get answers.
func TestAnswersOfSome(t *testing.T) {
	p := mustParse(t, `
[class.account]
rate = "20 messages/s"
adapt = true
in_flight = 5
on_throttle = { pause = "1s", max = "60s" }
[class.sms]
rate = "10 messages/s"
parent = "account"
[class.cards]
rate = "10 messages/s"
parent = "account"
[class.mixed]
rate = "10 messages/s"
adapt = true
[listener.sms]
listen = "127.0.0.1:1"
protocol = "smpp"
upstream = "192.0.2.1:2775"
class = "sms"
return_class = "mixed"
[listener.cards]
listen = "127.0.0.1:2"
protocol = "iso8583"
upstream = "192.0.2.1:2776"
class = "cards"
return_class = "mixed"
`)
	if !p.Classes[0].Adapt || p.Classes[0].InFlight != 5 {
		t.Errorf("the class reads as %+v", p.Classes[0])
	}
}

// An in_flight that only bounds messages without answers is legal, with a warning.
func TestInFlightAboveOthers(t *testing.T) {
	text, err := os.ReadFile("testdata/bad/in-flight-of-lines.toml")
	if err != nil {
		t.Fatal(err)
	}
	below := strings.Replace(string(text), "[listener", "[class.b]\nrate = \"5 messages/s\"\nparent = \"a\"\n[listener", 1)
	for _, c := range []struct{ text, warned string }{
		{strings.Replace(below, `class = "a"`, `class = "b"`, 1), `t.toml:3:13: class.a.in_flight: it bounds nothing: only messages of smpp and http have answers; leave it out`},
		{strings.NewReplacer(`class = "a"`, `class = "b"`, `"lines"`, `"smpp"`).Replace(below), ""},
	} {
		if _, warnings, err := Parse("t.toml", []byte(c.text)); err != nil || warnings.Error() != c.warned {
			t.Errorf("%v, %v of\n%s", err, warnings, c.text)
		}
	}
}

// The cost of a class is that of all classes above it which count the same, so theirs is not used.
func TestCostBelowACost(t *testing.T) {
	const rest = "[listener.a]\nlisten = \"127.0.0.1:1\"\nprotocol = \"http\"\nupstream = \"192.0.2.1:80\"\nclass = \"child\"\n"
	class := func(name, rate, more string) string {
		return "[class." + name + "]\nrate = \"" + rate + "\"\n" + more + "\n"
	}
	const four, most = "cost = { bytes = 4 }", "cost = { json = \"max_tokens\", default = 1 }"
	const total, input = "settle = { json = \"usage.total_tokens\" }", "settle = { json = \"usage.input_tokens\" }"
	below := "parent = \"account\"\n"
	for _, c := range []struct{ text, warned string }{
		{class("account", "100 tokens/s", four) + class("child", "50 tokens/s", below+most), "class.child.cost"},
		{class("account", "100 tokens/s", four+"\n"+total) + class("child", "50 tokens/s", below+four+"\n"+input), "class.child.settle"},
		{class("account", "100 tokens/s", four) + class("child", "50 tokens/s", below+four), ""},
		{class("account", "100 tokens/s", four) + class("team", "100 tokens/s", below) + class("child", "50 tokens/s", "parent = \"team\"\n"+most), "class.child.cost"},
		{class("account", "100 tokens/s", four) + class("child", "50 tokens/s", below), ""},
		{class("account", "100 messages/s", "cost = 2") + class("child", "50 tokens/s", below+most), ""},
	} {
		_, warnings, err := Parse("t.toml", []byte(c.text+rest))
		got := ""
		for _, w := range warnings {
			got += w.Key
		}
		if err != nil || got != c.warned {
			t.Errorf("it warns of %q, want %q: %v, %v of\n%s", got, c.warned, warnings, err, c.text)
		}
	}
}

// A queue that one connection cannot hold is an error only if messages of one connection can
// fill it.
func TestQueueOfAConnection(t *testing.T) {
	for _, c := range []struct {
		protocol, rate, queue string
		ok                    bool
	}{
		{"smpp", "10 messages/s", "32768 messages", true},
		{"smpp", "10 messages/s", "32769 messages", false},
		{"smpp", "10kB/s", "32769 items", false},
		{"smpp", "10 connections/s", "100000 connections", true},
		{"lines", "10 messages/s", "16MiB", true},
		{"lines", "10 messages/s", "17MiB", false},
		{"http", "10 messages/s", "100000 messages", true},
		{"tcp", "10kB/s", "64MiB", true},
	} {
		_, _, err := Parse("test.toml", []byte("[class.a]\nrate = \""+c.rate+"\"\nqueue = \""+c.queue+"\"\n"+
			"[listener.l]\nlisten = \"127.0.0.1:80\"\nprotocol = \""+c.protocol+"\"\nupstream = \"192.0.2.1:80\"\nclass = \"a\"\n"))
		if (err == nil) != c.ok {
			t.Errorf("%s, %s, a queue of %s: %v", c.protocol, c.rate, c.queue, err)
		}
	}
}

const keyedPolicy = `
[class.all]
rate = "10 messages/s"
[class.pair]
rate = "10 messages/min"
per = ["source_addr", "recipient"]
[class.gold]
rate = "10 messages/s"
per = "header:X-Api-Key"
[listener.sms]
protocol = "smpp"
listen = "127.0.0.1:2775"
upstream = "192.0.2.1:2775"
class = "all"
[listener.api]
protocol = "http"
listen = "127.0.0.1:80"
upstream = "192.0.2.1:80"
class = "all"
[[rule]]
recipient = "49*"
data_coding = [0, 0x08]
esm_class = 64
class = "pair"
[[rule]]
"header:x-plan" = ["gold*", "silver"]
"header:X-Api-Key" = "*"
class = "gold"
`

// Rules look at the recipient, at bytes of a PDU and at any field of a request; explain names
// the bucket by what is asked.
func TestRulesByKeys(t *testing.T) {
	p := mustParse(t, keyedPolicy)
	for _, c := range []struct {
		listener string
		given    Fields
		want     string // beginning of the explanation
	}{
		{"sms", Fields{Recipient: "4917", DataCoding: "8", ESMClass: "64", SourceAddr: "otp"}, `class pair, the bucket of source_addr "otp" and recipient "4917": rule 1 (test.toml:20): it looks at`},
		{"sms", Fields{Recipient: "3317", DataCoding: "8", ESMClass: "64"}, "class all: no rule matches, so it is the class of listener \"sms\"\n  not rule 1 (test.toml:20): recipient \"3317\" is not like 49*\n"},
		{"sms", Fields{Recipient: "4917", DataCoding: "4", ESMClass: "64"}, "class all: no rule matches, so it is the class of listener \"sms\"\n  not rule 1 (test.toml:20): data_coding \"4\" is not like 0, 8\n"},
		{"sms", Fields{Recipient: "4917", DataCoding: "0"}, "class all: no rule matches, so it is the class of listener \"sms\"\n  not rule 1 (test.toml:20): esm_class is not given\n"},
		{"api", Fields{Header: "X-Plan: gold-1\nX-API-KEY: k\n"}, `class gold, the bucket of header:X-Api-Key "k": rule 2 (test.toml:25): header:x-plan "gold-1" is like gold*, silver, header:X-Api-Key "k" is like *`},
		{"api", Fields{Header: "X-Plan: iron\nX-API-KEY: k\n"}, "class all: no rule matches, so it is the class of listener \"api\"\n"},
	} {
		e := Compile(p).Explain(Conn{Listener: c.listener}, c.given)
		if want := strings.ReplaceAll(c.want, ": it looks at", `: recipient "4917" is like 49*, data_coding "8" is like 0, 8, esm_class "64" is like 64`); !strings.HasPrefix(e.String(), want) {
			t.Errorf("%+v:\n%s, want\n%s", c.given, e, want)
		}
	}
	if got, want := p.Rules[0].String(), "recipient 49*, data_coding 0, 8, esm_class 64, class pair"; got != want {
		t.Errorf("rule 1 prints as %q, want %q", got, want)
	}
	if got, want := p.Rules[1].String(), "header:x-plan (not shown), header:X-Api-Key (not shown), class gold"; got != want {
		t.Errorf("rule 2 prints as %q, want %q", got, want)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Policy
	if err := json.Unmarshal(text, &back); err != nil || len(Diff(p, &back)) > 0 {
		t.Errorf("through JSON it changes: %v, %v\n%s", err, Diff(p, &back), text)
	}
}

func TestFieldsCheck(t *testing.T) {
	for _, good := range []Fields{{}, {DataCoding: "255", ESMClass: "0", Header: "A: b\nC:\n"}} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []Fields{{Header: "A"}, {Header: "A B: c\n"}} {
		if bad.Check() == nil {
			t.Errorf("%+v is a message", bad)
		}
	}
}

// Rules see the path without its query and the host without its port. So a field that has one is a mistake.
func TestFieldsThatNoMessageHas(t *testing.T) {
	for fields, want := range map[Fields]string{
		{DataCoding: "0x8"}:             `data_coding: "0x8" is not the value of a byte; an integer from 0 to 255`,
		{ESMClass: "256"}:               `esm_class: "256" is not the value of a byte; an integer from 0 to 255`,
		{Path: "/v1/x?q=1"}:             "query",
		{Host: "api.example:80"}:        "port 80",
		{Host: "[2001:db8::1]:443"}:     "port 443",
		{Path: "/v1/x", Host: "a.test"}: "",
		{Host: "[2001:db8::1]"}:         "",
		{Host: "2001:db8::1"}:           "",
	} {
		if err := fields.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", fields, err, want)
		}
	}
}
