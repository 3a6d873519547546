package tests

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/tests/trial"
)

// A leaky class of a low rate has no bursts, even with GSO on. In the busiest 10 ms it sends what
// the rate allows, its burst of two frames, and the packet that it has begun. That is one frame
// in TBF. In HTB it is two frames, because shaper limits gso_max_size; without that it would be
// 64 KiB.
//
// The test omits the first second, in which each class of a tree spends a burst of its own. It does so
// again if the machine stands still for as long as these bursts take to come back. With them it sends
// less than twice of what is allowed without.
func TestKernelLeakyHasNoBursts(t *testing.T) {
	t.Parallel()
	tool(t, "tc", "iproute2")
	for s, begun := range map[*shape]int{&shapes[0]: 1514, &shapes[2]: 2 * 1514} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			near, far := wire(t)
			near.run("ip addr add %s/64 dev wire nodad", nearEnd6)
			far.run("ip addr add %s/64 dev wire nodad", farEnd6)
			near.mustTC(policyFile(t, s.policy("1mbit")), "apply")
			frames, watch := far.capture(t), trial.Begin()
			stop := offer(t, near, far, s.overTCP(), 1, 10*time.Second)
			trial.Await(t, "frames have come for 4 s", func() bool { return frames.span() >= 4*time.Second })
			stop()
			mean := 1e6 / 8 / 100.
			first, busiest := frames.busiest(0, 10*time.Millisecond), frames.busiest(time.Second, 10*time.Millisecond)
			t.Logf("busiest 10 ms: %d bytes, %.1f times the mean; in the first second %.1f times", busiest, float64(busiest)/mean, float64(first)/mean)
			allowed := 2*1514 + 1250 + begun
			watch.Judge(t, 10*time.Millisecond, trial.Most(busiest, allowed, 2*allowed,
				"%d bytes in 10 ms, want at most %d; the longest time between two frames is %v", busiest, allowed, frames.longestPause()))
		})
	}
}

// frames holds the frames that have arrived over a wire: when, and how many bytes.
type frames struct {
	mu  sync.Mutex // guards all
	all []arrival
}

// capture records the frames that arrive over the wire until the test ends.
func (n *namespace) capture(t *testing.T) *frames {
	t.Helper()
	f := &frames{}
	n.do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.ETH_P_ALL<<8)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), "packet")
		t.Cleanup(func() { file.Close() })
		go f.read(file)
		return nil
	})
	return f
}

// read records frames until the socket is closed.
func (f *frames) read(file *os.File) {
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	b, control := make([]byte, 1<<17), make([]byte, 256)
	for {
		var size, n int
		var from unix.Sockaddr
		var failed error
		if err := raw.Read(func(fd uintptr) bool {
			size, n, _, from, failed = unix.Recvmsg(int(fd), b, control, 0)
			return failed != unix.EAGAIN
		}); err != nil || failed != nil {
			return
		}
		if to, ok := from.(*unix.SockaddrLinklayer); ok && to.Pkttype != unix.PACKET_OUTGOING {
			f.mu.Lock()
			f.all = append(f.all, arrival{trial.Timestamp(control[:n]), size})
			f.mu.Unlock()
		}
	}
}

// span returns the time from the first frame to the last.
func (f *frames) span() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == 0 {
		return 0
	}
	return f.all[len(f.all)-1].at.Sub(f.all[0].at)
}

// longestPause returns the longest time between two frames.
func (f *frames) longestPause() (longest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(f.all); i++ {
		longest = max(longest, f.all[i].at.Sub(f.all[i-1].at))
	}
	return longest
}

// busiest returns the most bytes in any span. It omits the frames that arrived less than after
// after the first one.
func (f *frames) busiest(after, span time.Duration) (most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(f.all), func(a arrival) bool { return a.at.Sub(f.all[0].at) < after })
	sum, first := 0, 0
	for _, a := range all {
		sum += a.n
		for a.at.Sub(all[first].at) >= span {
			sum -= all[first].n
			first++
		}
		most = max(most, sum)
	}
	return most
}
