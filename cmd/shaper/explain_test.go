package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaper/daemon"
	"shaper/policy"
	"shaper/simulate"
)

const messageRules = `[class.bulk]
rate = "20 messages/s"
[class.otp]
rate = "20 messages/s"
in_flight = 3
[class.api]
rate = "5 messages/s"
[listener.sms]
listen = "127.0.0.1:2775"
protocol = "smpp"
upstream = "discard:"
class = "bulk"
[listener.web]
listen = "127.0.0.1:8080"
protocol = "http"
upstream = "discard:"
class = "bulk"
[[rule]]
source_addr = "OTP*"
class = "otp"
[[rule]]
path = "/v1/*"
method = ["GET", "POST"]
class = "api"
`

func rulesFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.toml")
	if err := os.WriteFile(path, []byte(messageRules), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// explain says that an entry refuses a destination.
func TestExplainWhatAnEntryRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "entry.toml", "[class.a]\nrate = \"1mbit\"\n[listener.x]\nlisten = \":15001\"\nmode = \"transparent\"\nallow = \"203.0.113.0/24:443\"\nclass = \"a\"\n"+
		"[listener.socks]\nlisten = \"127.0.0.1:1080\"\nmode = \"socks5\"\nallow = [\"203.0.113.0/24:443\", \"*.example:80\"]\nclass = \"a\"\n")
	for _, tt := range []struct {
		denied bool
		args   string
	}{
		{true, "--listener x --destination 203.0.113.7 --port 444"},
		{false, "--listener x --destination 203.0.113.7 --port 443"},
		{false, "--listener x --destination 203.0.113.7:443"},
		{true, "--listener x --destination 203.0.113.7:444"},
		{false, "--listener x --destination 203.0.113.7"}, // the port is not known
		{true, "--listener x --destination 192.0.2.1 --port 443"},
		{true, "--listener socks --destination 203.0.113.7:444"},
		{false, "--listener socks --destination 203.0.113.7:443"},
		{false, "--listener socks --destination 203.0.113.7"}, // the port is not known
		{true, "--listener socks --destination 192.0.2.1:80"},
		{false, "--listener socks --destination 192.0.2.1:80 --server-name api.example"},
		{false, "--listener socks"},
	} {
		out := want(t, 0, nil, append(strings.Fields("explain 10.0.0.1 --policy entry.toml"), strings.Fields(tt.args)...)...)
		if says := strings.Contains(out, "refused: the listener does not allow the destination"); says != tt.denied {
			t.Errorf("explain %s: denied %v, want %v:\n%s", tt.args, says, tt.denied, out)
		}
	}
}

// `explain --policy` tries rules without a daemon, also those about messages. With --expect its
// exit code is the outcome of a test.
func TestExplainWithoutADaemon(t *testing.T) {
	path := rulesFile(t)
	otp := "port 2775: class otp: rule 1 (" + path + `:18): source_addr "OTP1" is like OTP*`
	api := "port 8080: class api: rule 2 (" + path + `:21): path "/v1/x" is like /v1/*, method "GET" is like GET, POST`
	for _, tt := range []struct {
		code int
		want []string
		args string
	}{
		{0, []string{otp}, "explain 10.0.0.1 --source-addr OTP1"},
		{0, []string{otp}, "explain 10.0.0.1 --source-addr OTP1 --listener sms --expect otp"},
		{1, []string{otp, `listener sms, port 2775: the class is "otp", and "bulk" is expected`}, "explain 10.0.0.1 --source-addr OTP1 --expect bulk"},
		{64, []string{`--expect: there is no class "otpp"; did you mean "otp"?`}, "explain 10.0.0.1 --source-addr OTP1 --expect otpp"},
		{0, []string{api}, "explain 10.0.0.1 --path /v1/x --method GET"},
		{0, []string{"class bulk", "not rule 2", "method is not given"}, "explain 10.0.0.1 --path /v1/x"},
		{0, []string{"listener sms", "listener web", "it looks at messages, and no message is given"}, "explain 10.0.0.1 --expect bulk"},
		{0, []string{"listener sms, port 2775: class bulk"}, "explain 10.0.0.1 --listener sms --port 2775"},
		{64, []string{`listener "sms" does not listen on port 8080; it listens on 127.0.0.1:2775`}, "explain 10.0.0.1 --listener sms --port 8080"},
		{64, []string{"no message there has path"}, "explain 10.0.0.1 --path /v1/x --listener sms"},
		{64, []string{"no message there has system_id"}, "explain 10.0.0.1 --path /v1/x --system-id acme"},
		{64, []string{`destination: "there" is not an address`}, "explain 10.0.0.1 --destination there"},
	} {
		want(t, tt.code, tt.want, append(strings.Fields(tt.args), "--policy", path)...)
	}
	want(t, 66, []string{"no such file"}, "explain", "10.0.0.1", "--policy", path+"x")
	broken := filepath.Join(t.TempDir(), "broken.toml")
	os.WriteFile(broken, []byte("colour = 1\n"), 0o600)
	want(t, 65, []string{"colour"}, "explain", "10.0.0.1", "--policy", broken)

	var all []policy.Explanation
	if err := json.Unmarshal([]byte(want(t, 0, nil, "explain", "10.0.0.1", "--host", "h", "--path", "/v1/x", "--method", "POST", "--json", "--policy", path)), &all); err != nil ||
		len(all) != 1 || all[0].Class != "api" || all[0].File != path || all[0].Line != 21 || all[0].Message.Host != "h" {
		t.Errorf("%v, %+v", err, all)
	}
}

