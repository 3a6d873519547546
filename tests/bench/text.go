package main

// introduction is the beginning of the report.
const introduction = `# Benchmarks

` + "`make bench`" + ` writes this page: the same work directly, through HAProxy, through nginx and through shaper, in turn, each
through a fresh process. Numbers are medians over the rounds. "shaper ÷ this" is the median over the rounds of shaper's
number divided by this one's: for rates more than 1 is good for shaper, for costs and delays less than 1.

![medians](%s)

%s`

// groups says what stands above the table of each group.
var groups = map[string]struct{ title, about string }{
	"bulk":  {"Bulk", "TCP as fast as it goes, with a limit that is worked out and never reached. Fairness is Jain's index over the connections: 1 where all get the same."},
	"rtt":   {"Round trips", "A question of 100 bytes, an answer of 100 bytes, 20,000 times over one connection."},
	"conns": {"Connections", "Connect, a byte each way, close."},
	"idle":  {"Idle sessions", "10,000 sessions (fewer where descriptors are limited) that have carried a byte each way: resident memory and descriptors of the proxy for each, its memory before, and what it runs while nothing moves. What the kernel holds for sockets is not in it."},
	"udp":   {"Datagrams", "The highest rate of which no more than 1 in 1,000 is lost, found to 3 %; HAProxy has no UDP proxy. A source sends its datagrams one by one, or 32 of them in one piece that the kernel takes apart (UDP_SEGMENT)."},
	"rate":  {"At a rate", "One connection that always has more to send, for 10 s from its second second on: how close the rate comes to what was set, the second that is farthest from it, and the fullest 10 ms. Less than a segment may leave in 10 ms at 1 Mbit/s, so more than 1 is unavoidable there."},
	"gap":   {"Gaps", "Datagrams of a class in `packets/s` that always has some waiting, by the kernel's timestamps at the sink. No provider may see two of them closer than the rate says. HAProxy and nginx have no such limit."},
}
