package tc

import (
	"errors"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Conn is what [Kernel] needs of a kernel. [Open] connects to the kernel of the machine;
// package tctest provides one in memory. One goroutine at a time uses it, and Kernel.Close
// closes it.
type Conn interface {
	// Execute sends a request about qdiscs, classes or filters, and waits for the answer.
	// It returns the messages of the answer without their headers, or a syscall.Errno.
	Execute(*nl.NetlinkRequest) ([][]byte, error)

	// The methods of netlink.Handle.
	LinkByName(name string) (netlink.Link, error)
	LinkList() ([]netlink.Link, error)
	LinkAdd(netlink.Link) error
	LinkDel(netlink.Link) error
	LinkSetUp(netlink.Link) error
	LinkSetGSOMaxSize(l netlink.Link, size int) error
	LinkSetGSOIPv4MaxSize(l netlink.Link, size int) error

	Close()
}

// Feed delivers the notifications of a kernel about its changes.
type Feed interface {
	// Receive waits for notifications. It returns ENOBUFS if some are lost, and an error
	// after Close.
	Receive() ([]syscall.NetlinkMessage, error)
	// NameOf returns the name of a device; "" if there is none.
	NameOf(index uint32) string
	Close()
}

// sockets is the Conn to the kernel of the machine.
type sockets struct {
	*netlink.Handle
	requests map[int]*nl.SocketHandle
}

// The library makes the kernel's error messages part of its errors only if a variable says so.
func init() { nl.EnableErrorMessageReporting = true }

// dial connects to the kernel of the network namespace of the caller.
func dial() (*sockets, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	timeout := unix.NsecToTimeval(int64(patience))
	if err := errors.Join(s.SetExtAck(true), s.SetReceiveTimeout(&timeout)); err != nil {
		s.Close()
		return nil, err
	}
	links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		s.Close()
		return nil, err
	}
	return &sockets{links, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}, nil
}

// Execute implements Conn. It gives the kernel patience to answer.
func (s *sockets) Execute(r *nl.NetlinkRequest) ([][]byte, error) {
	r.Sockets = s.requests
	return r.Execute(unix.NETLINK_ROUTE, 0)
}

// Close implements Conn.
func (s *sockets) Close() {
	s.Handle.Close()
	for _, r := range s.requests {
		r.Close()
	}
}

// socketFeed is the Feed of the kernel of the machine.
type socketFeed struct{ *nl.NetlinkSocket }

// subscribe returns the notifications about links, qdiscs, classes and filters in the network
// namespace of the caller.
func subscribe() (Feed, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
	if err != nil {
		return nil, err
	}
	return socketFeed{s}, nil
}

// Receive implements Feed.
func (f socketFeed) Receive() ([]syscall.NetlinkMessage, error) {
	messages, _, err := f.NetlinkSocket.Receive()
	return messages, err
}

// NameOf implements Feed. It asks for the name of one device. Package net would ask for all devices, which is
// too much for each of thousands of notifications.
func (f socketFeed) NameOf(index uint32) string {
	r, err := unix.NewIfreq("")
	if err != nil {
		return ""
	}
	r.SetUint32(index)
	if unix.IoctlIfreq(f.GetFd(), unix.SIOCGIFNAME, r) != nil {
		return ""
	}
	return r.Name()
}
