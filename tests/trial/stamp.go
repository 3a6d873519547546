package trial

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// Timestamp returns the kernel's timestamp (SO_TIMESTAMPNS) in the control messages of recvmsg(2). It
// is the present time if there is none: the first bytes may have arrived before the option was set.
func Timestamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			order := binary.NativeEndian
			return time.Unix(int64(order.Uint64(m.Data)), int64(order.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}
