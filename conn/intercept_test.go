package conn

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"shaper/sock"
	"shaper/stats"
)

// A client of a transparent listener reaches the address that it has connected to, if the policy
// allows that. Rules see that address and its port, and shaper's own connections are not
// intercepted.
func TestIntercepted(t *testing.T) {
	virtually(t, func(t *testing.T) {
		m := memoryOf(t)
		server, err := m.Listen("tcp", "203.0.113.7:443")
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, strings.Replace(entryTo("transparent", `allow = ["203.0.113.0/24", "127.0.0.0/8"]`, `deny = "203.0.113.9"`), ":0", ":15001", 1)+
			class("web", fast)+"[[rule]]\nport = 443\ndestination = \"203.0.113.7\"\nclass = \"web\"\n")
		dial := func(to string) *sock.MemoryConn {
			t.Helper()
			c, err := m.DialConn(t.Context(), "192.0.2.7", to)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		client := dial("203.0.113.7:443")
		send(t, client, "question")
		theirs, err := server.(*sock.MemoryListener).Next()
		if err != nil {
			t.Fatal(err)
		}
		expect(t, theirs, "question")
		send(t, theirs, "answer")
		expect(t, client, "answer")
		if all := r.Sessions(); len(all) != 1 || all[0].Destination != "203.0.113.7:443" || all[0].Class != "web" || !strings.HasPrefix(all[0].Client, "192.0.2.7:") {
			t.Errorf("the sessions are %+v", all)
		}
		client.CloseWrite()
		theirs.CloseWrite()
		r.awaitEnd(stats.OK, 1)
		for i, to := range []string{"203.0.113.9:443", "198.51.100.1:443", "127.0.0.1:15001"} {
			m.DialConn(t.Context(), "192.0.2.7", to) // the reset may come before it returns
			r.awaitEnd(stats.Denied, uint64(i+1))
		}
		if !strings.Contains(r.log.String(), "it has connected to the listener itself") {
			t.Errorf("the log is\n%s", r.log)
		}
		m.DialConn(t.Context(), "192.0.2.7", "203.0.113.8:443")
		r.awaitEnd(stats.DialFailed, 1)
	})
}

// With keep_source, the server sees the address of the client.
func TestKeepSource(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprint(keeps), virtual(func(t *testing.T) {
			m := memoryOf(t)
			server, err := m.Listen("tcp", "203.0.113.7:443")
			if err != nil {
				t.Fatal(err)
			}
			run(t, strings.Replace(entryTo("transparent", `allow = "203.0.113.7"`, fmt.Sprintf("keep_source = %v", keeps)), ":0", ":15001", 1))
			if _, err := m.DialConn(t.Context(), "192.0.2.7", "203.0.113.7:443"); err != nil {
				t.Fatal(err)
			}
			theirs, err := server.(*sock.MemoryListener).Next()
			if err != nil {
				t.Fatal(err)
			}
			if from := netip.MustParseAddrPort(theirs.RemoteAddr().String()); (from.Addr() == netip.MustParseAddr("192.0.2.7")) != keeps {
				t.Errorf("the connection comes from %v", from)
			}
		}))
	}
}
