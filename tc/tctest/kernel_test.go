package tctest

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The kernel in memory gives the answers of Linux. A test in tests/ sends the same requests
// to the kernel of the machine.
func TestCases(t *testing.T) {
	k := New("eth0")
	l, err := k.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range Cases() {
		if _, err := k.Execute(c.Request(l.Attrs().Index)); !is(err, c.Want) {
			t.Errorf("%d: %v: error %v, want %v", i, c, err, c.Want)
		}
	}
}

// is reports whether an error is the one wanted; 0 is no error.
func is(err error, want syscall.Errno) bool {
	if want == 0 {
		return err == nil
	}
	return errors.Is(err, want)
}

// A feed delivers each change, reports if it had no room for some, and ends when it is
// closed.
func TestFeed(t *testing.T) {
	k := New("eth0")
	f := k.Subscribe(2)
	index := k.Plug("eth1", "veth")
	if all, err := f.Receive(); err != nil || len(all) != 1 || all[0].Header.Type != unix.RTM_NEWLINK || f.NameOf(uint32(index)) != "eth1" {
		t.Errorf("%v, %v", all, err)
	}
	for range 3 {
		k.Unplug("eth1")
		k.Plug("eth1", "veth")
	}
	if _, err := f.Receive(); err != unix.ENOBUFS {
		t.Errorf("%v", err)
	}
	if all, err := f.Receive(); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	f.Close()
	if _, err := f.Receive(); err != ErrClosed {
		t.Errorf("%v", err)
	}
	k.Unplug("eth1") // no feed is there
}

// Between gets every request; those that it does not pass on are not carried out.
func TestBetween(t *testing.T) {
	k := New("eth0")
	var seen []uint16
	k.Between = func(r Request, do func() error) error {
		seen = append(seen, r.Type)
		if r.IsChange() {
			return unix.EPERM
		}
		return do()
	}
	l := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb0"}}
	if err := k.LinkAdd(l); err != unix.EPERM {
		t.Errorf("%v", err)
	}
	if _, err := k.LinkByName("ifb0"); !errors.As(err, new(netlink.LinkNotFoundError)) || err.Error() != "Link ifb0 not found" {
		t.Errorf("%v", err)
	}
	for _, c := range Cases()[:2] {
		if _, err := k.Execute(c.Request(2)); !is(err, unix.EPERM) {
			t.Errorf("%v", err)
		}
	}
	if !slices.Equal(seen, []uint16{unix.RTM_NEWLINK, unix.RTM_GETLINK, unix.RTM_DELQDISC, unix.RTM_DELQDISC}) {
		t.Errorf("%v", seen)
	}
}

// Requests about links are refused as by Linux.
func TestLinks(t *testing.T) {
	k := New()
	k.Lacks = map[string]bool{"ifb": true}
	l := &netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb0"}}
	if err := k.LinkAdd(l); !is(err, unix.EOPNOTSUPP) {
		t.Errorf("%v", err)
	}
	k.Lacks = nil
	if err := errors.Join(k.LinkAdd(l), k.LinkSetUp(l), k.LinkSetGSOMaxSize(l, 9000)); err != nil {
		t.Error(err)
	}
	if got, err := k.LinkByName("ifb0"); err != nil || got.Attrs().GSOIPv4MaxSize != 9000 || got.Attrs().Flags&net.FlagUp == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := k.LinkAdd(l); err != unix.EEXIST {
		t.Errorf("%v", err)
	}
	if err := k.LinkDel(l); err != nil {
		t.Error(err)
	}
	if err := k.LinkDel(l); err != unix.ENODEV {
		t.Errorf("%v", err)
	}
}
