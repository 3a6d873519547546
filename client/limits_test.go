package client

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/shaper"
)

// limited returns a class that runs on the clock of a synctest bubble.
func limited(rate string, change func(*policy.Class)) *shaper.Class {
	conf := leakyClass("c", rate)
	change(&conf)
	return shaper.NewLiveClass(conf)
}

// A constructor refuses a rate that cannot work, and says what to write instead.
func TestErrors(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	conn := func(rate string, burst int) error { _, err := NewConn(a, rate, burst); return err }
	dialer := func(rate string, burst int) error { _, err := NewDialer(rate, burst); return err }
	listener := func(rate string, burst int) error { _, err := NewListener(endless{}, rate, burst); return err }
	transport := func(rate string, burst int) error { _, err := NewTransport(rate, burst); return err }
	class := func(rate string, burst int) error { _, err := NewClass(rate, burst); return err }
	for _, tt := range []struct {
		make  func(string, int) error
		rate  string
		burst int
		want  string
	}{
		{transport, "20/s", 0, `client: "20/s" is not a rate: it does not say what it counts; write "20 messages/s", "20 packets/s" or "20 connections/s"`},
		{transport, "20 requests/s", 0, `client: "20 requests/s" is not a rate: "requests" is not a unit of a rate; write "20 messages/s"`},
		{transport, "1mbit", 0, `client: "1mbit" counts bytes, and a request is a message: it would never limit; a rate here is like "20 messages/s"`},
		{dialer, "1 Mbps", 0, `client: "1 Mbps" is not a rate: "Mbps" is not a unit of a rate; write "1mbit" for bits, or "1MB/s" for bytes`},
		{dialer, "20 messages/s", 0, `client: "20 messages/s" counts messages, and a connection has none: it would never limit; a rate here is like "1mbit"`},
		{dialer, "100 packets/s", 0, ""},
		{listener, "100 packets/s", 0, `client: "100 packets/s" counts packets, and a stream has none: it would never limit; a rate here is like "1mbit"`},
		{listener, "10 connections/s", 0, ""},
		{conn, "10 connections/s", 0, `client: "10 connections/s" counts connections, and this one is open: it would never limit; a rate here is like "1mbit"`},
		{conn, "20 messages/s", 0, `client: "20 messages/s" counts messages, and a stream has none: it would never limit; a rate here is like "1mbit"`},
		{conn, "1mbit", 0, ""},
		{class, "", 0, `client: "" is not a rate: it does not begin with a number; a rate is like "20mbit", "64KiB/s", "200 packets/s" or "120 connections/min"`},
		{class, "20 messages/s", -1, `client: -1 is not a burst; a burst is from 0, which is none, to 8796093022208`},
		{class, "20 messages/s", 1<<43 + 1, `client: 8796093022209 is not a burst; a burst is from 0, which is none, to 8796093022208`},
		{class, "20 messages/s", 1 << 43, ""},
	} {
		err := tt.make(tt.rate, tt.burst)
		if got := text(err); got != tt.want {
			t.Errorf("%q, %d:\n got %s\nwant %s", tt.rate, tt.burst, got, tt.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Dial and Accept also refuse a class that would never limit.
func TestUseOfAClassThatNeverLimits(t *testing.T) {
	messages := limited("20 messages/s", func(*policy.Class) {})
	packets := limited("20 packets/s", func(*policy.Class) {})
	d := Dialer{Limits: Limits{Write: packets}}
	if _, err := d.Dial("tcp", "127.0.0.1:1"); text(err) != `dial tcp: client: "c" counts packets, and a stream has none: it would never limit; a rate here is like "1mbit"` {
		t.Errorf("Dial: %v", err)
	}
	l := &Listener{Listener: endless{}, Limits: Limits{Read: messages}}
	if _, err := l.Accept(); text(err) != `accept tcp :0: client: "c" counts messages, and a stream has none: it would never limit; a rate here is like "1mbit"` {
		t.Errorf("Accept: %v", err)
	}
}

// Without a burst, messages leave evenly. A burst of three lets three leave at once, and three
// more after a pause.
func TestBurst(t *testing.T) {
	const tenth = 100 * time.Millisecond
	for _, tt := range []struct {
		burst int
		want  []time.Duration // when each of four messages leaves
	}{
		{0, []time.Duration{0, tenth, 2 * tenth, 3 * tenth}},
		{1, []time.Duration{0, tenth, 2 * tenth, 3 * tenth}},
		{3, []time.Duration{0, 0, 0, tenth}},
	} {
		synctest.Test(t, func(t *testing.T) {
			class, err := NewClass("10 messages/s", tt.burst)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				start := time.Now()
				for i, want := range tt.want {
					if err := shaper.NewWaiter(class).Wait(t.Context(), shaper.Cost{Messages: 1}, false); err != nil {
						t.Fatal(err)
					}
					if got := time.Since(start); got != want {
						t.Errorf("burst %d: message %d leaves after %v, want %v", tt.burst, i, got, want)
					}
				}
				time.Sleep(time.Hour)
			}
		})
	}
}

// The connections of a Dialer share one limit for reads and one for writes.
func TestConnectionsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := NewDialer("14600B/s", 0)
		if err != nil {
			t.Fatal(err)
		}
		const piece = 1460 // the rate is 10 pieces a second
		start := time.Now()
		done := make(chan time.Duration)
		for range 2 {
			ours, theirs := net.Pipe()
			c := Wrap(ours, d.Limits)
			defer c.Close()
			go func() { c.Write(make([]byte, 5*piece)); done <- time.Since(start) }()
			go func() { theirs.Write(make([]byte, 5*piece)) }()
			go func() { io.ReadFull(c, make([]byte, 5*piece)); done <- time.Since(start) }()
			go io.Copy(io.Discard, theirs)
		}
		var last time.Duration
		for range 4 {
			last = max(last, <-done)
		}
		if want := 900 * time.Millisecond; last != want {
			t.Errorf("10 pieces each way take %v, want %v", last, want)
		}
	})
}

