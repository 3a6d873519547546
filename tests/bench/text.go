package main

// introduction is the beginning of the report. Its arguments are the lines about the machine
// and the name of the plot.
const introduction = `# Benchmarks

This page compares shaper with what people use today: HAProxy, nginx, Kannel and tc. Each does the same work in turn, each time in a fresh process; "direct" is the
same work without a proxy. ` + "`make bench`" + ` as root writes this page, in about an hour and a quarter.

%s
Numbers are medians over the rounds. "shaper ÷ this" is the median, over the rounds, of shaper's number divided by that of the
row: for throughput, more than 1 is good for shaper; for costs and delays, less than 1. CPU is the user and system time of
all processes of the proxy. "load busy" is how much of their processor source and sink need: near 100 %% they are the limit,
not the proxy, and CPU says what the proxy could do.

![medians, with the lowest and the highest round](%s)
`

// method is the end of the report.
const method = `
## How it is measured

- The proxy has one processor; source and sink share the other: one process for each, one worker in nginx, one thread in
  HAProxy. "direct" is what source and sink do without a proxy, on their one processor.
- All have the same limit on what goes from the client to the upstream, and none on what comes back. If the limit is never
  to be reached it is 160 Gbit/s, so that each proxy still has to compute it.
- shaper: one leaky class, for all connections together. HAProxy and nginx limit each connection.
- HAProxy: ` + "`filter bwlim-in`" + ` with a period of 1 s; for 160 Gbit/s 2 GB in 100 ms, because limits near 2^32 bytes
  stall. With a limit, HAProxy does not let the kernel move the bytes; "no limit, splice" (` + "`option splice-auto`" + `, pipes of
  1 MiB) shows what that would give. It is the release that Debian 13 packages, built unchanged: Debian 12 has none with bwlim.
- "haproxy, stick table": all connections of a client share one limit of ` + "`bwlim-in`" + `, as they do in shaper.
- tc: ` + "`htb`" + ` on the link between source and sink, with packets of 1,500 bytes, and nothing between them. It counts frames, with their
  headers, so the payload stays some 5 % below the rate. The kernel does its work for whoever sends, so there is no figure for it.
- nginx: Debian's, with ` + "`proxy_upload_rate`" + ` in the stream module, and for datagrams a receive buffer of 4 MiB, as in shaper.
  Requests: ` + "`limit_req`" + ` with a burst of 1,000 and thus with delay, and connections to the sink that stay open.
  "half-close" is ` + "`proxy_half_close`" + `: as shaper and HAProxy do, nginx then passes the end of a client on and waits for that of the server.
- Kannel: Debian's bearerbox with ` + "`throughput`" + `, and an smsbox that takes the messages over HTTP; its CPU is that of both. shaper gets
  the same messages over SMPP.
- "64 KiB buffers" sets ` + "`tune.bufsize`" + ` or ` + "`proxy_buffer_size`" + `; without it, buffers have their default size.
- All other settings are the defaults. The policies and configurations are in ` + "`tests/bench/peers.go`" + ` and ` + "`kannel.go`" + `.
`

// groups holds the heading and introduction of each group's table.
var groups = map[string]struct{ title, about string }{
	"bulk":  {"Bulk", `TCP at full speed. Fairness is Jain's index over the connections: 1 if all get the same.`},
	"rtt":   {"Round trips", `A question of 100 bytes and an answer of 100 bytes, 20,000 times, over one connection.`},
	"conns": {"Connections", `A client connects, sends a byte, receives a byte, and closes. Eight clients run at once; when one has gone, the next one comes. At an entry, each first asks for its server, in the same segment.`},
	"idle": {"Idle sessions", `10,000 sessions, or as many as the limit of descriptors allows, have carried a byte each way and now carry nothing. The
table has resident memory and descriptors for each session, memory before the first, and how much the proxy runs meanwhile.
"KiB each" is what the second half of the sessions adds, divided by their number: what a proxy takes once comes with the first half.
It does not include what the kernel holds for sockets.`},
	"udp": {"Datagrams", `The highest rate at which at most 1 datagram in 1,000 is lost, to within 3 %. The source sends datagrams one by one, or 32
in one piece that the kernel splits (UDP_SEGMENT). HAProxy does not relay UDP.`},
	"rate": {"At a rate", `One connection always has more to send, for 10 s after a first second. The table has how close the rate comes to the one
that was set, the second that is farthest from it, and the fullest 10 ms. 64 connections share
the rate. At 1 Mbit/s, 10 ms are 1,250 bytes, so one full segment makes 1.17.`},
	"gap": {"Gaps", `A class in ` + "`packets/s`" + ` always has datagrams waiting. The gaps are by the kernel's timestamps at the sink. If "too short" is
0, a provider never sees two datagrams closer than the rate allows. HAProxy and nginx have no such limit.`},
	"short": {"Where processors are short", `The same work as under "Gaps", beside two loops on the processor of the proxy that are always busy, or under a quota of
processor time (100 ms periods). The names are those of systemd.exec(5) and systemd.resource-control(5). "Awake" is with a loop of idle
priority on each processor, so that none of them sleeps.`},
	"request": {"Requests", `A class in ` + "`messages/s`" + ` always has HTTP requests waiting, of 50 clients that send one after the other. nginx delays them with
` + "`limit_req`" + `. The gaps are as above.`},
	"sms": {"Short messages", `A class in ` + "`messages/s`" + ` always has short messages (SMPP) waiting. Kannel limits itself with ` + "`throughput`" + `. The gaps are as above. If the sink is
late, it reads two messages at once, and they have one time.`},
}
