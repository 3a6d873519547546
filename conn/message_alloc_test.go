package conn

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// A message and its answer cost no allocation, whether it leaves at once or waits.
func TestMessagesDoNotAllocate(t *testing.T) {
	skipUnderRace(t)
	addr, conns := listen(t)
	request := "POST /v1/messages HTTP/1.1\r\nHost: api\r\nContent-Length: 5\r\n\r\nhello"
	for _, c := range []struct{ protocol, more, ask, answer string }{
		{"smpp", "", submitFrom("acme", 7), pdu(submitResp, 0, 7, "id\x00")},
		{"http", "", request, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"iso8583", "", "0008" + "0200abcd", "0004" + "0210"},
		{"lines", "", "line\n", "line\n"},
		{"smpp", `per = ["source", "source_addr"]`, submitFrom("acme", 7), pdu(submitResp, 0, 7, "id\x00")},
		{"http", `per = ["host", "path:/v1/*"]`, request, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
	} {
		for _, rate := range []string{"10000000 messages/s", "20000 messages/s"} {
			t.Run(c.protocol+" "+rate+" "+c.more, func(t *testing.T) {
				policy := exchanged(c.protocol, addr, rate, c.more)
				if c.protocol == "iso8583" {
					policy = strings.Replace(policy, "[listener.l]\n", "[listener.l]\nlength_prefix = \"ascii4\"\n", 1)
				}
				client, upstream := run(t, policy).open(conns)
				client.SetDeadline(time.Now().Add(patience))
				upstream.SetDeadline(time.Now().Add(patience))
				asks, answers := []byte(strings.Repeat(c.ask, 4)), []byte(strings.Repeat(c.answer, 4))
				got := make([]byte, max(len(asks), len(answers)))
				if n := testing.AllocsPerRun(500, func() {
					passes(t, client, upstream, asks, got)
					passes(t, upstream, client, answers, got)
				}); n != 0 {
					t.Errorf("four cost %v allocations", n)
				}
			})
		}
	}
}

// passes checks that bytes pass unchanged.
func passes(t *testing.T, from, to tcpConn, p, got []byte) {
	if _, err := from.Write(p); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, got[:len(p)]); err != nil || !bytes.Equal(got[:len(p)], p) {
		t.Fatalf("%q arrives, %v", got[:len(p)], err)
	}
}