// `check --explain` prints where the rules lead, or what a client gets.
func TestCheckExplains(t *testing.T) {
	path := rulesFile(t)
	want(t, 0, []string{
		"listener sms\n  class otp: rule 1 (" + path + ":18): source_addr OTP*\n  class bulk: no rule matches\n",
		"listener web\n  class api: rule 2 (" + path + ":21): path /v1/*; method GET, POST\n  class bulk: no rule matches\n",
	}, "check", "--explain", path)
	want(t, 0, []string{"class otp: rule 1"}, "check", path, "10.0.0.1", "--explain", "--source-addr", "OTP1")
	want(t, 0, []string{"class otp: rule 1"}, "check", "10.0.0.1", path, "--explain", "--source-addr", "OTP1")
	want(t, 64, []string{"--source-addr describes a client"}, "check", path, "--source-addr", "OTP1")
	want(t, 64, []string{`"nowhere" is not an address`}, "check", path, "nowhere", "--explain")
	var routes []policy.Route
	if err := json.Unmarshal([]byte(want(t, 0, nil, "check", "--explain", "--json", path)), &routes); err != nil || len(routes) != 4 ||
		routes[0].Class != "otp" || routes[1].Rule != 0 || routes[2].Class != "api" || routes[3].Class != "bulk" {
		t.Errorf("%v, %+v", err, routes)
	}
}

// `simulate` obeys rules about messages, and says what of a policy it omits.
func TestSimulateObeysMessageRules(t *testing.T) {
	path := rulesFile(t)
	var report simulate.Report
	text := want(t, 0, []string{"class.otp.in_flight is not simulated"}, "simulate", "-c", path, "--json",
		"--load", "listener=sms,rate=1 messages/s,count=3,source_addr=OTP1", "--load", "listener=web,rate=1 messages/s,count=2,path=/v1/x,method=GET",
		"--load", "listener=web,rate=1 messages/s,count=4,path=/v2,method=GET")
	if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &report); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]uint64{"otp": 3, "api": 2, "bulk": 4} {
		if c, _ := report.Class(name); c.Offered.Items != n {
			t.Errorf("class %s gets %d messages, want %d", name, c.Offered.Items, n)
		}
	}
	want(t, 64, []string{`path: listener "sms" has protocol "smpp", whose messages have none`}, "simulate", "-c", path, "--load", "listener=sms,rate=1 messages/s,path=/x")
	want(t, 0, []string{"rules look at messages, and the workload does not say what is in some of them"}, "simulate", "-c", path, "--load", "rate=1 messages/s,count=1")
	trace := filepath.Join(t.TempDir(), "trace.csv")
	os.WriteFile(trace, []byte("time,client,bytes,listener,source_addr,path\n0,10.0.0.1,100,sms,OTP9,\n1,10.0.0.1,100,sms,,/x\n"), 0o600)
	want(t, 65, []string{"trace.csv:3:", "path", `listener "sms" has protocol "smpp"`}, "simulate", "-c", path, "--trace", trace)
}

// shaper why prints a line for what waits, and one for each class that holds it up.
func TestWhy(t *testing.T) {
	p := begin(t, base)
	want(t, 0, []string{"class slow: nothing waits, and an item that comes now leaves at once\n"}, "why", "slow", "-c", p.path)
	want(t, 64, []string{`shaper: there is no class "slwo"; did you mean "slow"?`}, "why", "slwo", "-c", p.path)
	want(t, 64, []string{"shaper: an argument is empty; usage: shaper why CLASS"}, "why", "", "-c", p.path)
	want(t, 64, nil, "why", "-c", p.path)
	var w daemon.Why
	if err := json.Unmarshal([]byte(want(t, 0, nil, "why", "slow", "--json", "-c", p.path)), &w); err != nil || w.Class != "slow" || w.At.IsZero() {
		t.Errorf("%+v, %v", w, err)
	}
}

// The port of a transparent listener is not one that clients connect to. Without the port of their server,
// explain says which rules need it.
func TestExplainTransparentWithoutPort(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "transparent.toml", "[class.a]\nrate = \"1mbit\"\n[class.web]\nrate = \"2mbit\"\n[listener.x]\nlisten = [\"0.0.0.0:15001\", \"[::1]:15002\"]\nmode = \"transparent\"\nallow = [\"203.0.113.0/24\", \"2001:db8::/32\"]\nclass = \"a\"\n"+
		"[[rule]]\nport = 443\nclass = \"web\"\n[[rule]]\nport = 15001\nclass = \"web\"\n")
	for args, says := range map[string]string{
		"--destination 203.0.113.7:443":        "class web: rule 1",
		"--destination 203.0.113.7 --port 443": "class web: rule 1",
		"--port 443":                           "class web: rule 1",
		"--destination 203.0.113.7":            "the port is not known",
		"":                                     "the port is not known",
	} {
		out := want(t, 0, []string{says}, append(strings.Fields("explain 10.0.0.1 --listener x --policy transparent.toml"), strings.Fields(args)...)...)
		if n := strings.Count(out, "listener x"); n != 1 {
			t.Errorf("explain %s explains %d ways:\n%s", args, n, out)
		}
	}
}
