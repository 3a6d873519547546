package fleet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Config says where the store is.
type Config struct {
	// Addresses are host:port. Several are a cluster, or with Sentinel the sentinels.
	Addresses []string
	// Sentinel is the name of the master that the sentinels watch; "": there are none.
	Sentinel string
	// Username and Password are for the servers.
	Username string
	Password string
	// SentinelUsername and SentinelPassword are for the sentinels, which have users of their own. Without a password they
	// are asked without.
	SentinelUsername string
	SentinelPassword string
	TLS              *tls.Config `json:"-"` // nil: no TLS. It is for both
	Prefix           string      // of all keys
	// Deadline is how long a call may take; 0 is 50 ms.
	Deadline time.Duration
}

// A Store sends calls to the server that has the class. Members of many classes may share one, and it has
// at most maxConns connections at once. A call that fails closes the connections, and the next call
// connects again, to whatever server is the master then. If the server has closed a connection that was idle, the call
// itself goes again, once: it has a number. Nothing else is repeated. A Store is safe for concurrent use.
type Store struct {
	conf atomic.Pointer[Config]
	room chan struct{} // holds a token for each call on its way

	// mu guards the fields below.
	mu      sync.Mutex
	idle    []*conn
	where   map[string]string // where the cluster says that classes are
	members int
}

// maxConns is how many calls may be on their way at once. More connections are no faster: the server
// runs one script at a time.
const maxConns = 4

// NewStore returns a Store that has not connected yet.
func NewStore(conf Config) (*Store, error) {
	if len(conf.Addresses) == 0 {
		return nil, errors.New("fleet: a store needs an address")
	}
	if conf.Deadline == 0 {
		conf.Deadline = defaultDeadline
	}
	s := &Store{room: make(chan struct{}, maxConns), where: map[string]string{}}
	s.conf.Store(&conf)
	return s, nil
}

// Reach makes the calls that connect from now on use another user, password and TLS. All else of a Config stays.
func (s *Store) Reach(as Config) {
	conf := *s.conf.Load()
	conf.Username, conf.Password, conf.TLS = as.Username, as.Password, as.TLS
	conf.SentinelUsername, conf.SentinelPassword = as.SentinelUsername, as.SentinelPassword
	s.conf.Store(&conf)
}

// Close closes the connections that no call uses. A later call connects again.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *Store) drop() {
	for _, c := range s.idle {
		c.Close()
	}
	s.idle = nil
}

// use counts a member that shares the Store.
func (s *Store) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members++
}

// leave ends what use began. With the last member the connections go.
func (s *Store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members--; s.members == 0 {
		s.drop()
	}
}

// patientTakes is how many deadlines a Ping and a Leave may take. Nothing waits for them, and they may have to connect: that takes
// several round trips.
const patientTakes = 5

