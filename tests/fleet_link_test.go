package tests

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A storeLink is the link between a member and its store: a TCP proxy, which spoils answers.
type storeLink struct {
	addr   string
	target atomic.Value // string: the address of the store
	cut    atomic.Bool  // nothing passes, and nobody hears of that
	lose   atomic.Int64 // of 1000 answers
	double atomic.Int64
	delay  atomic.Int64  // of 1000 answers, by late
	late   time.Duration // how late these are

	mu    sync.Mutex
	conns []net.Conn
}

func newStoreLink(t *testing.T, target string) *storeLink {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &storeLink{addr: l.Addr().String(), late: 500 * time.Millisecond}
	s.target.Store(target)
	t.Cleanup(func() {
		l.Close()
		s.reset()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.keep(c)
			go s.serve(c)
		}
	}()
	return s
}

// to makes the link lead to another store, and ends its connections.
func (s *storeLink) to(target string) {
	s.target.Store(target)
	s.reset()
}

// heal ends a cut. What was on its way is lost with its connection.
func (s *storeLink) heal() {
	s.reset()
	s.cut.Store(false)
}

func (s *storeLink) keep(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
}

func (s *storeLink) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *storeLink) serve(c net.Conn) {
	defer c.Close()
	if s.cut.Load() {
		io.Copy(io.Discard, c)
		return
	}
	up, err := net.Dial("tcp", s.target.Load().(string))
	if err != nil {
		return
	}
	defer up.Close()
	s.keep(up)
	go func() {
		defer c.Close()
		answers := bufio.NewReader(up)
		for {
			answer, err := readAnswer(answers, nil)
			if err != nil {
				return
			}
			if s.chance(&s.delay) {
				time.Sleep(s.late)
			}
			if s.cut.Load() || s.chance(&s.lose) {
				continue
			}
			c.Write(answer)
			if s.chance(&s.double) {
				c.Write(answer)
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if !s.cut.Load() {
			up.Write(buf[:n])
		}
	}
}

func (s *storeLink) chance(of *atomic.Int64) bool { return rand.Int64N(1000) < of.Load() }

// readAnswer appends the next answer of a Redis to b.
func readAnswer(r *bufio.Reader, b []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	b = append(b, line...)
	n, _ := strconv.Atoi(string(line[1 : len(line)-2]))
	switch {
	case line[0] == '$' && n >= 0:
		body := make([]byte, n+2)
		if _, err = io.ReadFull(r, body); err != nil {
			return nil, err
		}
		b = append(b, body...)
	case line[0] == '*':
		for range n {
			if b, err = readAnswer(r, b); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}
