package conn

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"shaper/policy"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/upstream"
)

// entryTo returns a policy of listener "l", an entry, with more lines of its section.
func entryTo(mode string, more ...string) string {
	return class("c", fast) + fmt.Sprintf("[listener.l]\nlisten = \"127.0.0.1:0\"\nmode = %q\nclass = \"c\"\n%s\n", mode, strings.Join(more, "\n"))
}

// dialects are how clients of each mode ask for a destination, and the beginning of the answers.
var dialects = map[string]struct {
	ask                                       func(host string, port uint16) string
	hello, granted, denied, unknown, unserved string
}{
	"connect": {
		func(host string, port uint16) string {
			return fmt.Sprintf("CONNECT %s HTTP/1.1\r\n\r\n", net.JoinHostPort(host, fmt.Sprint(port)))
		},
		"", "HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.1 403 ", "HTTP/1.1 502 ", "HTTP/1.1 502 ",
	},
	"socks5": {
		func(host string, port uint16) string {
			return "\x05\x01\x00\x05\x01\x00\x03" + string(rune(len(host))) + host + string([]byte{byte(port >> 8), byte(port)})
		},
		"\x05\x00", "\x05\x00\x00\x01", "\x05\x02\x00\x01", "\x05\x04\x00\x01", "\x05\x05\x00\x01",
	},
}

// A client of an entry reaches what the policy allows, and nothing else: the address that is
// dialled decides, not the name. It learns why it is refused.
func TestEntryDestinations(t *testing.T) {
	for mode, c := range dialects {
		t.Run(mode, virtual(func(t *testing.T) {
			server, conns := listen(t)
			at := netip.MustParseAddrPort(server)
			r := run(t, entryTo(mode, fmt.Sprintf(`allow = ["%s", "127.0.0.1:9", "test:1", "*:53"]`, server), `deny = "bad.example"`))
			lookups := 0
			r.meaning(func(context.Context) ([]netip.AddrPort, error) {
				lookups++
				return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("10.0.0.1:1")}, nil
			})
			ask := func(host string, port uint16, want string) tcpConn {
				t.Helper()
				client := r.dial("l")
				send(t, client, c.ask(host, port))
				expect(t, client, c.hello+want)
				return client
			}
			client := ask("127.0.0.1", at.Port(), c.granted)
			if mode == "socks5" {
				expect(t, client, "\x7f\x00\x00\x01")
				client.Read(make([]byte, 2)) // the port
			}
			theirs := next(t, conns)
			send(t, client, "question")
			expect(t, theirs, "question")
			send(t, theirs, "answer")
			expect(t, client, "answer")
			if all := r.Sessions(); len(all) != 1 || all[0].Upstream != server || all[0].Destination != server {
				t.Errorf("the sessions are %+v", all)
			}
			client.CloseWrite()
			theirs.CloseWrite()
			r.awaitEnd(stats.OK, 1)
			for i, host := range []string{"127.0.0.2", "10.0.0.1", "169.254.169.254", "::1", "64:ff9b::7f00:1"} {
				ask(host, at.Port(), c.denied)
				r.awaitEnd(stats.Denied, uint64(i+1))
			}
			ask("test", 1, c.denied) // by its name it is allowed, and it leads to this host
			r.awaitEnd(stats.Denied, 6)
			if lookups != 1 {
				t.Errorf("%d lookups", lookups)
			}
			ask("127.0.0.1", 9, c.unserved)
			r.awaitEnd(stats.DialFailed, 1)
			if n := r.failures(upstream.Chosen)[stats.NotServed]; n != 1 {
				t.Errorf("%d attempts have failed", n)
			}
			select {
			case c := <-conns:
				t.Errorf("the upstream gets a connection from %v", c.RemoteAddr())
			default:
			}
		}))
	}
}

// The name that a client of an entry says is a whole name: the search list of resolv.conf does not apply, by
// which a short name would lead past what is denied. The names of a policy are looked up as they are.
func TestClientsSayWholeNames(t *testing.T) {
	for mode, c := range dialects {
		t.Run(mode, virtual(func(t *testing.T) {
			server, _ := listen(t)
			port := netip.MustParseAddrPort(server).Port()
			r := bare(t)
			asked := make(chan string, 9)
			r.names.Use(func(_ context.Context, name string, _ []upstream.Address) (upstream.Answer, error) {
				asked <- name
				return upstream.Answer{Addresses: []upstream.Address{{AddrPort: netip.MustParseAddrPort(server)}}, TTL: time.Hour}, nil
			})
			r.reload(entryTo(mode, `allow = ["*", "127.0.0.0/8"]`) + listener("f", "tcp", "short:1", "c"))
			for _, name := range []string{"short", "Short."} {
				client := r.dial("l")
				send(t, client, c.ask(name, port))
				expect(t, client, c.hello+c.granted)
			}
			r.dial("f")
			for _, want := range []string{fmt.Sprintf("short.:%d", port), "short:1"} {
				if got := <-asked; got != want {
					t.Errorf("looked up: %q, want %q", got, want)
				}
			}
			if one := r.Sessions()[0]; one.Upstream != fmt.Sprintf("short:%d", port) {
				t.Errorf("the session is %+v", one)
			}
		}))
	}
}

