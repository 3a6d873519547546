package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Config says where the store is.
type Config struct {
	// Addresses are host:port. Several are a cluster, or with Sentinel the sentinels.
	Addresses []string
	// Sentinel is the name of the master that the sentinels watch; "": there are none.
	Sentinel string
	Username string
	Password string
	TLS      *tls.Config // nil: no TLS
	Prefix   string      // of all keys
	// Deadline is how long a call may take; 0 is 50 ms.
	Deadline time.Duration
}

const defaultDeadline = 50 * time.Millisecond

// A Store sends the calls of one class to the server that has it. It repeats nothing by itself: a
// call that fails closes the connection, and the next call connects again, to whatever server is
// the master then. A Store is safe for concurrent use; calls go one after the other.
type Store struct {
	conf   Config
	script *redis.Script

	// mu guards the fields below.
	mu       sync.Mutex
	conn     redis.Conn // nil: not connected
	id       string     // of the server process
	replicas int        // that it had at refreshed
	refresh  time.Time  // when to look again
	moved    string     // where the cluster says that the class is
}

// NewStore returns a Store that has not connected yet.
func NewStore(conf Config) (*Store, error) {
	if len(conf.Addresses) == 0 {
		return nil, errors.New("fleet: a store needs an address")
	}
	if conf.Deadline == 0 {
		conf.Deadline = defaultDeadline
	}
	return &Store{conf: conf, script: redis.NewScript(scriptKeys, reserve)}, nil
}

// Close closes the connection. A later call connects again.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *Store) drop() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// Do sends a call and returns the answer. It takes at most the deadline. An error means that the call
// may have been carried out or not.
func (s *Store) Do(ctx context.Context, c *Call) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.conf.Deadline)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.do(ctx, c)
	if to, ok := movedTo(err); ok { // a slot of the cluster is elsewhere: nothing was carried out
		s.drop()
		s.moved = to
		r, err = s.do(ctx, c)
	}
	if err != nil {
		s.drop()
		s.moved = ""
		return Reply{}, fmt.Errorf("fleet: %s: %w", c.Op, err)
	}
	return r, nil
}

func (s *Store) do(ctx context.Context, c *Call) (Reply, error) {
	if s.conn == nil {
		if err := s.connect(ctx); err != nil {
			return Reply{}, err
		}
	}
	if time.Now().After(s.refresh) {
		if err := s.look(ctx); err != nil {
			return Reply{}, err
		}
	}
	if c.Op == Ping {
		_, err := redis.DoContext(s.conn, ctx, "PING")
		return Reply{}, err
	}
	n, err := redis.Int64s(s.script.DoContext(ctx, s.conn, scriptArgs(s.conf.Prefix, s.id, c)...))
	if err != nil {
		return Reply{}, err
	}
	r, err := replyOf(n)
	if err == nil && r.Units > 0 && s.replicas > 0 {
		err = s.wait(ctx)
	}
	return r, err
}

// wait returns when a replica has what was granted, so that a fail-over does not lose it.
func (s *Store) wait(ctx context.Context) error {
	have, err := redis.Int(redis.DoContext(s.conn, ctx, "WAIT", 1, s.conf.Deadline.Milliseconds()))
	if err == nil && have == 0 {
		return errors.New("no replica has acknowledged the grant in time")
	}
	return err
}

// connect finds the server and connects to it.
func (s *Store) connect(ctx context.Context) error {
	addr, err := s.find(ctx)
	if err != nil {
		return err
	}
	if s.conn, err = s.dial(ctx, addr, s.conf.Username, s.conf.Password); err != nil {
		return err
	}
	return s.look(ctx)
}

func (s *Store) dial(ctx context.Context, addr, user, password string) (redis.Conn, error) {
	options := []redis.DialOption{redis.DialConnectTimeout(s.conf.Deadline), redis.DialUsername(user), redis.DialPassword(password)}
	if s.conf.TLS != nil {
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(s.conf.TLS), redis.DialTLSHandshakeTimeout(s.conf.Deadline))
	}
	options = append(options, redis.DialReadTimeout(s.conf.Deadline), redis.DialWriteTimeout(s.conf.Deadline))
	return redis.DialContext(ctx, "tcp", addr, options...)
}

// find returns the address of the server: the one of the cluster that was named last, what a sentinel
// says, or one of the addresses.
func (s *Store) find(ctx context.Context) (string, error) {
	if s.moved != "" {
		return s.moved, nil
	}
	addr := s.conf.Addresses[rand.IntN(len(s.conf.Addresses))]
	if s.conf.Sentinel == "" {
		return addr, nil
	}
	conn, err := s.dial(ctx, addr, "", "")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	at, err := redis.Strings(redis.DoContext(conn, ctx, "SENTINEL", "get-master-addr-by-name", s.conf.Sentinel))
	if err != nil {
		return "", fmt.Errorf("asking the sentinel %s: %w", addr, err)
	}
	if len(at) != 2 {
		return "", fmt.Errorf("the sentinel %s knows no master %q", addr, s.conf.Sentinel)
	}
	return at[0] + ":" + at[1], nil
}

// lookEvery is how often a Store asks how many replicas there are.
const lookEvery = 10 * time.Second

// look learns which process the server is, and how many replicas it has. A connection belongs to one
// process, whatever role that takes: so run_id tells a promoted replica from the master before it,
// even on a connection that is older than its promotion.
func (s *Store) look(ctx context.Context) error {
	info, err := redis.String(redis.DoContext(s.conn, ctx, "INFO"))
	if err != nil {
		return err
	}
	s.id, s.replicas = "", 0
	for line := range strings.Lines(info) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key {
		case "run_id":
			s.id = value
		case "connected_slaves":
			s.replicas, _ = strconv.Atoi(value)
		}
	}
	if s.id == "" {
		return errors.New("INFO names no run_id")
	}
	s.refresh = time.Now().Add(lookEvery)
	return nil
}

// movedTo returns where a cluster says that the keys are: "MOVED 1234 host:port". While they are on
// their way, it says ASK or TRYAGAIN; these are errors like others, and soon over.
func movedTo(err error) (addr string, ok bool) {
	var e redis.Error
	if !errors.As(err, &e) {
		return "", false
	}
	f := strings.Fields(string(e))
	return f[len(f)-1], len(f) == 3 && f[0] == "MOVED"
}
