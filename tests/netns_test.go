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

// namespace is a network namespace of its own. It belongs to one thread, which runs what is sent to
// work. The kernel removes it once the thread and all sockets made in it are gone: at the end of
// the test.
type namespace struct {
	t    *testing.T
	path string // /proc/PID/task/TID/ns/net of the thread
	work chan func()
}

// newNamespace makes a namespace that lasts until the test ends. Without root it ends the test with
// skipUnlessCI.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{t: t, work: make(chan func())}
	entered := make(chan error)
	go n.live(entered)
	t.Cleanup(func() { close(n.work) })
	if err := <-entered; err != nil {
		skipUnlessCI(t, "the test needs root, to make a network namespace: %v", err)
	}
	return n
}

// live makes the namespace and runs the functions of work in it. It does not unlock its thread, so
// that the thread ends with the goroutine.
//
// The first thread of a process cannot end, and /proc/net shows its namespace. If live runs on that
// thread, it starts another goroutine and waits for it.
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

// do runs f in the namespace, and fails the test if f returns an error. Sockets and processes
// that f makes stay in the namespace.
func (n *namespace) do(f func() error) {
	n.t.Helper()
	done := make(chan error)
	n.work <- func() { done <- f() }
	if err := <-done; err != nil {
		n.t.Fatal(err)
	}
}

// run runs a command in the namespace. Spaces separate its arguments.
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

// wire returns two namespaces that a veth pair connects. Its device is called "wire" in both.
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

// record returns a recorder of datagrams that listens in the namespace, and its address.
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

// dialUDP returns a UDP socket in the namespace. If the root qdisc has a class whose number is
// priority, the socket's datagrams go to that class (tc-htb(8)).
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