// A name that the policy allows at one port is kept as an upstream is: sessions go on while the DNS is away.
// Other names are forgotten when their TTL ends.
func TestAllowedNamesAreKept(t *testing.T) {
	for allow, kept := range map[string]bool{"kept:%d": true, "kept": false, "*:%d": false} {
		t.Run(allow, virtual(func(t *testing.T) {
			server, _ := listen(t)
			port := netip.MustParseAddrPort(server).Port()
			c := dialects["connect"]
			r := bare(t)
			var away atomic.Bool
			r.names.Use(func(context.Context, string, []upstream.Address) (upstream.Answer, error) {
				if away.Load() {
					return upstream.Answer{}, errors.New("the DNS is away")
				}
				return upstream.Answer{Addresses: []upstream.Address{{AddrPort: netip.MustParseAddrPort(server)}}, TTL: time.Minute}, nil
			})
			name := strings.ReplaceAll(allow, "%d", fmt.Sprint(port))
			r.reload(entryTo("connect", fmt.Sprintf(`allow = ["%s", "127.0.0.0/8"]`, name)))
			ask := func(want string) {
				t.Helper()
				client := r.dial("l")
				send(t, client, c.ask("kept", port))
				expect(t, client, want)
			}
			ask(c.granted)
			away.Store(true)
			time.Sleep(5 * time.Minute)
			if kept {
				ask(c.granted)
			} else {
				ask(c.unknown)
			}
		}))
	}
}

// A client that has connected before a reload, and says after it where it wants to go, gets there only
// if the new policy allows that.
func TestEntryAfterReload(t *testing.T) {
	for mode, c := range dialects {
		for what, now := range map[string]string{
			"no listener":       class("c", fast) + listener("other", "tcp", policy.Echo, "c"),
			"another listener":  class("c", fast) + listener("l", "tcp", policy.Echo, "c"),
			"other destination": entryTo(mode, `allow = "127.0.0.2"`),
		} {
			t.Run(mode+" "+what, virtual(func(t *testing.T) {
				server, conns := listen(t)
				r := run(t, entryTo(mode, `allow = "127.0.0.1"`))
				sv := r.service("l")
				client := r.dial("l")
				trial.Await(t, "the session has begun", func() bool { return len(r.Sessions()) == 1 })
				r.reload(now)
				send(t, client, c.ask("127.0.0.1", netip.MustParseAddrPort(server).Port()))
				expect(t, client, c.hello+c.denied)
				trial.Await(t, "it is counted", func() bool { return sv.stats.Ended[stats.Denied].Load() == 1 })
				select {
				case <-conns:
					t.Error("the upstream gets a connection")
				default:
				}
			}))
		}
	}
}

// A session that has waited for its class after a reload dials its destination only if the new policy
// allows that.
func TestDeniedWhileItWaits(t *testing.T) {
	for mode, c := range dialects {
		t.Run(mode, virtual(func(t *testing.T) {
			server, conns := listen(t)
			lines := func(more ...string) string {
				return strings.Replace(entryTo(mode, append(more, `allow = "127.0.0.1"`)...), fast, "6 connections/min", 1)
			}
			r := run(t, lines())
			ask := func() tcpConn {
				client := r.dial("l")
				send(t, client, c.ask("127.0.0.1", netip.MustParseAddrPort(server).Port()))
				return client
			}
			expect(t, ask(), c.hello+c.granted)
			next(t, conns)
			waits := ask()
			trial.Await(t, "it waits", func() bool { return r.shaper.Class("c").Stats.Overlimits.Load() == 1 })
			r.reload(lines(`deny = "127.0.0.1"`))
			expect(t, waits, c.hello+c.denied)
			trial.Await(t, "it is counted", func() bool { return r.service("l").stats.Ended[stats.Denied].Load() == 1 })
			select {
			case <-conns:
				t.Error("the upstream gets a connection")
			default:
			}
		}))
	}
}

