// Package conn runs the listeners of a policy. It accepts connections and datagrams, puts
// them into classes, dials the upstream, and relays what the classes let leave.
//
// A [Server] owns everything. These are its files, from a listener down to what all share;
// each calls only those below it:
//
//	server       the server: create, read its counters, shut down
//	change       a reload: bind new sockets, swap policies, close old sockets
//	janitor      ends sessions that have been idle for too long
//	info         the open sessions, as people see them
//	probe        a connection of our own through all of this, for the watchdog
//	accept       a bound TCP socket, which starts sessions
//	begin        a session starts: TLS, destination, classes, permit
//	dial, attempt, failover, race  a session finds an upstream, or the next one if that fails
//	search       the addresses that a session still has to try
//	connect      a side connects to an upstream
//	clock        how long a session tries to reach an upstream
//	secure       the TLS handshake with the client or the upstream
//	intercept    the destination of the client of a transparent listener
//	entrance     an entry: who the client is, and where it wants to go
//	association  the relay of a SOCKS client that sends datagrams
//	header       the PROXY header of the client, and the one for its upstream
//	greeting     what the client says before the session begins
//	forwarded    the one request that a client of an entry asks by a URL, and its answer
//	failed       why an upstream could not be reached
//	classes      the classes of a session, at its start and after a reload
//	permit       what lets a session be open in its class (max_connections)
//	streams      the relay of bytes
//	messages     the relay of messages, which the machine of package exchange decides
//	lane         one direction of that relay
//	copies       what a shadow policy sees of a session
//	direction    one direction of a session: the only code that reads, writes, ends and cuts
//	tls_end      the end of a connection over TLS
//	tunnel       the TLS beneath such an end, in goroutines of its own
//	tunnel_copy  the two directions of a tunnel
//	tunnel_end   how TLS fails, and how a tunnel ends
//	wire         the connection beneath TLS
//	side         one of the two connections of a session
//	udp, udp_read, udp_begin, udp_session  a bound UDP socket, the datagrams that it reads, and its sessions, one
//	             for each client or destination
//	foreign      sockets with the addresses of servers, from which transparent listeners answer
//	datagram     datagrams that wait for their class and leave it
//	alarm        calls a function of a session after a time
//	end          how a session is locked, fails and ends
//	session      a TCP session: its state, and what its parts promise each other
//	course       where a session leads: its upstream, the address there, and the one of ours
//	bind         the address of ours that a session leaves from
//	shadow       a policy that only computes what it would do
//	registry     the open sessions of the server, of both kinds, and its tunnels
//	routes       a compiled policy: which classes a connection gets
//	certs        certificates and keys
//	files        files that the policy names
//	gate         the bound on sessions (max_sessions)
//	access       who may connect to unix sockets
//	allow        where the clients of an entry may go
//	listen       sockets that are bound here or passed by systemd
//	service      a listener of the policy, as sessions use it
//	check        a connection that checks an upstream
//	proxy        the PROXY header that an upstream gets
//	loop         connections that would lead back to shaper itself
//	mark         the marks of packets (SO_MARK)
//	fault        faults that are logged at a bounded rate
//	label        names for logs and people
//	address      where sockets are bound
//	socket       addresses and options of sockets
package conn
