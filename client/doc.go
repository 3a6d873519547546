// Package client limits how fast a Go program connects, reads, writes and sends requests,
// inside the program: it needs no proxy, no daemon and no policy file. Three lines keep
// the requests to an API at 20 a second:
//
//	transport, err := client.NewTransport("20 messages/s", 0)
//	...
//	api := &http.Client{Transport: transport}
//
// three the connections to a server at 1 Mbit/s together, each way:
//
//	dialer, err := client.NewDialer("1mbit", 0)
//	...
//	conn, err := dialer.Dial("tcp", "server.example:443")
//
// and three the connections of a server at 10 a second:
//
//	limited, err := client.NewListener(l, "10 connections/s", 0)
//	...
//	err = server.Serve(limited)
//
// What may not go yet waits its turn, first come first served. A context, a deadline or
// Close ends the wait. Nobody closes a Dialer or a Transport. The limits follow the clock
// of package time, so they are exact in testing/synctest.
//
// # Rate and burst
//
// A rate is written as in a policy file (unit.ParseRate). What it counts is what it limits:
//
//	rate                      NewTransport  NewDialer, NewListener   NewConn
//	20 messages/s             requests      -                        -
//	10 connections/s          -             connections that open    -
//	1mbit, 64KiB/s            -             bytes of all, each way   bytes, each way
//	100 packets/s             -             packets of all, each way packets, each way
//
// What a constructor cannot limit by a rate is an error, "-" in the table. Packets are
// those of networks that keep messages, such as udp.
//
// With a burst of 0 the class is a leaky bucket. Requests, connections and packets are
// never closer than the rate says, however long nothing came before. Bytes flow evenly. A
// burst of n makes it a token bucket: n may go at once after a pause, and over any time t
// at most n + rate*t. A burst counts what the rate counts. A rate of 0 lets nothing go.
//
// # Classes
//
// A limit is a class, a *shaper.Class, and may be used in several places. [NewClass] makes
// one of a rate and a burst, to fill a field of [Limits]. All keys of a policy are there
// for a class that is made of a policy.Class: by shaper.NewLiveClass one class, by a
// shaper.Shaper a whole tree, which a new policy changes while it is used.
//
// What a class does for a session of the proxy it does for a connection: Limits.Open
// observes max_connections. What it does for messages of HTTP it does for requests: a
// [Transport] observes in_flight, on_throttle and adapt. Only overflow differs where the
// policy does not say: messages wait. Connections are refused if the queue is full, with a
// *shaper.RefusedError.
//
// # Files
//
// The files call each other in this order: transport; dialer, listener; conn; place;
// limits; class; deadline.
package client
