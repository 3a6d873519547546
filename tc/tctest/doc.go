// Package tctest provides a kernel in memory, for tests of package tc and of its users. Such
// tests need neither root nor a kernel with the kinds under test.
//
// The kernel keeps devices, qdiscs, classes and filters, and speaks the wire format of
// netlink. It refuses what Linux refuses, with the same error. A test uses [Kernel.Between]
// to change things behind the caller's back, to lose answers, or to let a process die. The
// kernel knows the kinds htb, tbf, pfifo, bfifo, fq_codel, sfq, ingress and clsact; u32,
// flower, bpf and mirred. It moves no packets. TestKernelIsAsTheFake compares it with the
// kernel of the machine.
//
// Files call downwards only:
//
//	cases     requests and the answers to them, for this kernel and the machine's
//	kernel    Kernel: takes a request, makes a change or returns a dump
//	link      adds, changes, deletes and lists devices
//	qdisc     adds, changes, deletes and lists qdiscs
//	class     the same for classes of HTB
//	filter    the same for filters, and which of them lead nowhere
//	u32       the same for the filters and tables of u32
//	feed      Feed: notifications of changes
//	block     the filters of a qdisc, in lists and tables
//	device    a device with its qdiscs and classes
//	request   a request, its checks, and the lock around its answer
//	wire      attributes, messages and counters as the kernel sends them
package tctest