// A client that is silent, or says something else, is refused.
func TestNoEntry(t *testing.T) {
	for mode := range dialects {
		for said, want := range map[string]stats.Result{"": stats.Denied, "\x04\x01\x00\x50": stats.Denied, "C": stats.Denied, "\x05\x01": stats.Denied, "end": stats.Aborted} {
			t.Run(fmt.Sprintf("%s %q", mode, said), virtual(func(t *testing.T) {
				r := run(t, entryTo(mode, `allow = "*"`))
				client := r.dial("l")
				if said == "end" {
					client.CloseWrite()
				} else {
					send(t, client, said)
				}
				r.awaitEnd(want, 1)
			}))
		}
	}
}

// hashOf returns a hash of a password that costs little.
func hashOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

// After a reload of a file with another password, only that one is right: for a client that has
// connected before, too, and though the old one was right a moment ago. Open sessions go on.
func TestPasswordChanges(t *testing.T) {
	for mode, c := range map[string]struct {
		login   func(password, server string) string
		granted string
		rest    int64 // bytes of that answer
		wrong   string
	}{
		"connect": {func(password, server string) string {
			return fmt.Sprintf("CONNECT %s HTTP/1.1\r\nProxy-Authorization: Basic %s\r\n\r\n", server, base64.StdEncoding.EncodeToString([]byte("ann:"+password)))
		}, "HTTP/1.1 200 Connection established\r\n\r\n", 0, "HTTP/1.1 407 "},
		"socks5": {func(password, server string) string {
			port := netip.MustParseAddrPort(server).Port()
			return "\x05\x01\x02\x01\x03ann" + string(rune(len(password))) + password + "\x05\x01\x00\x01\x7f\x00\x00\x01" + string([]byte{byte(port >> 8), byte(port)})
		}, "\x05\x02\x01\x00\x05\x00\x00\x01", 6, "\x05\x02\x01\x01"},
	} {
		t.Run(mode, func(t *testing.T) {
			server, conns := listen(t)
			users := filepath.Join(trial.Files(t, map[string]string{"users": "ann:" + hashOf(t, "old")}), "users")
			text := entryTo(mode, `allow = "127.0.0.1"`, fmt.Sprintf("users = %q", users))
			r := run(t, text)
			open, early, late := r.dial("l"), r.dial("l"), r.dial("l")
			send(t, open, c.login("old", server))
			expect(t, open, c.granted)
			upstream := next(t, conns)
			trial.Await(t, "all sessions have begun", func() bool { return len(r.Sessions()) == 3 })
			if err := os.WriteFile(users, []byte("ann:"+hashOf(t, "new")), 0o600); err != nil {
				t.Fatal(err)
			}
			r.reload(text)
			for _, client := range []net.Conn{early, r.dial("l")} {
				send(t, client, c.login("old", server))
				expect(t, client, c.wrong)
			}
			send(t, late, c.login("new", server))
			expect(t, late, c.granted)
			send(t, upstream, "still here")
			io.CopyN(io.Discard, open, c.rest)
			expect(t, open, "still here")
		})
	}
}

