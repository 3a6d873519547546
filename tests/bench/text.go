package main

// introduction is the beginning of the report. Its arguments are the lines about the machine
// and the name of the plot.
const introduction = `# Benchmarks

The same work directly, through HAProxy, through nginx and through shaper, in turn, each time through a fresh process.
` + "`make bench`" + ` as root writes this page, in about three quarters of an hour.

%s
Numbers are medians over the rounds. "shaper ÷ this" is the median, over the rounds, of shaper's number divided by this
one's: for what comes through, more than 1 is good for shaper; for costs and delays, less than 1. CPU is the time that
all processes of the proxy run, user and system. "load busy" is how much of its processor source and sink need: near
100 %% they are the limit, not the proxy, and CPU tells what a proxy could do.

![medians, with the lowest and the highest round](%s)
`

// method is the end of the report.
const method = `
## How it is measured

- The proxy has one processor, source and sink share the other: one process for each, one worker in nginx, one thread in
  HAProxy. "direct" is what source and sink do without a proxy, on their one processor.
- All have the same limit: what goes from the client to the upstream, what comes back is free. Where the limit is never
  to be reached it is 160 Gbit/s, so that it still has to be worked out.
- shaper: one leaky class, for all connections together. HAProxy and nginx limit each connection.
- HAProxy: ` + "`filter bwlim-in`" + ` with a period of 1 s; for 160 Gbit/s 2 GB in 100 ms, because limits near 2^32 bytes
  stall. A limit turns off that the kernel moves the bytes, so "no limit, splice" (` + "`option splice-auto`" + `, pipes of 1 MiB)
  shows what that would give. It is the release that Debian 13 packages, built as it is: Debian 12 has none with bwlim.
- nginx: Debian's, ` + "`proxy_upload_rate`" + ` in the stream module, and for datagrams a receive buffer of 4 MiB, as shaper has.
- "64 KiB buffers" is ` + "`tune.bufsize`" + ` or ` + "`proxy_buffer_size`" + `; without it they are as each comes.
- Everything else is as each comes. The policies and configurations are in ` + "`tests/bench/peers.go`" + `.
`

// groups holds the heading and introduction of each group's table.
var groups = map[string]struct{ title, about string }{
	"bulk":  {"Bulk", `TCP as fast as it goes. Fairness is Jain's index over the connections: 1 where all get the same.`},
	"rtt":   {"Round trips", `A question of 100 bytes and an answer of 100 bytes, 20,000 times, over one connection.`},
	"conns": {"Connections", `Connect, a byte each way, close; eight at once. Each client comes as soon as another has gone.`},
	"idle": {"Idle sessions", `10,000 sessions, or as many as the limit of descriptors allows, that have carried a byte each way and now carry
nothing: resident memory and descriptors for each, memory before them, and how much the proxy runs meanwhile. What the
kernel holds for sockets is not in it.`},
	"udp": {"Datagrams", `The highest rate at which no more than 1 in 1,000 is lost, found to 3 %. The source sends its datagrams one by one, or 32
in one piece that the kernel takes apart (UDP_SEGMENT). HAProxy does not relay UDP.`},
	"rate": {"At a rate", `One connection that always has more to send, over 10 s, after a first second. How close the rate comes to what was set;
the second that is farthest from that; the fullest 10 ms. At 1 Mbit/s 10 ms are 1,250 bytes, so that one full segment
makes 1.17.`},
	"gap": {"Gaps", `Datagrams of a class in ` + "`packets/s`" + ` that always has some waiting, by the kernel's timestamps at the sink. A provider
that counts sees no two of them closer than the rate says where "too short" is 0. HAProxy and nginx have no such limit.`},
}
