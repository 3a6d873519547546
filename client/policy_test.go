package client

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// policyFile is a policy with two classes under one account.
const policyFile = `[class.account]
rate = "20 messages/s"
[class.codes]
parent = "account"
rate = "20 messages/s"
[class.bulk]
parent = "account"
rate = "20 messages/s"
[class.bytes]
rate = "1mbit"
[class.logins]
rate = "5 connections/s"
[listener.x]
listen = "127.0.0.1:8080"
protocol = "http"
upstream = "127.0.0.1:9"
class = "bulk"
`

// load writes a policy and loads it. It ends with the test.
func load(t *testing.T, text string) (p *Policy, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "shaper.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := LoadPolicy(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, path
}

// Requests keep the limits of their class and of those above it, and a reload changes the rate.
func TestPolicyOfAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, path := load(t, policyFile)
		defer p.Close()
		send := func(class string, n int) time.Duration {
			transport, err := p.Transport(class)
			if err != nil {
				t.Fatal(err)
			}
			transport.Base = record(ok)
			client, began := &http.Client{Transport: transport}, time.Now()
			var all sync.WaitGroup
			for range n {
				all.Go(func() { get(t, client) })
			}
			all.Wait()
			return time.Since(began)
		}
		var all sync.WaitGroup
		began := time.Now()
		for _, class := range []string{"codes", "bulk"} {
			all.Go(func() { send(class, 11) })
		}
		all.Wait()
		if took := time.Since(began); took != 21*50*time.Millisecond {
			t.Errorf("22 requests of one account take %v, want 1.05s", took)
		}
		time.Sleep(time.Second)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(policyFile, "20 messages", "40 messages")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Reload(); err != nil {
			t.Fatal(err)
		}
		if took := send("codes", 5); took != 100*time.Millisecond {
			t.Errorf("after the reload 5 requests take %v, want 100ms", took)
		}
	})
}

// A file of a program alone has classes, and nothing else.
func TestPolicyOfClassesOnly(t *testing.T) {
	classes, _, _ := strings.Cut(policyFile, "[listener.x]")
	p, path := load(t, classes)
	if _, err := p.Transport("codes"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Reload(); err == nil || !strings.Contains(err.Error(), "at least one section [class.NAME]") {
		t.Errorf("a file that was emptied gives %v", err)
	}
	if _, err := p.Class("codes"); err != nil {
		t.Error(err)
	}
}

// A schedule of the file holds here, too.
func TestPolicyFollowsSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight in UTC
		p, _ := load(t, policyFile+"[[class.codes.at]]\nfrom = \"00:01\"\nto = \"01:00\"\nzone = \"UTC\"\nrate = \"2 messages/s\"\n")
		defer p.Close()
		class, err := p.Class("codes")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"20 messages/s", "2 messages/s", "20 messages/s"} {
			if got := class.Rate().String(); got != want {
				t.Errorf("at %v the rate is %v, want %v", time.Now().UTC(), got, want)
			}
			time.Sleep(time.Minute)
			if want == "2 messages/s" {
				time.Sleep(time.Hour)
			}
			synctest.Wait()
		}
	})
}

// A schedule holds within a minute after a suspend, which timers do not notice, and after somebody has
// set the clock.
func TestPolicyFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight in UTC
		p, _ := load(t, policyFile+"[[class.codes.at]]\nfrom = \"05:00\"\nto = \"06:00\"\nzone = \"UTC\"\nrate = \"2 messages/s\"\n")
		defer p.Close()
		class, err := p.Class("codes")
		if err != nil {
			t.Fatal(err)
		}
		for _, is := range []struct {
			ahead time.Duration // of the timers
			rate  string
		}{{5 * time.Hour, "2 messages/s"}, {0, "20 messages/s"}, {24*time.Hour + 5*time.Hour, "2 messages/s"}} {
			p.mu.Lock()
			p.clock = func() time.Time { return time.Now().Add(is.ahead) }
			p.mu.Unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := class.Rate().String(); got != is.rate {
				t.Errorf("a minute after the clock was set %v ahead the rate is %v, want %v", is.ahead, got, is.rate)
			}
		}
	})
}

// In quiet hours for all recipients no request leaves.
func TestPolicyKeepsQuietHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight in UTC
		p, _ := load(t, "[class.codes]\nrate = \"20 messages/s\"\n[[class.codes.quiet]]\nfrom = \"00:01\"\nto = \"03:00\"\n")
		defer p.Close()
		transport, err := p.Transport("codes")
		if err != nil {
			t.Fatal(err)
		}
		base := record(ok)
		transport.Base = base
		client := &http.Client{Transport: transport}
		get(t, client)
		time.Sleep(time.Hour)
		get(t, client)
		base.want(t, 0, 3*time.Hour)
	})
}

