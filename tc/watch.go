package tc

import (
	"context"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch calls changed when something may have changed on a device of interest: its
// link, or what is queued there, by whomever. It returns when ctx ends, or on an error
// of the socket. Where the kernel had more to say than the socket could hold, whatever
// it was has been missed, and every device may have changed: changed gets "".
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
	changed("") // what has happened before the socket was there
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

// deviceOf returns the device that a notification is about; "" if it is none of those
// that are there, or of another kind.
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
