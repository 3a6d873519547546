package tests

import (
	"io"
	"net"
	"strings"
	"testing"
)

// Nothing that proves who a client is stands in what shaper tells: the log at its most
// detailed, the metrics, and what the commands print; not of sessions that go well, of
// those that fail, or of bytes that are no messages.
func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	const password, token = "pa55w0rd", "t0ken"
	bind := string(pdu(9, "gateway\x00"+password+"\x00\x00\x34\x00\x00\x00"))
	authorized := "GET /v1/x?key=" + token + " HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + token + "\r\n"
	upstream := serve(t, func(c *net.TCPConn) { io.Copy(c, c) })
	mute := serve(t, silence)
	p := start(t, plain(), strings.NewReplacer("UPSTREAM", upstream, "MUTE", mute).Replace(`
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
`))
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
	waitFor(t, "all is seen", func() bool {
		return p.listener("smpp").Ended["unframed"] == 2 && p.listener("http").Ended["unframed"] == 3 && p.listener("lines").Ended["unframed"] == 1
	})
	metrics, _ := p.get("/metrics")
	told := metrics
	for _, command := range []string{"status", "sessions", "classes", "check"} {
		told += p.must(command) + p.must(command, "--json")
	}
	told += p.must("explain", "127.0.0.1")
	p.stop()
	told += p.log.String()
	for _, secret := range []string{password, token} {
		if i := strings.Index(told, secret); i >= 0 {
			t.Errorf("%q is told: %s", secret, told[max(0, i-200):i+50])
		}
	}
	if !strings.Contains(told, "session ended") || !strings.Contains(told, "no message") {
		t.Errorf("the log is not as detailed as it can be:\n%s", p.log)
	}
}
