package upstream

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"shaper/policy"
)

// ask checks a target, and returns why it is not well; nil if it is. A panic is a reason, too. An upstream of
// datagrams cannot be asked, so it counts as well: a session has to try it.
func (g *Group) ask(ctx context.Context, t *Target, terms policy.Health) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.Log.Error("check panicked", "upstream", t.entry.upstream, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("check panicked: %v", p)
		}
	}()
	if g.inForce().triesOnly() {
		return nil
	}
	c, err := g.Dial(ctx, t.entry.upstream, t.address.AddrPort)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	switch {
	case terms.HTTP != "":
		err = askHTTP(c, hostOf(g.inForce().conf, t), terms)
	case terms.SMPP:
		err = askSMPP(c)
	}
	if ctx.Err() != nil {
		return ErrTimeout
	}
	return err
}

// inForce returns the set that is in force.
func (g *Group) inForce() *Set {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.set
}

// triesOnly reports whether addresses cannot be checked, since they get datagrams. Only a session finds out whether one
// is well.
func (s *Set) triesOnly() bool { return s.conf.Protocol == policy.UDP }

// hostOf returns the field Host of requests to a target.
func hostOf(l *policy.Listener, t *Target) string {
	if host := l.HostFor(t.entry.upstream); host != "" {
		return host
	}
	if isService(t.entry.upstream) {
		return policy.ServerName(t.entry.upstream)
	}
	if _, isUnix := policy.UnixName(t.entry.upstream); isUnix {
		return "localhost" // as curl --unix-socket has it
	}
	return t.entry.upstream
}

// askHTTP sends a request. An answer of 2xx or 3xx is well.
func askHTTP(c net.Conn, host string, terms policy.Health) error {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: shaper-health\r\nConnection: close\r\n\r\n", terms.HTTP, host); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(io.LimitReader(c, maxHead)), nil)
	if err != nil {
		return badAnswer{terms, err}
	}
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		return badAnswer{terms, errors.New(answer.Status)}
	}
	return nil
}

// A badAnswer says what is wrong with an answer. An upstream may repeat in it what it was asked, so
// the text hides the query, also in the quotes in which net/http puts an answer.
type badAnswer struct {
	terms policy.Health
	err   error
}

func (b badAnswer) Error() string {
	shown := b.terms.ShownHTTP()
	quoted := strconv.Quote(b.terms.HTTP)
	quoted = quoted[1 : len(quoted)-1]
	return "GET " + shown + ": " + strings.NewReplacer(b.terms.HTTP, shown, quoted, shown).Replace(b.err.Error())
}

func (b badAnswer) Unwrap() error { return b.err }

// maxHead bounds the head of an answer.
const maxHead = 64 << 10

// askSMPP sends an enquire_link. A server may refuse it before a bind, so any response is well:
// somebody speaks SMPP there.
func askSMPP(c net.Conn) error {
	const headerLength, enquireLink, response, maxLength = 16, 0x15, 1 << 31, 128 << 10
	var header [headerLength]byte
	binary.BigEndian.PutUint32(header[0:], headerLength)
	binary.BigEndian.PutUint32(header[4:], enquireLink)
	binary.BigEndian.PutUint32(header[12:], 1) // its sequence_number
	if _, err := c.Write(header[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return fmt.Errorf("enquire_link: %w", err)
	}
	length, id := binary.BigEndian.Uint32(header[0:]), binary.BigEndian.Uint32(header[4:])
	if length < headerLength || length > maxLength || id&response == 0 {
		return fmt.Errorf("enquire_link: %x is no response", header)
	}
	return nil
}
