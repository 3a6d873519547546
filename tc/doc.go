// Package tc puts a policy into the kernel: the tree of classes of a section
// [tc.DEVICE] as qdiscs and classes, its rules as filters.
//
// [Plan] computes what the kernel should have, as a list of objects; it uses no kernel.
// [Kernel] reads what the kernel has, and makes it equal to a plan by the smallest change
// in place. The kernel counts the bytes of packets, and not only the payload as the proxy does: each
// segment counts from its Ethernet header on.
//
// Files call downwards only. Those of the plan:
//
//	plan      Plan: a section of the policy as objects
//	tree      the qdiscs, classes and filters of one device
//	list      a list of u32 filters, hashed into tables if it is long
//
// Those of the kernel:
//
//	print     Preview: the changes as commands of tc(8)
//	show      Show and Count: what the kernel has, with the names of classes
//	watch     Watch: notifications of changes that others make
//	probe     Device and Kinds: what a plan must know of a device and of the kernel
//	apply     Apply and Clear: compares, changes, compares again, undoes
//	diff      the changes from a snapshot to a plan, in their order
//	lists     the same for lists of filters: a new list is made beside the old one
//	op        one change, and the differ, which collects the changes of diff and lists
//	read      a snapshot: those objects in the kernel that shaper has made
//	link      devices: the ifb for ingress, the size of large packets; Sweep deletes ifbs of devices that are gone
//
// Those of the objects, each with its parameters on the wire and as words of tc(8):
//
//	flower    filters of kind flower
//	filter    rules as u32 filters, and the preferences of lists of filters
//	u32       filters and tables of kind u32
//	mark      the filter that finds the class by the mark that the proxy gives to packets
//	class     HTB classes
//	qdisc     HTB, TBF and the queues
//	bucket    the depth of token buckets in ticks
//
// The ground:
//
//	kernel    Kernel, Error, links and dumps
//	message   a message of a dump, and the counters in it
//	conn      the interfaces to a kernel, and the netlink sockets behind them
//	permit    whether the process may change the network
//	object    Object, Handle and other names
//	wire      attributes of messages
package tc
