package tests

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"shaper/tc/tctest"
)

// The kernel refuses the same requests as its fake in tctest, with the same errors. The tests of
// package tc rely on that.
func TestKernelIsAsTheFake(t *testing.T) {
	t.Parallel()
	near, _ := wire(t)
	near.do(func() error {
		l, err := netlink.LinkByName("wire")
		if err != nil {
			return err
		}
		s, err := nl.Subscribe(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer s.Close()
		for i, c := range tctest.Cases() {
			r := c.Request(l.Attrs().Index)
			r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
			_, err := r.Execute(unix.NETLINK_ROUTE, 0)
			if c.Want == 0 && err != nil || c.Want != 0 && !errors.Is(err, c.Want) {
				t.Errorf("case %d: %v: error %v, want %v", i, c, err, c.Want)
			}
		}
		return nil
	})
}