// basicTo asks for a server as a user who logs in.
func basicTo(server, user, password string) string {
	return fmt.Sprintf("CONNECT %s HTTP/1.1\r\nProxy-Authorization: Basic %s\r\n\r\n", server, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

// Who has logged in before still may after others have guessed, also if there was a reload.
func TestKnownAfterReload(t *testing.T) {
	virtually(t, func(t *testing.T) {
		server, conns := listen(t)
		ann, bob := hashOf(t, "ann's"), hashOf(t, "bob's")
		users := filepath.Join(trial.Files(t, map[string]string{"users": "ann:" + ann + "\nbob:" + bob}), "users")
		text := entryTo("connect", `allow = "127.0.0.1"`, fmt.Sprintf("users = %q", users))
		r := run(t, text)
		login := func(user, password, want string) {
			t.Helper()
			client := r.dial("l")
			send(t, client, basicTo(server, user, password))
			expect(t, client, want)
		}
		login("ann", "ann's", "HTTP/1.1 200 ")
		next(t, conns)
		login("bob", "bob's", "HTTP/1.1 200 ")
		next(t, conns)
		if err := os.WriteFile(users, []byte("ann:"+ann+"\nbob:"+hashOf(t, "new")), 0o600); err != nil {
			t.Fatal(err)
		}
		r.reload(text)
		for range 5 {
			login("eve", "guess", "HTTP/1.1 407 ")
		}
		login("ann", "ann's", "HTTP/1.1 200 ")
		next(t, conns)
		login("bob", "bob's", "HTTP/1.1 407 ") // his password is another one now
	})
}

// Clients that log in at the same time wait for each other.
func TestLoginsAtOnce(t *testing.T) {
	server, _ := listen(t)
	cost := 9 // a comparison takes longer than the clients need to send their logins
	if trial.Raced {
		cost = 7 // as long as that, since the race detector looks at each step
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), cost)
	if err != nil {
		t.Fatal(err)
	}
	lines := ""
	for i := range 6 {
		lines += fmt.Sprintf("user%d:%s\n", i, hash)
	}
	users := filepath.Join(trial.Files(t, map[string]string{"users": lines}), "users")
	r := run(t, entryTo("connect", `allow = "127.0.0.1"`, fmt.Sprintf("users = %q", users), `connect_timeout = "4m"`))
	var clients []tcpConn
	for range 6 {
		clients = append(clients, r.dial("l"))
	}
	for i, client := range clients {
		send(t, client, basicTo(server, fmt.Sprintf("user%d", i), "secret"))
	}
	for _, client := range clients {
		expect(t, client, "HTTP/1.1 200 ")
	}
}

// A client that leaves while its password waits to be compared is noticed at once.
func TestLeavesDuringLogin(t *testing.T) {
	virtually(t, func(t *testing.T) {
		users := filepath.Join(trial.Files(t, map[string]string{"users": "ann:" + hashOf(t, "secret")}), "users")
		r := run(t, entryTo("connect", `allow = "127.0.0.1"`, fmt.Sprintf("users = %q", users)))
		client := r.dial("l")
		trial.Await(t, "the session has begun", func() bool { return len(r.sessions.all()) == 1 })
		synctest.Wait()                                            // until it listens
		r.one().do(func(s *tcpSession) { s.greeting.parse = nil }) // as it is meanwhile
		reset(client)
		r.awaitEnd(stats.Aborted, 1)
	})
}

// Only who logs in gets in. Neither names nor passwords are in the log.
func TestEntryUsers(t *testing.T) {
	users := filepath.Join(trial.Files(t, map[string]string{"users": "ann:" + hashOf(t, "se:cret") + "\n"}), "users")
	server, conns := listen(t)
	port := netip.MustParseAddrPort(server).Port()
	basic := func(login string) string {
		return fmt.Sprintf("CONNECT %s HTTP/1.1\r\nProxy-Authorization: Basic %s\r\n\r\n", server, base64.StdEncoding.EncodeToString([]byte(login)))
	}
	socks := func(user, password string) string {
		return "\x05\x01\x02\x01" + string(rune(len(user))) + user + string(rune(len(password))) + password +
			"\x05\x01\x00\x01\x7f\x00\x00\x01" + string([]byte{byte(port >> 8), byte(port)})
	}
	for mode, c := range map[string]struct{ right, granted, wrong, none, answer string }{
		"connect": {basic("ann:se:cret"), "HTTP/1.1 200 ", basic("ann:secret"), dialects["connect"].ask("127.0.0.1", port), "HTTP/1.1 407 "},
		"socks5":  {socks("ann", "se:cret"), "\x05\x02\x01\x00\x05\x00\x00\x01", socks("ann", "secret"), socks("eve", "se:cret"), "\x05\x02\x01\x01"},
	} {
		r := run(t, entryTo(mode, `allow = "127.0.0.1"`, fmt.Sprintf("users = %q", users)))
		for i, said := range []string{c.wrong, c.none} {
			client := r.dial("l")
			send(t, client, said)
			expect(t, client, c.answer)
			client.Close()
			r.awaitEnd(stats.Denied, uint64(i+1))
		}
		for range 2 {
			client := r.dial("l")
			send(t, client, c.right)
			expect(t, client, c.granted)
			next(t, conns)
		}
		for _, one := range r.Sessions() {
			if one.User != "ann" {
				t.Errorf("%s: the user of a session is %q", mode, one.User)
			}
		}
		if log := r.log.String(); strings.Contains(log, "ann") || strings.Contains(log, "cret") {
			t.Errorf("the log is %s", log)
		}
		r.Shutdown(expired)
	}
}

// A request with a URL goes to the server of the URL, as messages that the class lets leave. What
// follows the head follows it there.
func TestForwardedRequest(t *testing.T) {
	for _, inside := range []string{"tcp", "http"} {
		t.Run(inside, virtual(func(t *testing.T) {
			server, conns := listen(t)
			r := run(t, entryTo("connect", `allow = "127.0.0.1"`, fmt.Sprintf("inside = %q", inside)))
			client := r.dial("l")
			send(t, client, "POST http://"+server+"/a HTTP/1.1\r\nContent-Length: 4\r\nProxy-Authorization: Basic x\r\n\r\nbo")
			theirs := next(t, conns)
			expect(t, theirs, "POST /a HTTP/1.1\r\nHost: "+server+"\r\nContent-Length: 4\r\nVia: 1.1 shaper\r\nConnection: close\r\n\r\nbo")
			send(t, client, "dy")
			expect(t, theirs, "dy")
			send(t, theirs, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
			theirs.CloseWrite()
			expect(t, client, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
			client.CloseWrite()
			r.awaitEnd(stats.OK, 1)
			want := map[string]uint64{"tcp": 0, "http": 1}[inside]
			if n := r.sent("c", stats.Upstream).Messages.Load(); n != want {
				t.Errorf("%d messages, want %d", n, want)
			}
			refused := r.dial("l")
			send(t, refused, "GET http://10.0.0.1/ HTTP/1.1\r\n\r\n")
			expect(t, refused, "HTTP/1.1 403 ")
			r.awaitEnd(stats.Denied, 1)
		}))
	}
}

// If the client of a request over TLS goes while the request waits for its class, the session ends, and
// nothing leaves.
func TestClientOfAForwardedRequestLeaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(secured){
		"by a reset":        func(c secured) { reset(c.tcp) },
		"by what is no TLS": func(c secured) { io.WriteString(c.tcp, badRecord) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			server, conns := listen(t)
			r := run(t, strings.Replace(entryTo("connect", `allow = "127.0.0.1"`, a.issue("server").terminating()), fast, "1 connections/hour", 1))
			request := "GET http://" + server + "/ HTTP/1.1\r\n\r\n"
			send(t, r.dialTLS("l", a.trusting()), request)
			next(t, conns)
			client := r.dialTLS("l", a.trusting())
			send(t, client, request)
			trial.Await(t, "it waits", func() bool { return r.shaper.Class("c").Stats.Overlimits.Load() == 1 })
			leave(client)
			r.awaitEndOf(stats.Aborted, 1)
		})
	}
}

// Rules and buckets see who has logged in, the name that was asked for, and the address that is
// dialled.
func TestEntryKeys(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("x"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(trial.Files(t, map[string]string{"users": "ann:" + string(hash) + "\nbob:" + string(hash) + "\n"}), "users")
	server, conns := listen(t)
	rules := class("ann", fast) + class("named", fast) + class("there", fast) + `
[[rule]]
user = "an*"
class = "ann"
[[rule]]
server_name = "TE*"
class = "named"
[[rule]]
destination = "127.0.0.1"
class = "there"
`
	r := run(t, entryTo("connect", `allow = "127.0.0.1"`, fmt.Sprintf("users = %q", users))+rules)
	r.meaning(func(context.Context) ([]netip.AddrPort, error) {
		return []netip.AddrPort{netip.MustParseAddrPort(server)}, nil
	})
	for _, c := range []struct{ user, host, class string }{
		{"ann", server, "ann"}, {"bob", server, "there"}, {"bob", "test:1", "named"}, {"ann", "test:1", "ann"},
	} {
		client := r.dial("l")
		send(t, client, fmt.Sprintf("CONNECT %s HTTP/1.1\r\nProxy-Authorization: Basic %s\r\n\r\n", c.host, base64.StdEncoding.EncodeToString([]byte(c.user+":x"))))
		expect(t, client, "HTTP/1.1 200 ")
		theirs := next(t, conns)
		if all := r.Sessions(); len(all) != 1 || all[0].Class != c.class || all[0].User != c.user || all[0].Upstream != c.host {
			t.Errorf("%v: the sessions are %+v", c, all)
		}
		client.Close()
		theirs.Close()
		trial.Await(t, "the session ends", func() bool { return len(r.Sessions()) == 0 })
	}
}

// What is inside an entry may be messages: each counts in its class, whatever the destination.
func TestInsideAnEntry(t *testing.T) {
	virtually(t, func(t *testing.T) {
		server, conns := listen(t)
		r := run(t, strings.Replace(entryTo("connect", `allow = "127.0.0.1"`, `inside = "lines"`), fast, "1000 messages/s", 1))
		client := r.dial("l")
		send(t, client, dialects["connect"].ask("127.0.0.1", netip.MustParseAddrPort(server).Port()))
		expect(t, client, dialects["connect"].granted)
		send(t, client, "one\ntwo\n")
		expect(t, next(t, conns), "one\ntwo\n")
		trial.Await(t, "both messages count", func() bool { return r.sent("c", stats.Upstream).Messages.Load() == 2 })
	})
}