// Do sends a call and returns the answer. It takes at most the deadline, a Ping or a Leave patientTakes of them. An error
// means that the call may have been carried out or not.
func (s *Store) Do(ctx context.Context, c *Call) (Reply, error) {
	conf := s.conf.Load()
	limit := conf.Deadline
	if c.Op == Ping || c.Op == Leave {
		limit *= patientTakes
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var r Reply
	var at string
	begun := time.Now()
	err := s.on(ctx, c.Class.Name, func(conn *conn) (err error) {
		at = conn.addr
		r, err = conn.do(ctx, conf.Prefix, c)
		return err
	})
	if err == nil && c.Op == Ping && time.Since(begun) > conf.Deadline/4 {
		err = s.fill(ctx, at)
	}
	if err != nil {
		return r, fmt.Errorf("fleet: %s: %w", c.Op, err)
	}
	return r, nil
}

// fill opens all the connections that there may be to a server, at once. It is for a server so far away that
// no other call has the time to open one.
func (s *Store) fill(ctx context.Context, addr string) error {
	s.mu.Lock()
	missing := max(maxConns-len(s.idle)-len(s.room), 0) // calls on their way have connections
	s.mu.Unlock()
	opened := make(chan error, maxConns)
	for range missing {
		go func() { opened <- s.open(ctx, addr) }()
	}
	var err error
	for range missing {
		err = cmp.Or(err, <-opened)
	}
	return err
}

// open opens a connection that the next call may use.
func (s *Store) open(ctx context.Context, addr string) error {
	conf := s.conf.Load()
	conn, err := s.dial(ctx, addr, conf.Username, conf.Password)
	if err != nil {
		return err
	}
	if err := conn.look(ctx); err != nil {
		conn.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == maxConns {
		return conn.Close()
	}
	s.idle = append(s.idle, conn)
	return nil
}

// Peers returns the members of a class, as the server knows them. It takes at most the deadline, and
// changes nothing there.
func (s *Store) Peers(ctx context.Context, class string) (all []Peer, err error) {
	conf := s.conf.Load()
	ctx, cancel := context.WithTimeout(ctx, conf.Deadline)
	defer cancel()
	err = s.on(ctx, class, func(conn *conn) (err error) {
		all, err = conn.peers(ctx, conf.Prefix, class)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("fleet: members: %w", err)
	}
	return all, nil
}

// on calls a function with a connection to the server of a class.
func (s *Store) on(ctx context.Context, class string, do func(*conn) error) (err error) {
	select {
	case s.room <- struct{}{}:
		defer func() { <-s.room }()
	case <-ctx.Done():
		return fmt.Errorf("%d other calls are on their way: %w", maxConns, ctx.Err())
	}
	err = s.try(ctx, class, do)
	if errors.As(err, new(*staleError)) {
		s.Close() // where the class is remains known: else another server of a cluster would be asked
		err = s.try(ctx, class, do)
	}
	if to, ok := movedTo(err); ok { // a slot of the cluster is elsewhere: nothing was carried out
		s.move(class, to)
		err = s.try(ctx, class, do)
	}
	if err != nil {
		s.forget(class)
	}
	return err
}

// try calls a function with a connection, and keeps that if there was no error, and if there is room.
func (s *Store) try(ctx context.Context, class string, do func(*conn) error) error {
	conn, err := s.conn(ctx, class)
	if err != nil {
		return err
	}
	err = do(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && len(s.idle) < maxConns: // fill may have opened others meanwhile
		s.idle = append(s.idle, conn)
		return nil
	case conn.wasIdle && isClosed(err):
		err = &staleError{err}
	}
	conn.Close()
	return err
}

// A staleError says that a connection is closed that was idle before the call. Servers with a timeout close such connections, and so
// does what stands between. Whether the call has reached the server is not known.
type staleError struct{ error }

func (e *staleError) Unwrap() error { return e.error }

// isClosed reports whether a call has failed because the connection is closed.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// conn returns a connection to the server of a class.
func (s *Store) conn(ctx context.Context, class string) (*conn, error) {
	s.mu.Lock()
	at := s.where[class]
	for i, c := range slices.Backward(s.idle) {
		if at == "" || at == c.addr {
			s.idle = slices.Delete(s.idle, i, i+1)
			s.mu.Unlock()
			c.wasIdle = true
			return c, nil
		}
	}
	if len(s.idle) >= maxConns { // all to other servers of the cluster
		s.idle[0].Close()
		s.idle = slices.Delete(s.idle, 0, 1)
	}
	s.mu.Unlock()
	if at == "" {
		return s.search(ctx)
	}
	conf := s.conf.Load()
	return s.dial(ctx, at, conf.Username, conf.Password)
}

// move notes where the cluster says that a class is.
func (s *Store) move(class, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.where[class] = to
}

// forget drops all that is known of the servers, since a call has failed.
func (s *Store) forget(class string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.where, class)
	s.drop()
}

// dial connects to a server.
func (s *Store) dial(ctx context.Context, addr, user, password string) (*conn, error) {
	conf := s.conf.Load()
	remaining := conf.Deadline
	if until, ok := ctx.Deadline(); ok {
		remaining = max(time.Until(until), time.Millisecond)
	}
	options := []redis.DialOption{
		redis.DialUsername(user), redis.DialPassword(password),
		redis.DialConnectTimeout(remaining), redis.DialReadTimeout(remaining), redis.DialWriteTimeout(remaining),
	}
	if conf.TLS != nil {
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(conf.TLS), redis.DialTLSHandshakeTimeout(remaining))
	}
	c, err := redis.DialContext(ctx, "tcp", addr, options...)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, addr: addr, deadline: conf.Deadline, isNode: len(conf.Addresses) > 1 && conf.Sentinel == ""}, nil
}

