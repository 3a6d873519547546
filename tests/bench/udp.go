package main

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	atOnce   = 64    // most datagrams that one call moves
	segments = 32    // datagrams in one send with UDP_SEGMENT
	mostLost = 0.001 // share of the datagrams that may be lost
)

// udpKinds find the highest rate that arrives without loss.
func udpKinds() []kind {
	k := kind{
		group: "udp",
		columns: []column{
			{name: "packets/s", format: "%.0f", ratio: true, plotted: true},
			{name: "CPU µs each", format: "%.2f", lower: true, ratio: true},
			{name: "load busy", format: "%.0f %%"},
		},
		ways:    []way{direct, nginx, shaper},
		setting: setting{protocol: "udp"},
		seconds: 2, // for each attempt
	}
	small, large, segmented := k, k, k
	small.name, small.label = "udp64", "64 bytes"
	small.measure = func(t *trial) ([]float64, error) { return highestRate(t, 64, 1) }
	large.name, large.label = "udp1200", "1,200 bytes"
	large.measure = func(t *trial) ([]float64, error) { return highestRate(t, 1200, 1) }
	segmented.name, segmented.label = "udpgso", "1,200 bytes, 32 in one send"
	segmented.measure = func(t *trial) ([]float64, error) { return highestRate(t, 1200, segments) }
	return []kind{small, large, segmented}
}

// highestRate doubles the rate until datagrams are lost, and then halves the interval until it
// is 3 %. A rate is too high if two attempts lose datagrams: other load may spoil one.
func highestRate(t *trial, size, perSend int) ([]float64, error) {
	p, err := newStream(t.port, size, perSend)
	if err != nil {
		return nil, err
	}
	defer p.close()
	var best attempt
	good, bad := 0., 0.
	for rate := 20_000.; bad == 0 || bad > 1.03*good; {
		length := t.length()
		if bad == 0 {
			length /= 4
		}
		s, err := p.try(t, rate, length)
		if err == nil && s.lossy() {
			s, err = p.try(t, rate, length)
		}
		if err != nil {
			return nil, err
		}
		switch {
		case s.lossy():
			bad = rate
		case s.sent < 0.95*rate*s.elapsed: // the source cannot send faster
			best, good, bad = s, rate, rate
		default:
			best, good = s, rate
		}
		if rate = 2 * good; bad > 0 {
			rate = (good + bad) / 2
		}
		if rate < 100 {
			return nil, errors.New("almost no datagrams arrive")
		}
	}
	return []float64{best.sent / best.elapsed, best.cpu * 1e6 / best.sent, 100 * best.load / best.elapsed}, nil
}

// attempt is the outcome of one rate, in datagrams and seconds.
type attempt struct{ sent, received, elapsed, cpu, load float64 }

func (s attempt) lossy() bool { return s.sent-s.received > mostLost*s.sent }

// stream sends datagrams from a source to a sink.
type stream struct {
	source, sink  int
	size, perSend int
	out, in       *batch
}

func newStream(port, size, perSend int) (*stream, error) {
	sink, err := bindUDP()
	if err != nil {
		return nil, err
	}
	source, err := connectUDP(port)
	if err == nil && perSend > 1 {
		err = unix.SetsockoptInt(source, unix.SOL_UDP, unix.UDP_SEGMENT, size)
	}
	if err != nil {
		unix.Close(sink)
		return nil, err
	}
	return &stream{
		source: source, sink: sink, size: size, perSend: perSend,
		out: newBatch(size * perSend), in: newBatch(1),
	}, nil
}

func connectUDP(port int) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	return fd, unix.Connect(fd, loopback(port))
}

// bindUDP returns the sink. Its receive buffer holds what arrives while it does not run.
// UDP_GRO lets it take datagrams together that a proxy sent together.
func bindUDP() (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	return fd, errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1),
		unix.Bind(fd, loopback(sinkPort)))
}

func (p *stream) close() {
	unix.Close(p.source)
	unix.Close(p.sink)
}

// try sends at a rate for length. It receives meanwhile, and afterwards until drain ends.
func (p *stream) try(t *trial, rate float64, length time.Duration) (s attempt, err error) {
	span := begin(t.proxy)
	for elapsed := 0.; elapsed < length.Seconds(); elapsed = time.Since(span.began).Seconds() {
		behind := int((rate*elapsed - s.sent) / float64(p.perSend))
		sent, err := p.send(behind)
		if err != nil {
			return s, err
		}
		received, err := p.receive()
		if err != nil {
			return s, err
		}
		s.sent += sent
		s.received += received
		if sent+received == 0 {
			nap(20 * time.Microsecond)
		}
	}
	s.elapsed, s.cpu, s.load = span.end()
	return s, p.drain(&s)
}

// drain receives until all datagrams have arrived, or none arrives for 100 ms.
func (p *stream) drain(s *attempt) error {
	for last := time.Now(); s.received < s.sent && time.Since(last) < 100*time.Millisecond; {
		received, err := p.receive()
		if err != nil {
			return err
		}
		if s.received += received; received > 0 {
			last = time.Now()
		} else {
			nap(time.Millisecond)
		}
	}
	return nil
}

// send sends up to n pieces, but at most atOnce, and returns how many datagrams that were.
func (p *stream) send(n int) (float64, error) {
	if n < 1 {
		return 0, nil
	}
	n, err := p.out.call(unix.SYS_SENDMMSG, p.source, min(n, atOnce), 0)
	return float64(n * p.perSend), err
}

// receive takes the datagrams that have arrived, and returns how many they are. MSG_TRUNC makes
// the kernel discard them.
func (p *stream) receive() (float64, error) {
	n, err := p.in.call(unix.SYS_RECVMMSG, p.sink, atOnce, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
	bytes := 0
	for _, m := range p.in.messages[:n] {
		bytes += int(m.n)
	}
	return float64(bytes / p.size), err
}

// nap leaves the processor idle for d, or until a signal. A loop that polls would count as busy.
func nap(d time.Duration) {
	pause := unix.NsecToTimespec(int64(d))
	unix.Nanosleep(&pause, nil)
}

// batch holds the arguments of sendmmsg(2) or recvmmsg(2).
type batch struct {
	messages [atOnce]message
	iovecs   [atOnce]unix.Iovec
	bytes    []byte // the payload of every message
}

// message is struct mmsghdr of sendmmsg(2).
type message struct {
	header unix.Msghdr
	n      uint32
}

func newBatch(size int) *batch {
	b := &batch{bytes: make([]byte, size)}
	for i := range b.messages {
		b.iovecs[i].Base = &b.bytes[0]
		b.iovecs[i].SetLen(size)
		b.messages[i].header.Iov = &b.iovecs[i]
		b.messages[i].header.SetIovlen(1)
	}
	return b
}

// call returns how many messages it moved. It returns 0 without an error if none can be moved
// now, or if an earlier datagram met a closed port.
func (b *batch) call(number uintptr, fd, n, flags int) (int, error) {
	done, _, errno := unix.Syscall6(number, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[0])), uintptr(n), uintptr(flags), 0, 0)
	switch errno {
	case 0:
		return int(done), nil
	case unix.EINTR, unix.EAGAIN, unix.ECONNREFUSED:
		return 0, nil
	}
	return 0, errno
}
