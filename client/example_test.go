package client_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"shaper/client"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// An API takes 100 requests a second and refuses what comes sooner.
func ExampleNewTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer server.Close()

	transport, err := client.NewTransport("100 messages/s", 0)
	if err != nil {
		log.Fatal(err)
	}
	api := &http.Client{Transport: transport}
	defer api.CloseIdleConnections()

	start := time.Now()
	for range 5 {
		resp, err := api.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	fmt.Println("four gaps of 10 ms have passed:", time.Since(start) >= 40*time.Millisecond)
	// Output: four gaps of 10 ms have passed: true
}

// A server is away for a moment. The request is sent again, up to three times, after random waits.
func ExampleRetry() {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	transport, err := client.NewTransport("100 messages/s", 0)
	if err != nil {
		log.Fatal(err)
	}
	transport.Retry = client.Retry{Max: 3}
	transport.Retry.Base = time.Millisecond // the test need not wait
	api := &http.Client{Transport: transport}
	defer api.CloseIdleConnections()

	resp, err := api.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status, "after", asked, "attempts")
	// Output: 200 OK after 3 attempts
}

// The classes of a policy file, in a program: requests keep the limits that the proxy would keep.
func ExampleLoadPolicy() {
	const file = "testdata/shaper.toml"
	limits, err := client.LoadPolicy(file)
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	transport, err := limits.Transport("codes")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(transport.Class.Name(), transport.Class.Rate())

	_, err = limits.Transport("code")
	fmt.Println(err)
	// Output:
	// codes 20 messages/s
	// client: testdata/shaper.toml: there is no class "code"; did you mean "codes"?
}

// A rate that cannot limit requests is an error.
func ExampleNewTransport_error() {
	_, err := client.NewTransport("20 requests/s", 0)
	fmt.Println(err)
	_, err = client.NewTransport("1mbit", 0)
	fmt.Println(err)
	// Output:
	// client: "20 requests/s" is not a rate: "requests" is not a unit of a rate; write "20 messages/s"
	// client: "1mbit" counts bytes, and a request is a message: it would never limit; a rate here is like "20 messages/s"
}

// All connections of a client share 1 MB/s in each direction. After a pause, 64 KiB may leave
// at once.
func ExampleNewDialer() {
	server := greeter()
	defer server.Close()

	dialer, err := client.NewDialer("1MB/s", 64<<10)
	if err != nil {
		log.Fatal(err)
	}
	c, err := dialer.Dial("tcp", server.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	greeting, err := io.ReadAll(c)
	fmt.Println(string(greeting), err)
	// Output: hello <nil>
}

// A server accepts 100 connections a second.
func ExampleNewListener() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	limited, err := client.NewListener(l, "100 connections/s", 0)
	if err != nil {
		log.Fatal(err)
	}
	defer limited.Close()
	go greet(limited)

	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		greeting, err := io.ReadAll(c)
		fmt.Println(string(greeting), err)
		c.Close()
	}
	// Output:
	// hello <nil>
	// hello <nil>
	// hello <nil>
}

// To limit the bytes of HTTP, limit the connections: a download runs at 1 MB/s at most.
func ExampleDialer_DialContext() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	}))
	defer server.Close()

	dialer, err := client.NewDialer("1MB/s", 0)
	if err != nil {
		log.Fatal(err)
	}
	downloads := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	defer downloads.CloseIdleConnections()

	resp, err := downloads.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	greeting, err := io.ReadAll(resp.Body)
	fmt.Println(string(greeting), err)
	// Output: hello <nil>
}

// NewConn limits one connection of any kind.
func ExampleNewConn() {
	a, b := net.Pipe()
	c, err := client.NewConn(a, "10kB/s", 0)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	go func() { b.Write(make([]byte, 5000)); b.Close() }()

	start := time.Now()
	n, err := io.Copy(io.Discard, c)
	// The first 1,460 bytes come at once, the rest at 10 kB/s.
	fmt.Println(n, err, time.Since(start) > 200*time.Millisecond)
	// Output: 5000 <nil> true
}

// A Dialer has several limits: 10 connections open each second, and their writes are limited,
// but not their reads.
func ExampleNewClass() {
	open, err := client.NewClass("10 connections/s", 5)
	if err != nil {
		log.Fatal(err)
	}
	write, err := client.NewClass("1mbit", 0)
	if err != nil {
		log.Fatal(err)
	}
	dialer := client.Dialer{Limits: client.Limits{Open: open, Write: write}}

	server := greeter()
	defer server.Close()
	for range 3 { // five may open at once
		c, err := dialer.Dial("tcp", server.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		c.Close()
	}
	fmt.Println("three have opened")
	// Output: three have opened
}

// A class has more keys of a policy: at most three requests are in flight, and a "too fast"
// of the server halves the pace for a while.
func ExampleTransport() {
	conf := policy.DefaultClass("api")
	conf.Rate = unit.NewRate(unit.Messages, 100, time.Second)
	conf.InFlight = 3
	conf.Adapt = true
	api := &http.Client{Transport: &client.Transport{Class: shaper.NewLiveClass(conf)}}
	defer api.CloseIdleConnections()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer server.Close()
	resp, err := api.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

// Connections use the classes of a policy: two classes share what their parent allows. Apply
// with another policy changes them while they are in use.
func ExampleLimits() {
	account, bulk := policy.DefaultClass("account"), policy.DefaultClass("bulk")
	account.Rate, account.MaxConnections = unit.BytesPerSecond(1_000_000), 100
	bulk.Parent, bulk.Rate, bulk.Ceil = "account", unit.BytesPerSecond(100_000), unit.BytesPerSecond(1_000_000)
	classes := shaper.New()
	defer classes.Close()
	classes.Apply([]policy.Class{account, bulk})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	limited := &client.Listener{Listener: l, Limits: client.Limits{
		Write: classes.Class("bulk"),
		Open:  classes.Class("account"), // at most 100 connections are open at once
	}}
	defer limited.Close()
	go greet(limited)

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	greeting, err := io.ReadAll(c)
	fmt.Println(string(greeting), err)
	// Output: hello <nil>
}

// greeter returns a listener that writes a greeting to each connection.
func greeter() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go greet(l)
	return l
}

// greet accepts connections and greets them until the listener is closed.
func greet(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(c, "hello")
		c.Close()
	}
}
