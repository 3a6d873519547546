// Package tctest has a kernel in memory, for tests of package tc and of what uses it:
// without root, and without a kernel that has what is tested.
//
// It keeps devices, qdiscs, classes and filters, and it speaks the kernel's wire format.
// What the kernel refuses, it refuses with the same error; where others change things,
// answers get lost or a process dies, is for [Kernel.Between] to say. It knows the kinds
// htb, tbf, pfifo, bfifo, fq_codel, sfq, ingress and clsact; u32, flower, bpf and mirred.
// It moves no packets. Test TestKernelIsAsTheFake holds it against the kernel of the
// machine.
//
// Files call downwards only:
//
//	cases     requests with the answers of a kernel, for it and for the machine's
//	kernel    Kernel: a request comes in, a change or a dump comes out
//	link      devices are made, set and deleted
//	qdisc     qdiscs are made, changed, deleted and listed
//	class     the same for classes of HTB
//	filter    the same for filters, and which of them lead nowhere
//	u32       the same for the filters and tables of u32
//	feed      Feed: notifications of changes
//	block     the filters of a qdisc, in lists and tables
//	device    a device with its qdiscs and classes
//	request   a request, its checks, and the lock around its answer
//	wire      attributes, messages and counters as the kernel sends them
package tctest
