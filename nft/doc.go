// Package nft leads connections to the transparent listeners of a policy, by nftables and by a
// routing rule.
//
// [Of] computes what the kernel should have; it uses no kernel. [Plan.Apply] puts that there, in
// place of what an earlier plan has put there, and [Clear] removes it. All of it is one table,
// "inet shaper", and for each family one routing rule and one route in a table of routes of its own.
//
// Files call downwards only:
//
//	kernel       Apply and Clear
//	print        a plan as a shell script
//	plan         Of: a policy as chains of rules
//	destination  which destinations a rule is for
//	statement    what a rule does, in words and for the kernel
//	set          the set of special addresses
//	route        the routing of packets that tproxy has marked
//	refused      what the kernel has refused
package nft
