package fleet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A conn is a connection to one server process, whatever role that takes. So its run_id tells a promoted replica
// from the master before it, even on a connection that is older than the promotion. It is not safe for
// concurrent use.
type conn struct {
	redis.Conn
	addr     string
	deadline time.Duration
	isNode   bool // it has to be that of a node of a cluster
	calls    int64
	wasIdle  bool // it was open before the call that uses it

	id       string    // of the process
	replicas int       // that had its data at the last look
	refresh  time.Time // when to look again
}

// The scripts are sent by their hashes, and in full if the server does not know them.
var script, lister = redis.NewScript(scriptKeys, reserve), redis.NewScript(peersKeys, peers)

// do sends a call and returns the answer.
func (c *conn) do(ctx context.Context, prefix string, call *Call) (r Reply, err error) {
	if time.Now().After(c.refresh) {
		if err := c.look(ctx); err != nil {
			return r, err
		}
	}
	c.calls++
	echo, r, err := readReply(script.DoContext(ctx, c.Conn, scriptArgs(prefix, c.id, c.calls, call)...))
	if err != nil {
		return r, err
	}
	// An answer that came twice would be taken for that of the next call.
	if echo != c.calls {
		return r, fmt.Errorf("call %d got the answer of call %d", c.calls, echo)
	}
	if c.replicas > 0 && (r.Units > 0 || call.Op == Ping) { // else a member comes back to a store whose grants it cannot use
		err = c.wait(ctx)
	}
	return r, err
}

// readReply reads what reserve.lua returns: the echo, and unless it answers a ping, numbers and a key.
func readReply(answer any, failed error) (echo int64, r Reply, err error) {
	fields, err := redis.Values(answer, failed)
	if err != nil || len(fields) == 0 {
		return 0, r, err
	}
	echo, err = redis.Int64(fields[0], nil)
	if err != nil || len(fields) == 1 {
		return echo, r, err
	}
	last := len(fields) - 1
	n, err := redis.Int64s(fields[1:last], nil)
	if err != nil {
		return echo, r, err
	}
	key, err := redis.String(fields[last], nil)
	if err != nil {
		return echo, r, err
	}
	r, err = replyOf(n, key)
	return echo, r, err
}

// peers returns the members of a class.
func (c *conn) peers(ctx context.Context, prefix, class string) ([]Peer, error) {
	c.calls++
	texts, err := redis.Strings(lister.DoContext(ctx, c.Conn, peersArgs(prefix, class, c.calls)...))
	if err != nil {
		return nil, err
	}
	if len(texts) == 0 || texts[0] != strconv.FormatInt(c.calls, 10) {
		return nil, fmt.Errorf("call %d got the answer of another one: %v", c.calls, texts)
	}
	return peersOf(texts[1:])
}

// wait returns when a replica has what was written, so that a fail-over does not lose it.
func (c *conn) wait(ctx context.Context) error {
	have, err := redis.Int(redis.DoContext(c.Conn, ctx, "WAIT", 1, c.deadline.Milliseconds()))
	if err == nil && have == 0 {
		return errors.New("no replica has acknowledged the write in time")
	}
	return err
}

// lookEvery is how often a conn asks how many replicas there are; while one gets its first copy, it asks after lookAgain.
const (
	lookEvery = 10 * time.Second
	lookAgain = time.Second
)

// look learns which process the server is, and how many replicas it has. It fails if the server is no node of a cluster and should be
// one: else each member would use another of several servers, and all together more than the limit.
func (c *conn) look(ctx context.Context) error {
	info, err := redis.String(redis.DoContext(c.Conn, ctx, "INFO"))
	if err != nil {
		return err
	}
	cluster := false
	c.id, c.replicas = "", 0
	c.refresh = time.Now().Add(lookEvery)
	for line := range strings.Lines(info) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key {
		case "run_id":
			c.id = value
		case "connected_slaves":
			connected, _ := strconv.Atoi(value)
			c.replicas += connected
		case "cluster_enabled":
			cluster = value == "1"
		default:
			if isCopying(key, value) {
				c.replicas--
				c.refresh = time.Now().Add(lookAgain)
			}
		}
	}
	if c.id == "" {
		return errors.New("INFO names no run_id")
	}
	if c.isNode && !cluster {
		return fmt.Errorf("%s is no node of a cluster, and several addresses without sentinel are those of a cluster", c.addr)
	}
	return nil
}

// isCopying reports whether a line of INFO says that a replica gets its first copy of the data. Until it has that, it
// acknowledges nothing, as if it were not connected.
func isCopying(key, value string) bool {
	_, state, _ := strings.Cut(value, ",state=")
	return strings.HasPrefix(key, "slave") && (strings.HasPrefix(state, "wait_bgsave") || strings.HasPrefix(state, "send_bulk"))
}
