// Package daemon is the running process. It puts a policy file in force, reads it again
// when asked, answers on the control socket, serves metrics and health, and drains when it
// is told to stop.
//
// [Run] is the process. [Client] asks a running daemon through its control socket.
//
// # Files
//
// A file calls only those below it.
//
//	daemon       [Run]: starts the parts of the process, obeys signals, drains
//	group        runs the parts until one of them ends
//	watch        how a [Client] follows what the dashboard shows
//	client       [Client], which runs in other processes
//	api          the requests that the control socket takes
//	web          the dashboard, metrics, health and readiness over HTTP; the streams of the control socket
//	page         what the dashboard shows
//	explain      which rule and class a client gets
//	why          why a class waits, and until when
//	shadow       a policy that runs beside the one in force, on copies of its traffic
//	compare      what a reload of a policy would change
//	answer       HTTP handlers that take and answer JSON
//	deadline     sets and reloads that end at a time
//	reading      the daemon and its classes at one moment
//	meter        how fast each class is
//	keeper       what is in force; a reload, a confirm or a set changes it
//	regime       a policy file, and the sets over it
//	record       changes in the log
//	history      the latest changes
//	engine       puts a policy in force
//	fleets       the process as a member of the fleets whose budgets several processes share
//	shapers      the processes of a fleet
//	membership   what the process has of one class that is shared
//	names        the names of these, and the ledgers of what they have used
//	debts        what the state file keeps of these
//	budgets      what the classes keep over restarts, in the state file
//	kernelwatch  keeps the kernel equal to the policy
//	counters     what the classes have counted, in the proxy and in the kernel
//	kernel       puts a policy into the kernel
//	descriptors  warns of too few file descriptors
//	endpoint     an HTTP server on one listener
//	socket       the control socket: bind, take over from a dead daemon
//	peer         who asks on the control socket, and whether he may
//	unusable     addresses that cannot be bound, and files that cannot be used
//	store        where the store of a fleet is, and what its files hold
//	errors       the code of an error, for exit codes and HTTP
//	systemd      sockets from systemd, its notifications and its watchdog
//	memory       gives memory back to the system
package daemon
