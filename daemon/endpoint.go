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

// How much of an endpoint its clients may occupy, and for how long.
const (
	maxConnections = 64
	headerPatience = 5 * time.Second
	readPatience   = 10 * time.Second
	writePatience  = time.Minute
	stopPatience   = 5 * time.Second
)

// endpoint is an HTTP server on one listener: the control socket, or daemon.http. A
// change owns it: start and stop are not called at the same time.
type endpoint struct {
	name     string
	address  string // as in the policy
	listener net.Listener
	server   *http.Server
	log      *slog.Logger
	beside   func(context.Context) // runs from start to stop; nil: nothing does
	cancel   func()                // ends beside, and the contexts of all requests
	done     chan struct{}         // closed when Serve and beside have returned; nil: start has not been called
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

// isGone reports whether somebody has removed the file of the control socket.
func (e *endpoint) isGone() bool {
	s, ok := e.listener.(*controlSocket)
	return ok && s.file.IsGone()
}

// start serves in a goroutine of its own until stop.
func (e *endpoint) start() {
	e.done = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	e.server.BaseContext = func(net.Listener) context.Context { return ctx }
	var running sync.WaitGroup
	if e.beside != nil {
		running.Go(func() { e.beside(ctx) })
	}
	go func() {
		defer close(e.done)
		defer running.Wait()
		err := e.server.Serve(bounded(e.listener, maxConnections))
		if !errors.Is(err, http.ErrServerClosed) {
			e.log.Error("endpoint failed", "endpoint", e.name, "address", e.address, "err", err)
		}
	}()
}

// stop closes the listener, ends streams, waits for other requests under way for at most stopPatience, and returns
// when the server has ended. It also closes an endpoint that was never started.
func (e *endpoint) stop() {
	if e.done == nil {
		e.listener.Close()
		return
	}
	e.cancel() // ends streams
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if e.server.Shutdown(ctx) != nil {
		e.server.Close()
	}
	<-e.done
}

// boundedListener has at most so many connections open at once. More wait in the kernel.
type boundedListener struct {
	net.Listener
	taken  chan struct{} // one element for each open connection
	closed chan struct{}
	close  func()
}

// bounded returns l with at most so many open connections.
func bounded(l net.Listener, most int) *boundedListener {
	b := &boundedListener{Listener: l, taken: make(chan struct{}, most), closed: make(chan struct{})}
	b.close = sync.OnceFunc(func() { close(b.closed) })
	return b
}

// Accept implements net.Listener. It waits until a connection more may be open.
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

// Close implements net.Listener. It ends an Accept that waits.
func (b *boundedListener) Close() error {
	b.close()
	return b.Listener.Close()
}

// countedConn is an open connection of a boundedListener. Its first Close makes room.
type countedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