// search connects to a server: to what a sentinel says, or to one of the addresses.
func (s *Store) search(ctx context.Context) (*conn, error) {
	conf := s.conf.Load()
	if conf.Sentinel == "" {
		return firstOf(conf.Addresses, func(addr string) (*conn, error) { return s.dial(ctx, addr, conf.Username, conf.Password) })
	}
	at, err := firstOf(conf.Addresses, func(sentinel string) (string, error) { return s.find(ctx, sentinel) })
	if err != nil {
		return nil, err
	}
	return s.dial(ctx, at, conf.Username, conf.Password)
}

// firstOf returns what a function returns for one of several addresses, by chance. While nobody is there, it goes on with the next:
// that costs no time, and what a server has to say is not lost.
func firstOf[T any](addrs []string, reach func(addr string) (T, error)) (found T, err error) {
	for _, i := range rand.Perm(len(addrs)) {
		if found, err = reach(addrs[i]); !isAbsent(err) {
			break
		}
	}
	return found, err
}

// isAbsent reports whether a call has failed because nobody is at an address. A server that does not answer in time may be there, and
// leaves no time for another one.
func isAbsent(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && e.Op == "dial" && !e.Timeout()
}

// find returns what a sentinel says of the address of the master.
func (s *Store) find(ctx context.Context, addr string) (string, error) {
	conf := s.conf.Load()
	at, err := s.ask(ctx, addr)
	switch {
	case err == nil:
		return at, nil
	case !errors.As(err, new(redis.Error)): // it has refused nothing
		return "", fmt.Errorf("asking the sentinel %s: %w", addr, err)
	case conf.SentinelPassword == "":
		return "", fmt.Errorf("asking the sentinel %s without a password: %w", addr, err)
	}
	return "", fmt.Errorf("asking the sentinel %s with the password for sentinels: %w", addr, err)
}

// ask asks a sentinel for the address of the master.
func (s *Store) ask(ctx context.Context, sentinel string) (string, error) {
	conf := s.conf.Load()
	conn, err := s.dial(ctx, sentinel, conf.SentinelUsername, conf.SentinelPassword)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	at, err := redis.Strings(redis.DoContext(conn.Conn, ctx, "SENTINEL", "get-master-addr-by-name", conf.Sentinel))
	switch {
	case errors.Is(err, redis.ErrNil):
		return "", fmt.Errorf("it knows no master %q", conf.Sentinel)
	case err != nil:
		return "", err
	case len(at) != 2:
		return "", fmt.Errorf("it answers %q", at)
	}
	return net.JoinHostPort(at[0], at[1]), nil
}

// movedTo returns where a cluster says that the keys are: "MOVED 1234 host:port". While they are on
// their way, it says ASK or TRYAGAIN; these are errors like others, and soon over.
func movedTo(err error) (addr string, ok bool) {
	var e redis.Error
	if !errors.As(err, &e) {
		return "", false
	}
	f := strings.Fields(string(e))
	if len(f) != 3 || f[0] != "MOVED" {
		return "", false
	}
	return f[2], true
}
