// Command shaper is a traffic shaper: `shaper run` is the daemon, and the other commands
// check its policy file, simulate, or ask a running daemon.
//
// # Files
//
// A file calls only those below it.
//
//	main        runs a command line, and returns its exit code
//	zones       the time zones of systems that have none
//	args        puts flags where the command-line library looks for them, and knows where a shell completes files
//	app         the command line: its commands, and errors about them
//	serve       shaper run
//	welcome     what run says at the start: what listens where, and what to try
//	logwriter   a log that never delays sessions
//	check       shaper check
//	explain     shaper explain
//	status      shaper status
//	history     shaper history and diff
//	change      shaper reload, confirm and set
//	top         shaper top
//	classes     shaper classes
//	why         shaper why
//	sessions    shaper sessions, and sessions close
//	upstreams   shaper upstreams
//	fleet       shaper fleet
//	simulate    shaper simulate
//	comparison  two simulations side by side
//	shadow      shaper shadow
//	fmt         shaper fmt
//	schema      shaper schema
//	unified     what differs between two texts, as diff -u prints it
//	tc          shaper tc plan, apply, show and clear
//	nft         shaper nft plan, apply and clear
//	note        records what tc and nft have changed
//	completion  shaper completion, and what a shell asks for
//	man         shaper man
//	version     shaper version
//	ask         asks the daemon and prints its answer
//	watch       --watch: shows something again and again
//	config      finds the policy file and the daemon
//	columns     columns of a table, and --sort
//	table       prints tables and text as wide as the terminal
//	log         logs, for the journal and for people
//	terminal    how wide and high a terminal is
//	output      whether all was written
//	replace     writes files, whole or not at all
//	tree        classes in the order of a tree
//	format      how figures, times and JSON are printed
//	flags       flags and arguments that commands share
//	exit        errors, and their exit codes
package main