// Mistakes in the file, unknown names and classes that would not limit are errors. A file that has
// become bad changes nothing.
func TestPolicyErrors(t *testing.T) {
	p, path := load(t, policyFile)
	if _, err := LoadPolicy(path + ".none"); err == nil {
		t.Error("a file that is missing is loaded")
	}
	for got, want := range map[string]string{
		text(second(p.Class("bulks"))):                  `: there is no class "bulks"; did you mean "bulk"?`,
		text(second(p.Transport("bytes"))):              "it would never limit",
		text(second(p.Transport("nobody"))):             "there is no class",
		text(second(p.Limits("bulk", ""))):              "it would never limit",
		text(second(p.Limits("bytes", "nobody-knows"))): "there is no class",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the error is %q, want %q", got, want)
		}
	}
	if transport, _ := p.Transport("bytes"); transport != nil {
		t.Error("a Transport comes with an error")
	}
	if l, _ := p.Limits("bulk", ""); l != (Limits{}) {
		t.Error("limits come with an error")
	}
	l, err := p.Limits("logins", "bytes")
	if err != nil || l.Open == nil || l.Write != nil || l.Read == nil {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err = p.Limits("bytes", ""); err != nil || l.Write == nil || l.Open != nil || l.Read != nil {
		t.Errorf("%+v, %v", l, err)
	}
	if err := os.WriteFile(path, []byte("[class.x]\nrate = 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Reload(); err == nil || !strings.Contains(err.Error(), "shaper.toml:2:8") {
		t.Errorf("the bad file gives %v", err)
	}
	if _, err := p.Class("bulk"); err != nil {
		t.Error(err)
	}
	dialer := &Dialer{Limits: l}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := dialer.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// rewrite changes the file of a policy, and reads it again.
func rewrite(t *testing.T, p *Policy, path, text string) error {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p.Reload()
}

// piped is the Base of a Dialer: each connection is one end of a pipe.
type piped struct{}

func (piped) DialContext(context.Context, string, string) (net.Conn, error) {
	c, _ := net.Pipe()
	return c, nil
}

// Whoever holds a class that the file has lost goes on as before: who waits for one of its
// max_connections, and who comes later.
func TestPolicyLosesAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, path := load(t, policyFile+"[class.in]\nrate = \"5 connections/s\"\nmax_connections = 1\n")
		defer p.Close()
		limits, err := p.Limits("in", "")
		if err != nil {
			t.Fatal(err)
		}
		dialer := &Dialer{Base: piped{}, Limits: limits}
		dial := func() (net.Conn, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return dialer.DialContext(ctx, "tcp", "192.0.2.1:80")
		}
		first, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		var waits sync.WaitGroup
		waits.Go(func() {
			c, err := dial()
			if err != nil {
				t.Errorf("who waited: %v", err)
				return
			}
			c.Close()
		})
		synctest.Wait()
		if err := rewrite(t, p, path, policyFile); err != nil {
			t.Fatal(err)
		}
		first.Close()
		waits.Wait()
		later, err := dial()
		if err != nil {
			t.Fatalf("who comes later: %v", err)
		}
		later.Close()
	})
}

// A class that somebody holds cannot become another class: then nobody would tell those who hold it.
// Any other class can.
func TestPolicyKeepsClassesInUse(t *testing.T) {
	for name, codes := range map[string]string{
		"unit":  "rate = \"20 tokens/s\"\ncost = 2\n",
		"per":   "rate = \"20 messages/s\"\nper = \"destination\"\n",
		"quiet": "rate = \"20 messages/s\"\n[[class.codes.quiet]]\nfrom = \"03:00\"\nto = \"04:00\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // it is midnight in UTC
				p, path := load(t, "[class.codes]\nrate = \"20 messages/s\"\n[class.bulk]\nrate = \"1 messages/s\"\n")
				defer p.Close()
				changed := "[class.codes]\n" + codes + "[class.bulk]\nrate = \"2 messages/s\"\n"
				transport, err := p.Transport("bulk")
				if err != nil {
					t.Fatal(err)
				}
				if err := rewrite(t, p, path, changed); err != nil {
					t.Errorf("a change to a class that nobody holds gives %v", err)
				}
				if got := transport.Class.Rate().String(); got != "2 messages/s" {
					t.Errorf("the rate of the other class is %s", got)
				}

				if transport, err = p.Transport("codes"); err != nil {
					t.Fatal(err)
				}
				back := "[class.codes]\nrate = \"20 messages/s\"\n[class.bulk]\nrate = \"3 messages/s\"\n"
				if err := rewrite(t, p, path, back); !strings.Contains(text(err), `class "codes" is in use`) {
					t.Errorf("a change to a class that somebody holds gives %v", err)
				}
				if bulk, _ := p.Class("bulk"); bulk.Rate().String() != "2 messages/s" {
					t.Errorf("after a reload that fails the rate of the other class is %s", bulk.Rate())
				}
				transport.Base = record(ok)
				get(t, &http.Client{Transport: transport, Timeout: time.Minute})

				without := "[class.bulk]\nrate = \"3 messages/s\"\n"
				if err := rewrite(t, p, path, without); err != nil {
					t.Error(err)
				}
				if err := rewrite(t, p, path, back); !strings.Contains(text(err), `class "codes" is in use`) {
					t.Errorf("if the file has another class of a name that it had lost, and somebody holds that, the error is %v", err)
				}
			})
		})
	}
}

func second[T any](_ T, err error) error { return err }
