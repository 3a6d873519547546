// Package sock provides the sockets that sessions use. It knows no sessions and no classes.
//
// An [End] is one end of a byte stream. Its methods never wait: a [Poller] reports when
// there is something to read, or room to write. A [Network] makes ends. There are two:
// [Kernel], whose ends are TCP and unix sockets, and [Memory], whose ends behave like them,
// for tests in virtual time. One table of tests checks both.
//
// A [Cargo] carries bytes from one end to another; the kernel moves large amounts without a
// copy. Datagrams are read and written in batches: [Reader], [Batch].
//
// Files call downwards only. What moves data:
//
//	cargo           Cargo: bytes read from one end and not yet written to another
//	batch_linux     Batch: datagrams that leave together
//	incoming_linux  Reader, Incoming and Peer: datagrams that arrive together
//	train           Train: datagrams of one size in a row
//
// The network in memory:
//
//	memory          Memory and MemoryListener: addresses, dialling, accepting
//	memory_conn     MemoryConn: an end as a net.Conn, with deadlines
//	memory_end      MemoryEnd: an end, and the faults that tests inject
//	watched         how a source in memory reports to a poller
//
// The network of the kernel:
//
//	listener_linux  ListeningSocket: Accept
//	intercept_linux  connections that nftables leads to a listener
//	socket_linux    Socket: Dial, pairs, options
//	name_linux      the names of unix sockets, and their files
//	epoll_linux     how a poller waits for the kernel's events
//	pipe_linux      Pipes: the pipes that splice moves bytes through
//	calls_linux     system calls that Go's scheduler is not told of
//	limit_linux     how many descriptors the process may have
//
// What both have in common:
//
//	poller          Poller: reports events and gives turns
//	sock            the interfaces Network, Listener and End; options, events, state
package sock
