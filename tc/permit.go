package tc

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNotPermitted is the cause of an error if the process may not change the network.
var ErrNotPermitted = errors.New("the capability CAP_NET_ADMIN is missing; run it as root, " +
	"or as a service with AmbientCapabilities=CAP_NET_ADMIN, as the unit in systemd/ has, " +
	"or give it to the program: setcap cap_net_admin+ep shaper")

// Permitted returns an error if the process may not change the network.
func Permitted() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("shaper tc: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return fmt.Errorf("shaper tc: %w", ErrNotPermitted)
	}
	return nil
}