// NewListener accepts connections at its rate.
func TestNewListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewListener(endless{}, "2 connections/s", 0)
		if err != nil {
			t.Fatal(err)
		}
		checkAccepts(t, l, 3)
	})
}

// With max_connections, Accept waits until a connection is closed.
func TestMaxConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := limited("1mbit", func(c *policy.Class) { c.MaxConnections = 2 })
		l := &Listener{Listener: endless{}, Limits: Limits{Open: class}}
		first, _ := l.Accept()
		second, _ := l.Accept()
		go func() { time.Sleep(time.Hour); first.Close(); first.Close() }()
		start := time.Now()
		third, err := l.Accept()
		if waited := time.Since(start); err != nil || waited != time.Hour {
			t.Errorf("the third connection: %v after %v, want it after 1h", err, waited)
		}
		if n := class.Sessions(); n != 2 {
			t.Errorf("%d are open, want 2", n)
		}
		second.Close()
		third.Close()
		if n := class.Sessions(); n != 0 {
			t.Errorf("%d are open after they were closed", n)
		}
	})
}

// A dial that finds max_connections open is refused at once if the class says so, else after
// max_wait, or ends with its context. It keeps no permit.
func TestMaxConnectionsRefuses(t *testing.T) {
	none := func(*policy.Class) {}
	for _, tt := range []struct {
		name   string
		change func(*policy.Class)
		want   error
		after  time.Duration
	}{
		{"refuse", func(c *policy.Class) { c.Overflow = policy.Refuse }, shaper.ErrQueueFull, 0},
		{"max_wait", func(c *policy.Class) { c.MaxWait = 5e9 }, shaper.ErrTooLong, 5 * time.Second},
		{"context", none, context.DeadlineExceeded, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			class := limited("1mbit", func(c *policy.Class) { c.MaxConnections = 1; tt.change(c) })
			d := Dialer{Limits: Limits{Open: class}}
			p, err := d.open(t.Context(), "tcp", "192.0.2.1:1")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			_, err = d.DialContext(ctx, "tcp", "192.0.2.1:1")
			if after := time.Since(start); !errors.Is(err, tt.want) || after != tt.after {
				t.Errorf("%s: %v after %v, want %v after %v", tt.name, err, after, tt.want, tt.after)
			}
			p.leave(time.Now())
			if p, err = d.open(t.Context(), "tcp", "192.0.2.1:1"); err != nil {
				t.Errorf("%s: the permit is free, and open returns %v", tt.name, err)
			}
			p.leave(time.Now())
		})
	}
}

