package client_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"time"

	"shaper/client"
	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// classOf returns a live class of a rate.
func classOf(sh *shaper.Shaper, rate unit.Rate) *shaper.Class {
	conf := policy.DefaultClass("example")
	conf.Rate = rate
	return sh.NewClass(conf)
}

// A server whose clients together are sent no more than 1 MB/s, and of which no
// more than 100 are accepted per second.
func ExampleListener() {
	sh := shaper.New()
	defer sh.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	shaped := &client.Listener{Listener: l, Limits: client.Limits{
		Write: classOf(sh, unit.BytesPerSecond(1_000_000)),
		Open:  classOf(sh, unit.NewRate(unit.Connections, 100, time.Second)),
	}}
	defer shaped.Close()
	go func() {
		for {
			c, err := shaped.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "hello")
			c.Close()
		}
	}()

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	answer, err := io.ReadAll(c)
	fmt.Printf("%s%v\n", answer, err)
	// Output:
	// hello
	// <nil>
}

// A client that keeps to the limit of its provider: its connections share a
// class, however many there are.
func ExampleDialer() {
	provider, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer provider.Close()
	go func() {
		c, err := provider.Accept()
		if err != nil {
			return
		}
		io.Copy(c, c)
		c.Close()
	}()

	sh := shaper.New()
	defer sh.Close()
	d := client.Dialer{Limits: client.Limits{Write: classOf(sh, unit.BytesPerSecond(64<<10))}}
	c, err := d.Dial("tcp", provider.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	fmt.Fprintln(c, "shaped")
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(line, err)
	// Output:
	// shaped
	// <nil>
}

// Any net.Conn can be limited, also one that is read faster than it may be.
func ExampleWrap() {
	sh := shaper.New()
	defer sh.Close()
	a, b := net.Pipe()
	c := client.Wrap(a, client.Limits{Read: classOf(sh, unit.BytesPerSecond(10_000))})
	defer c.Close()
	go func() { b.Write(make([]byte, 5_000)); b.Close() }()

	start := time.Now()
	n, err := io.Copy(io.Discard, c)
	// The first piece comes at once, the others at 10 kB/s.
	fmt.Println(n, err, time.Since(start) > 200*time.Millisecond)
	// Output: 5000 <nil> true
}
