// Package client limits how fast a Go program connects, reads, writes and sends requests.
// It works inside the program and needs no proxy, no daemon and no policy file. Three lines
// keep the requests to an API at 20 a second:
//
//	transport, err := client.NewTransport("20 messages/s", 0)
//	...
//	api := &http.Client{Transport: transport}
//
// Three lines keep all connections to a server together at 1 Mbit/s in each direction:
//
//	dialer, err := client.NewDialer("1mbit", 0)
//	...
//	conn, err := dialer.Dial("tcp", "server.example:443")
//
// And three lines let a server accept 10 connections a second:
//
//	limited, err := client.NewListener(l, "10 connections/s", 0)
//	...
//	err = server.Serve(limited)
//
// What may not leave yet waits, first come first served. A context, a deadline or Close
// ends the wait. A Dialer and a Transport need no Close. The limits follow the clock of
// package time, so they are exact in testing/synctest.
//
// # Rate and burst
//
// A rate is written as in a policy file (unit.ParseRate). It limits what it counts:
//
//	rate              NewTransport  NewDialer, NewListener         NewConn
//	20 messages/s     requests      -                              -
//	10 connections/s  -             connections that open          -
//	1mbit, 64KiB/s    -             bytes of all, per direction    bytes, per direction
//	100 packets/s     -             packets of all, per direction  packets, per direction
//
// A "-" in the table is an error of the constructor. Only networks that keep messages, such
// as udp, have packets.
//
// With a burst of 0 the class is a leaky bucket. Requests, connections and packets are
// never closer than the rate allows, also after a pause. Bytes flow evenly. With a burst of
// n the class is a token bucket: n may leave at once after a pause, and over any time t at
// most n + rate*t. A burst counts what the rate counts. A rate of 0 lets nothing leave.
//
// # Requests that fail
//
// A Transport hands on what the server answers. With a [Retry] it sends again what is safe to send
// again, in its turn, after what Retry-After says and a random time:
//
//	transport.Retry.Max = 3
//
// # Classes
//
// A limit is a class, a *shaper.Class, and may be used in several places. [NewClass] makes
// one from a rate and a burst, for a field of [Limits]. A policy.Class gives a class all
// keys of a policy file: shaper.NewLiveClass makes one class, and a shaper.Shaper makes a
// whole tree, which a new policy changes while it is in use. [LoadPolicy] takes the classes of
// a policy file, with their trees and schedules:
//
//	limits, err := client.LoadPolicy("/etc/shaper/shaper.toml")
//	...
//	transport, err := limits.Transport("api")
//
// A class treats a connection as the proxy treats a session: Limits.Open observes
// max_connections. It treats a request as the proxy treats an HTTP message: a [Transport]
// observes cost, in_flight, on_throttle and adapt. Only the default of overflow differs: messages
// wait. If the queue is full, connections are refused with a *shaper.RefusedError.
//
// # Files
//
// A file calls only those below it.
//
//	policy     [Policy]: the classes of a policy file
//	transport  [Transport]: HTTP requests
//	price      what a request costs, and what its class sees of it
//	retry      [Retry]: requests that are sent again
//	dialer     [Dialer]: connections that a client opens
//	listener   [Listener]: connections that a server accepts
//	conn       [Conn]: reads and writes
//	permit     what lets a connection be open
//	limits     [Limits]: which class limits what, and the identity of the peer
//	class      a class from a rate and a burst
//	deadline   a context whose end can be moved
package client
