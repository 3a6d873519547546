package conn

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"shaper/frame"
	"shaper/sock"
	"shaper/stats"
)

// side is one of the two connections of a session: our end of it, and the events that the
// poller has told of. The lock of the session guards it.
type side struct {
	session *tcpSession // never changes
	end     sock.End    // noEnd if there is none, or if it is closed
	key     uint64      // by which the poller knows the end; 0: it does not watch it
	sock.State
}

// noEnd is a closed end.
var noEnd sock.End = sock.NoSocket()

// watch lets the poller tell the session of events on the end.
func (s *side) watch() (err error) {
	s.key, err = s.session.poller.Watch(s.end, sock.All, s)
	return err
}

// isWatched reports whether the side has an end that the poller watches: an attempt is under way, or
// a connection is open.
func (s *side) isWatched() bool { return s.key != 0 }

// Ready implements sock.Watcher.
func (s *side) Ready(key uint64, events sock.Events) {
	s.session.do(func(t *tcpSession) {
		if s.key == key { // otherwise the end was closed meanwhile
			s.Note(events)
			t.driver.changed(s)
		}
	})
}

// close closes the end. What has been written still arrives.
func (s *side) close() { s.forget().Close() }

// reset closes the end with a reset, so that the peer sees no clean end. What has been written
// but has not arrived is discarded.
func (s *side) reset() { s.forget().Reset() }

// release returns the end, which the poller no longer watches, and leaves the side without one.
func (s *side) release() sock.End {
	if s.key != 0 {
		s.session.poller.Remove(s.end)
	}
	return s.forget()
}

// forget leaves the side without an end, and returns the old one.
func (s *side) forget() sock.End {
	if s.key != 0 {
		s.session.poller.Forget(s.key)
	}
	end := s.end
	s.end, s.key, s.State = noEnd, 0, sock.State{}
	return end
}

// connected returns the error of an attempt to connect that has ended.
func (s *side) connected() error {
	if !s.Ends {
		return nil
	}
	return os.NewSyscallError("connect", s.end.Failure())
}

// reason returns why the end is down, after a read or a write has failed with err. Only the
// end itself knows why TLS was cut. If the upstream has gone silent, reason counts that.
func (s *side) reason(err error) error {
	if failure := s.end.Failure(); failure != nil {
		err = failure
	}
	if t := s.session; s == &t.upstream && err == unix.ETIMEDOUT {
		t.course.target().Failed(time.Now(), err)
	}
	return err
}

// resultOf returns how a session ends if an end is down for this reason.
func resultOf(err error) stats.Result {
	var tls *tunnelFailure
	switch {
	case errors.As(err, new(*frame.Error)): // see oneMessage
		return stats.Unframed
	case errors.As(err, &tls):
		return tls.result
	case err == unix.ETIMEDOUT: // see setUserTimeout
		return stats.TimedOut
	}
	return stats.ResetByPeer
}

// kernelGivesUp is about when Linux gives up on unacknowledged data (tcp_retries2 in
// ip-sysctl.rst).
const kernelGivesUp = 15 * time.Minute

// setUserTimeout makes the kernel give up on a dead peer within the idle timeout, if that is
// sooner than it would by itself.
func (s *side) setUserTimeout(idle time.Duration) {
	if idle > 0 && idle < kernelGivesUp {
		s.end.Set(sock.UserTimeout, int(max(idle.Milliseconds(), 1)))
	}
}

// vanishedAfter is how long a peer may be silent that is asked whether it is there.
const vanishedAfter = 3 * time.Minute

// keepAlive makes the kernel ask a peer that has nothing to say whether it is there. If it has
// vanished, its connection is down after the idle timeout, or after vanishedAfter if that is shorter.
func (s *side) keepAlive(idle time.Duration) {
	silence := min(idle, vanishedAfter)
	pause := max(int(silence/(3*time.Second)), 1) // two questions may be lost
	s.end.Set(sock.KeepIdle, pause)
	s.end.Set(sock.KeepInterval, pause)
	s.setUserTimeout(silence)
	s.end.Set(sock.KeepAlive, 1)
}

// name names the peer, for people.
func (s *side) name() string {
	if s == &s.session.client {
		return "the client"
	}
	return fmt.Sprintf("upstream %s", s.session.upstreamName())
}

// unframed counts and logs that the peer has sent what is no message.
func (s *side) unframed(err error) {
	t, from := s.session, "upstream"
	if s == &t.client {
		from = "client"
	}
	var wrong *frame.Error
	if errors.As(err, &wrong) {
		t.service.stats.Unframed.Add(wrong.Reason.String())
	}
	t.warn(unframed, "from", from, "err", err)
}

// finish implements part: it closes the end if the session has ended well, and otherwise
// resets it.
func (s *side) finish(result stats.Result) {
	if result == stats.OK {
		s.close()
	} else {
		s.reset()
	}
}
