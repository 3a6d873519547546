package tests

import (
	"crypto/sha256"
	"encoding/binary"
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

// serve runs an upstream until the test ends. Each connection is closed when
// its handler returns.
func serve(t *testing.T, handle func(*net.TCPConn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	return l.Addr().String()
}

// answerHash reads to the end of what comes, and answers its SHA-256.
func answerHash(c *net.TCPConn) {
	h := sha256.New()
	if _, err := io.Copy(h, c); err == nil { // else what came is not whole
		c.Write(h.Sum(nil))
	}
}

// dial connects from an address; "" for any. The test closes it, or its end does.
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

// lastPort is the one that freePort returned last.
var lastPort atomic.Int64

func init() { lastPort.Store(10_000 + rand.Int64N(10_000)) }

// freePort returns a port that nobody listens on, for programs that cannot choose one
// themselves. It returns none twice, and none of those that the kernel gives to sockets
// that connect (ip_local_port_range is 32768 to 60999), or it might be taken meanwhile.
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

// flood writes pieces of n bytes for as long as the connection takes them.
func flood(c net.Conn, n int) {
	piece := make([]byte, n)
	for {
		if _, err := c.Write(piece); err != nil {
			return
		}
	}
}

// noise returns bytes that do not repeat, so that any mistake in their order shows.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// arrival is bytes that reached a socket.
type arrival struct {
	at time.Time // by the kernel's timestamp
	n  int
}

// recorder notes what arrives, with the kernel's receive timestamps: they do
// not depend on when the test got to run. Over TCP, one read takes all that is
// there and has the timestamp of the last segment of it.
type recorder struct {
	mu       sync.Mutex
	arrivals []arrival
}

// recordTCP returns a recorder and the address that it listens on.
func recordTCP(t *testing.T) (*recorder, string) {
	r := &recorder{}
	return r, serve(t, func(c *net.TCPConn) { r.read(c) })
}

// recordUDP is recordTCP for datagrams.
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

// dialUDP returns a socket that sends to an address, until the test ends.
func dialUDP(t *testing.T, to string) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// pace sends datagrams of so many bytes, so many in a second, until the socket
// is closed. What it could not send in time it makes up for.
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

// read notes what arrives until the connection ends, and writes it to others.
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
				r.note(arrival{timestamp(control[:m]), n})
				for _, w := range also {
					w.Write(buf[:n])
				}
			}
			return true
		})
		open = open && err == nil
	}
}

// timestamp returns the one in the control messages of recvmsg (socket(7)).
func timestamp(control []byte) time.Time {
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
	return time.Now() // the first bytes may have come before they were stamped
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

// total returns how many bytes have arrived.
func (r *recorder) total() (n int) {
	for _, a := range r.all() {
		n += a.n
	}
	return n
}

// between returns how many bytes have arrived after one moment, up to another.
func (r *recorder) between(from, to time.Time) (n int) {
	for _, a := range r.all() {
		if a.at.After(from) && !a.at.After(to) {
			n += a.n
		}
	}
	return n
}

// excess returns by how much the fullest window is above what is allowed in it:
// what a token bucket promises to be its burst at most.
func (r *recorder) excess(allowed promise) (most float64) {
	sum, least := 0., 0.
	for _, a := range r.all() {
		sum += float64(a.n)
		above := sum - allowed.by(a.at)
		most = max(most, above-least)
		least = min(least, above)
	}
	return most
}

// promise is the rates of a limit, each from a moment on.
type promise []rateFrom

type rateFrom struct {
	at        time.Time
	perSecond float64
}

// then returns the promise with one rate more, that a command puts in force: the higher of
// the two rates counts while the command runs.
func (p promise) then(began, done time.Time, perSecond float64) promise {
	if perSecond > p[len(p)-1].perSecond {
		done = began
	}
	return append(p, rateFrom{done, perSecond})
}

// by returns how much is allowed from the first moment to another.
func (p promise) by(at time.Time) (sum float64) {
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

// tally counts what is asked for and what fails.
type tally struct {
	done atomic.Int64
	mu   sync.Mutex
	errs []error
}

func (y *tally) add(err error) {
	y.done.Add(1)
	if err != nil {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.errs = append(y.errs, err)
	}
}

// holds holds that nothing failed.
func (y *tally) holds(t *testing.T, what string) {
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
