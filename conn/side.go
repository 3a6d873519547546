package conn

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"shaper/sock"
	"shaper/stats"
)

// side is one of the two connections of a session: our end of it, and what the poller has
// told of that. The lock of the session guards it.
type side struct {
	session *tcpSession // never changes
	end     sock.End    // noEnd: there is none, or it is closed
	key     uint64      // of the poller; 0: it is not watched
	sock.State
}

// noEnd is an end that is closed.
var noEnd sock.End = sock.NoSocket()

// watch lets the poller tell the session of the events of the end.
func (s *side) watch() (err error) {
	s.key, err = s.session.poller.Watch(s.end, sock.All, s)
	return err
}

// Ready implements sock.Watcher.
func (s *side) Ready(key uint64, events sock.Events) {
	s.session.do(func(t *tcpSession) {
		if s.key == key { // else the end has been closed meanwhile
			s.Note(events)
			t.driver.changed(s)
		}
	})
}

// close closes the end. What has been written still arrives.
func (s *side) close() { s.forget().Close() }

// reset closes the end with a reset: the peer sees that it did not end cleanly. What has
// been written and has not arrived is discarded.
func (s *side) reset() { s.forget().Reset() }

// release gives the end away, which is not watched any more.
func (s *side) release() sock.End {
	if s.key != 0 {
		s.session.poller.Remove(s.end)
	}
	return s.forget()
}

// forget leaves the side without an end, and returns the one that it had.
func (s *side) forget() sock.End {
	if s.key != 0 {
		s.session.poller.Forget(s.key)
	}
	end := s.end
	s.end, s.key, s.State = noEnd, 0, sock.State{}
	return end
}

// connected returns how an attempt to connect has come to an end.
func (s *side) connected() error {
	if !s.Ends {
		return nil
	}
	return os.NewSyscallError("connect", s.end.Failure())
}

// reason returns why the end is down, of which an error of a read or a write is what came of
// it. That of TLS is known to the tunnel only.
func (s *side) reason(err error) error {
	if failure := s.end.Failure(); failure != nil {
		return failure
	}
	return err
}

// resultOf tells from the reason for which an end is down how a session ended.
func resultOf(err error) stats.Result {
	var tls *tunnelFailure
	switch {
	case errors.As(err, &tls):
		return tls.result
	case err == unix.ETIMEDOUT: // see setUserTimeout
		return stats.TimedOut
	}
	return stats.ResetByPeer
}

// kernelGivesUp is about when Linux gives up on data that nobody acknowledges
// (tcp_retries2 in ip-sysctl.rst).
const kernelGivesUp = 15 * time.Minute

// setUserTimeout lets the kernel give up on a dead peer within the idle timeout. By itself
// it would try for longer.
func (s *side) setUserTimeout(idle time.Duration) {
	if idle > 0 && idle < kernelGivesUp {
		s.end.Set(sock.UserTimeout, int(max(idle.Milliseconds(), 1)))
	}
}

// name says for people which of its peers a side of the session leads to.
func (s *side) name() string {
	if s == &s.session.client {
		return "the client"
	}
	return fmt.Sprintf("upstream %s", s.session.name)
}

// finish implements part: the end is clean only if that of the session is.
func (s *side) finish(result stats.Result) {
	if result == stats.OK {
		s.close()
	} else {
		s.reset()
	}
}
