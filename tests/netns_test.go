package tests

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace that nothing else is in. It is that of one
// thread, and goes away with it and the sockets that were made in it: at the
// end of the test, or of the process.
type namespace struct {
	t    *testing.T
	path string // in /proc
	work chan func()
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t, work: make(chan func())}
	entered := make(chan error)
	go n.live(entered)
	t.Cleanup(func() { close(n.work) })
	if err := <-entered; err != nil {
		missing(t, "a network namespace of its own, which takes root: %v", err)
	}
	return n
}

// live does what is asked for, inside. Its thread is never unlocked, so it ends
// with it. The first thread of a process does not, and its namespace is the one
// of /proc/net, so that one waits for another.
func (n *namespace) live(entered chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.live(entered)
		}()
		<-done
		return
	}
	n.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	entered <- unix.Unshare(unix.CLONE_NEWNET)
	for f := range n.work {
		f()
	}
}

// do does something inside that has to succeed: sockets and commands stay where
// they were made.
func (n *namespace) do(f func() error) {
	n.t.Helper()
	done := make(chan error)
	n.work <- func() { done <- f() }
	if err := <-done; err != nil {
		n.t.Fatal(err)
	}
}

// run runs a command inside; its arguments have no spaces.
func (n *namespace) run(format string, args ...any) {
	n.t.Helper()
	line := fmt.Sprintf(format, args...)
	n.do(func() error {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
		return nil
	})
}

// Addresses of the two ends of a wire.
const (
	nearEnd = "192.0.2.1"
	farEnd  = "192.0.2.2"
)

// wire returns two namespaces that are joined by a veth pair, "wire" in each. No
// traffic leaves them.
func wire(t *testing.T) (near, far *namespace) {
	t.Helper()
	tool(t, "ip", "iproute2")
	near, far = newNamespace(t), newNamespace(t)
	near.run("ip link add wire type veth peer name wire netns %s", far.path)
	for n, addr := range map[*namespace]string{near: nearEnd, far: farEnd} {
		n.run("ip addr add %s/30 dev wire", addr)
		n.run("ip link set wire up")
	}
	return near, far
}

// record returns a recorder of datagrams, and the address inside that it
// listens on.
func (n *namespace) record(t *testing.T, host string) (r *recorder, addr string) {
	t.Helper()
	r = &recorder{}
	n.do(func() error {
		c, err := listenUDP(host)
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		addr = c.LocalAddr().String()
		go r.read(c)
		return nil
	})
	return r, addr
}

// dialUDP returns a socket inside. Where the root qdisc has a class of the
// number that priority is, it takes what comes from there (tc-htb(8)).
func (n *namespace) dialUDP(t *testing.T, to string, priority int) (c net.Conn) {
	t.Helper()
	n.do(func() (err error) {
		d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
			if e := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, priority)
			}); e != nil {
				return e
			}
			return err
		}}
		c, err = d.Dial("udp", to)
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}
