package tests

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaper/tests/trial"
)

// serve runs a TCP server until the test ends. It calls handle for each connection, and closes the
// connection when handle returns.
func serve(t *testing.T, handle func(*net.TCPConn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, handle)
	return l.Addr().String()
}

// serveOn is serve on a listener, which it closes at the end of the test.
func serveOn(t *testing.T, l net.Listener, handle func(*net.TCPConn)) {
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			}()
		}
	}()
}

// answerHash reads to a clean end, and answers with the SHA-256 of what it has read.
func answerHash(c *net.TCPConn) {
	h := sha256.New()
	if _, err := io.Copy(h, c); err == nil {
		c.Write(h.Sum(nil))
	}
}

// dial connects from an IP address ("": any). The connection is closed at the end of the test.
func dial(t *testing.T, from, to string) *net.TCPConn {
	t.Helper()
	c, err := dialFrom(from, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func dialFrom(from, to string) (*net.TCPConn, error) { return trial.DialTCP(from, to, patience) }

// lastPort is the port that freePort tried last.
var lastPort atomic.Int64

func init() { lastPort.Store(10_000 + rand.Int64N(10_000)) }

// freePort returns a TCP port of 127.0.0.1 on which nobody listens, for programs that cannot take
// port 0. It never returns a port twice. Its ports are below ip_local_port_range (32768 to 60999),
// so that no outgoing connection takes one before the program does.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		port := strconv.FormatInt(lastPort.Add(1), 10)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
		if lastPort.Load() > 30_000 {
			t.Fatal("there is no free port")
		}
	}
}

// flood writes pieces of n bytes until the connection fails.
func flood(c net.Conn, n int) {
	piece := make([]byte, n)
	for {
		if _, err := c.Write(piece); err != nil {
			return
		}
	}
}

// noise returns n random bytes that depend on seed only. They do not repeat, so comparing them
// shows every error in their order.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// arrival is a number of bytes that reached a socket.
type arrival struct {
	at time.Time // by the kernel's timestamp
	n  int
}

// recorder notes what arrives, with the kernel's receive timestamps, which do not depend on when
// the test runs. Over TCP, an arrival is all that one read returns, at the timestamp of its last
// segment.
type recorder struct {
	mu       sync.Mutex // guards arrivals
	arrivals []arrival
}

// recordTCP returns a recorder of TCP connections, and the address on which it listens.
func recordTCP(t *testing.T) (*recorder, string) {
	r := &recorder{}
	return r, serve(t, func(c *net.TCPConn) { r.read(c) })
}

// recordUDP returns a recorder of datagrams, and the address on which it listens.
func recordUDP(t *testing.T) (*recorder, string) {
	t.Helper()
	c, err := listenUDP("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r := &recorder{}
	go r.read(c)
	return r, c.LocalAddr().String()
}

func listenUDP(host string) (*net.UDPConn, error) {
	return net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host)})
}

// dialUDP returns a UDP socket that is connected to an address until the test ends.
func dialUDP(t *testing.T, to string) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// pace sends datagrams of size bytes at a rate, until the socket is closed. If it is late, it
// catches up. It returns how many datagrams it has sent.
func pace(c net.Conn, size int, perSecond float64) (sent int) {
	piece := make([]byte, size)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		for ; float64(sent) < time.Since(began).Seconds()*perSecond; sent++ {
			if _, err := c.Write(piece); err != nil {
				return sent
			}
		}
	}
}

// read notes what arrives until c ends, and copies it to the writers also.
func (r *recorder) read(c syscall.Conn, also ...io.Writer) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	buf, control := make([]byte, 1<<20), make([]byte, 128)
	for open := true; open; {
		err := raw.Read(func(fd uintptr) bool {
			n, m, _, _, err := unix.Recvmsg(int(fd), buf, control, unix.MSG_DONTWAIT)
			if err == unix.EAGAIN || err == unix.EINTR {
				return false
			}
			open = err == nil && n > 0
			if open {
				r.note(arrival{trial.Timestamp(control[:m]), n})
				for _, w := range also {
					w.Write(buf[:n])
				}
			}
			return true
		})
		open = open && err == nil
	}
}

func (r *recorder) note(a arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrivals = append(r.arrivals, a)
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrivals = nil
}

func (r *recorder) all() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrivals[:len(r.arrivals):len(r.arrivals)]
}

// total returns the bytes that have arrived.
func (r *recorder) total() (n int) {
	for _, a := range r.all() {
		n += a.n
	}
	return n
}

// between returns the bytes that have arrived after from, up to and including to.
func (r *recorder) between(from, to time.Time) (n int) {
	for _, a := range r.all() {
		if a.at.After(from) && !a.at.After(to) {
			n += a.n
		}
	}
	return n
}

// excess returns the largest number of bytes by which any window exceeds what its rates allow. A
// token bucket promises that this is at most its burst.
func (r *recorder) excess(allowed allowance) (most float64) {
	sum, least := 0., 0.
	for _, a := range r.all() {
		sum += float64(a.n)
		above := sum - allowed.until(a.at)
		most = max(most, above-least)
		least = min(least, above)
	}
	return most
}

// allowance is the history of a limit's rate: each rate holds until the next begins.
type allowance []rateFrom

// rateFrom is a rate, and the moment at which it begins.
type rateFrom struct {
	at        time.Time
	perSecond float64
}

// changed returns the allowance with another rate, which a command set that ran from began to done.
// While the command ran, the higher of the two rates counts.
func (p allowance) changed(began, done time.Time, perSecond float64) allowance {
	if perSecond > p[len(p)-1].perSecond {
		done = began
	}
	return append(p, rateFrom{done, perSecond})
}

// until returns how many bytes are allowed from the first moment to at.
func (p allowance) until(at time.Time) (sum float64) {
	for i, r := range p {
		until := at
		if i+1 < len(p) && p[i+1].at.Before(at) {
			until = p[i+1].at
		}
		sum += r.perSecond * max(0, until.Sub(r.at).Seconds())
	}
	return sum
}

// gaps returns the times between arrivals.
func (r *recorder) gaps() (gaps []time.Duration) {
	all := r.all()
	for i := 1; i < len(all); i++ {
		gaps = append(gaps, all[i].at.Sub(all[i-1].at))
	}
	return gaps
}

// attempts counts attempts and collects their errors.
type attempts struct {
	done atomic.Int64
	mu   sync.Mutex // guards errs
	errs []error
}

// add counts an attempt; err is nil if it succeeded.
func (y *attempts) add(err error) {
	y.done.Add(1)
	if err != nil {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.errs = append(y.errs, err)
	}
}

// check fails the test if an attempt failed. All calls of add must have returned.
func (y *attempts) check(t *testing.T, what string) {
	t.Helper()
	for i, err := range y.errs {
		if i == 5 {
			break
		}
		t.Errorf("%s: %v", what, err)
	}
	if len(y.errs) > 0 {
		t.Errorf("%s: %d of %d failed", what, len(y.errs), y.done.Load())
	}
}
