package tests

import (
	"io"
	"net"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// No password or token of a client appears in the log at level debug, in the metrics, or in the
// output of commands, whether a session succeeds, fails, or sends bytes that are no messages.
func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	const password, token, changed = "pa55w0rd", "t0ken", "chang3d"
	bind := string(pdu(9, "gateway\x00"+password+"\x00\x00\x34\x00\x00\x00"))
	authorized := "GET /v1/x?key=" + token + " HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + token + "\r\n"
	upstream := serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
	mute := serve(t, silence)
	policy := strings.NewReplacer("UPSTREAM", upstream, "MUTE", mute).Replace(`
[class.c]
rate = "2 messages/min"
queue = "1 messages"
[class.s]
rate = "2 messages/min"
per = "connection"
[listener.smpp]
listen = "127.0.0.1:0"
protocol = "smpp"
upstream = "MUTE"
class = "c"
[listener.http]
listen = "127.0.0.1:0"
protocol = "http"
upstream = "MUTE"
health = { timeout = "1s", http = "/up?key=t0ken" }
class = "s"
[listener.lines]
listen = "127.0.0.1:0"
protocol = "lines"
upstream = "UPSTREAM"
class = "s"
[[rule]]
system_id = "gate*"
class = "s"
[[rule]]
path = "/v1/*"
class = "s"
[[rule]]
"header:Authorization" = "Bearer t0ken"
class = "c"
`)
	p := start(t, plain(), policy)
	p.stop()
	p.run("--log-level", "debug")
	for _, say := range []struct{ listener, text string }{
		{"smpp", bind}, {"smpp", bind + submit + submit + submit}, {"smpp", bind + "\x00\x00\x00\x03" + password}, {"smpp", password + password + password + password},
		{"http", authorized + "\r\n"}, {"http", authorized + "\r\n" + authorized + "\r\n"}, {"http", authorized + "bad line " + token + "\r\n\r\n"}, {"http", token + " \r\n\r\n"},
		{"http", authorized + "Content-Length: " + token + "\r\n\r\n"}, {"lines", strings.Repeat(token, 20_000)},
	} {
		c := dial(t, "", p.addr(say.listener))
		if _, err := io.WriteString(c, say.text); err != nil {
			t.Fatal(err)
		}
	}
	trial.Await(t, "the broken sessions have ended", func() bool {
		return p.listener("smpp").Ended["unframed"] == 2 && p.listener("http").Ended["unframed"] == 3 && p.listener("lines").Ended["unframed"] == 1
	})
	metrics, _ := p.get("/metrics")
	p.write(strings.NewReplacer("Bearer "+token, "Bearer "+changed, "?key="+token, "?key="+changed).Replace(policy))
	output := metrics + p.must("check", "--all", p.config) + p.must("diff", p.config) + p.must("reload") + p.must("history") + p.must("history", "--json")
	for _, command := range []string{"status", "sessions", "classes", "upstreams"} {
		output += p.must(command) + p.must(command, "--json")
	}
	output += p.must("explain", "127.0.0.1")
	p.stop()
	output += p.log.String()
	for _, secret := range []string{password, token, changed} {
		if i := strings.Index(output, secret); i >= 0 {
			t.Errorf("%q appears in: %s", secret, output[max(0, i-200):i+50])
		}
	}
	if !strings.Contains(output, "session ended") || !strings.Contains(output, "no message") {
		t.Errorf("the log does not have the details of level debug:\n%s", p.log)
	}
}
