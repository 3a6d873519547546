package tc

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch calls changed with the name of a device of interest when its link, qdiscs, classes
// or filters may have changed, whoever has changed them. It calls changed("") at first, and
// whenever notifications are lost: then any device may have changed. It returns nil when ctx
// ends, or an error of the socket. It calls interest and changed on the caller's goroutine.
func Watch(ctx context.Context, interest func(device string) bool, changed func(device string)) error {
	f, err := subscribe()
	if err != nil {
		return refused("watch", "", "links and qdiscs", err)
	}
	return WatchOn(ctx, f, interest, changed)
}

// WatchOn is Watch on a feed, which it closes.
func WatchOn(ctx context.Context, f Feed, interest func(device string) bool, changed func(device string)) error {
	stop := context.AfterFunc(ctx, f.Close)
	defer func() {
		if stop() {
			f.Close()
		}
	}()
	changed("") // something may have changed before the socket was open
	for {
		messages, err := f.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			changed("")
			continue
		case err != nil:
			return refused("watch", "", "links and qdiscs", err)
		}
		for _, m := range messages {
			if name := deviceOf(f, m.Header.Type, m.Data); interest(name) {
				changed(name)
			}
		}
	}
}

// deviceOf returns the name of the device that a notification is about; "" if the device is
// gone or the notification is of another kind.
func deviceOf(f Feed, typ uint16, data []byte) string {
	switch typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		info := nl.DeserializeIfInfomsg(data)
		return parseAttrs(data[info.Len():]).text(unix.IFLA_IFNAME)
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER:
		return f.NameOf(uint32(nl.DeserializeTcMsg(data).Ifindex))
	}
	return ""
}
