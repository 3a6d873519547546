// Package upstream decides where sessions lead. It finds the addresses of upstreams and keeps
// them fresh, chooses among them, checks them, and says why one could not be reached. It knows
// no sessions; a session walks through the upstreams of its listener, until it reaches one.
//
// Each file calls only those below it:
//
//	read        the upstreams, as people see them
//	walk        the way of one session through them
//	group       the upstreams of a listener, through all reloads
//	checker     when addresses are checked
//	check       how an address is checked
//	balance     which address comes next
//	entry       an upstream and its addresses
//	target      an address, what is known of it, and how many sessions it has
//	names       the addresses of names, by their TTL
//	resolver    how a name is looked up: files, DNS, the system
//	dns         questions to name servers
//	resolvconf  resolv.conf
//	hosts       the hosts file
//	address     addresses that need no lookup, and those of this machine
//	failure     why an upstream could not be reached
package upstream
