package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of what one client may hold up.
const (
	maxConnections = 64
	headerPatience = 5 * time.Second
	readPatience   = 10 * time.Second
	writePatience  = time.Minute
	stopPatience   = 5 * time.Second
)

// endpoint is an HTTP server on one listener: the control socket, or metrics
// and health.
type endpoint struct {
	name     string
	address  string // as the policy has it
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
	done     chan struct{} // closed when Serve has returned; nil: it never began
}

func newEndpoint(name, address string, l net.Listener, h http.Handler, log *slog.Logger) *endpoint {
	e := &endpoint{name: name, address: address, listener: l, log: log}
	e.server = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerPatience,
		ReadTimeout:       readPatience,
		WriteTimeout:      writePatience,
		IdleTimeout:       readPatience,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	if s, ok := l.(*controlSocket); ok {
		e.server.ConnContext = s.identify
	}
	return e
}

// start serves in a goroutine of its own.
func (e *endpoint) start() {
	e.done = make(chan struct{})
	go func() {
		defer close(e.done)
		err := e.server.Serve(bounded(e.listener, maxConnections))
		if !errors.Is(err, http.ErrServerClosed) {
			e.log.Error("endpoint failed", "endpoint", e.name, "address", e.address, "err", err)
		}
	}()
}

// stop lets requests that are served end, for a while, and returns when the
// goroutines have ended. It also discards an endpoint that was never started.
func (e *endpoint) stop() {
	if e.done == nil {
		e.listener.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if e.server.Shutdown(ctx) != nil {
		e.server.Close()
	}
	<-e.done
}

// boundedListener accepts only so many connections at once; more wait in the
// kernel.
type boundedListener struct {
	net.Listener
	taken  chan struct{} // one element for each open connection
	closed chan struct{}
	close  func()
}

func bounded(l net.Listener, most int) *boundedListener {
	b := &boundedListener{Listener: l, taken: make(chan struct{}, most), closed: make(chan struct{})}
	b.close = sync.OnceFunc(func() { close(b.closed) })
	return b
}

func (b *boundedListener) Accept() (net.Conn, error) {
	select {
	case b.taken <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.taken
		return nil, err
	}
	return &countedConn{Conn: c, leave: sync.OnceFunc(func() { <-b.taken })}, nil
}

func (b *boundedListener) Close() error {
	b.close()
	return b.Listener.Close()
}

type countedConn struct {
	net.Conn
	leave func()
}

func (c *countedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