// Close ends an Accept that waits for max_connections.
func TestListenerCloseWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := limited("1mbit", func(c *policy.Class) { c.MaxConnections = 1 })
		l := &Listener{Listener: endless{}, Limits: Limits{Open: class}}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ended := make(chan error)
		go func() { _, err := l.Accept(); ended <- err }()
		synctest.Wait()
		l.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v, want net.ErrClosed", err)
		}
	})
}

// A dial that fails gives up its permit.
func TestDialThatFailsLeavesItsPlace(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	class := limited("1mbit", func(c *policy.Class) { c.MaxConnections = 1 })
	d := Dialer{Limits: Limits{Open: class}}
	for range 3 {
		if _, err := d.Dial("tcp", l.Addr().String()); err == nil {
			t.Fatal("the dial succeeds")
		}
	}
	if n := class.Sessions(); n != 0 {
		t.Errorf("%d are open", n)
	}
}

// A class that is in all fields counts a connection once.
func TestOneClassInAllFields(t *testing.T) {
	class := limited("1gbit", func(c *policy.Class) { c.MaxConnections = 1 })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := Dialer{Limits: Limits{Read: class, Write: class, Open: class}}
	for range 2 {
		c, err := d.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if n := class.Sessions(); n != 1 {
			t.Errorf("%d are open, want 1", n)
		}
		c.Close()
	}
}

// A Dialer has no method that connects without its limits.
func TestDialerHasNoOtherWay(t *testing.T) {
	var names []string
	for m := range reflect.TypeFor[*Dialer]().Methods() {
		names = append(names, m.Name)
	}
	if want := []string{"Dial", "DialContext"}; !slices.Equal(names, want) {
		t.Errorf("a Dialer has the methods %v, want %v", names, want)
	}
}

// dialing is a ContextDialer made from a function.
type dialing func() (net.Conn, error)

func (d dialing) DialContext(context.Context, string, string) (net.Conn, error) { return d() }

// A Dialer paces connections on any base. The time that the base takes to connect counts
// towards the gap.
func TestNewDialer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := NewDialer("2 connections/s", 0)
		if err != nil {
			t.Fatal(err)
		}
		d.Base = dialing(func() (net.Conn, error) { time.Sleep(200 * time.Millisecond); c, _ := net.Pipe(); return c, nil })
		start := time.Now()
		for i := range 3 {
			c, err := d.Dial("tcp", "api.example:443")
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			if got, want := time.Since(start), time.Duration(i)*500*time.Millisecond+200*time.Millisecond; got != want {
				t.Errorf("connection %d after %v, want %v", i, got, want)
			}
		}
	})
}

// A class that Apply has removed goes on pacing connections. It gives them permits again once
// LetIn has been called.
func TestRemovedClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		classes := shaper.New()
		defer classes.Close()
		classes.Apply([]policy.Class{leakyClass("c", "1 connections/s")})
		d := Dialer{Base: dialing(func() (net.Conn, error) { c, _ := net.Pipe(); return c, nil }), Limits: Limits{Open: classes.Class("c")}}
		start := time.Now()
		for i := range 3 {
			c, err := d.Dial("tcp", "api.example:443")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, removed := range classes.Apply(nil) {
				removed.LetIn()
			}
			if got, want := time.Since(start), time.Duration(i)*time.Second; got != want {
				t.Errorf("connection %d after %v, want %v", i, got, want)
			}
		}
	})
}
