package conn

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
	"shaper/upstream"
)

// Server runs the listeners of one policy after another. It owns every goroutine that it
// starts; Shutdown waits for all of them.
//
// Locks are taken in the order of these lines. Of each line, a goroutine holds one at most:
//
//	routing.mu
//	a tcpSession's
//	an association's, foreign's for sharing
//	mu
//	the registry's
//	a udpSocket's, foreign's, relayAt's, a group's of upstreams, a tunnel's, a class tree's
//	a gate's
//	a poller's
type Server struct {
	// Set by NewServer, and read by all.
	shaper       *shaper.Shaper
	log          *slog.Logger
	inherited    Inherited
	network      sock.Network
	pollers      []*sock.Poller
	pipes        sock.Pipes                                                                      // for the relay of bytes
	names        *upstream.Names                                                                 // the addresses of upstreams that are names
	connectFrom  func(ctx context.Context, from sock.Local, to netip.AddrPort) (net.Conn, error) // for checks
	ctx          context.Context                                                                 // ends when all sessions have ended; for lookups and checks
	cancel       context.CancelFunc                                                              // ends ctx
	udpUpstreams gate                                                                            // bounds the sockets of UDP sessions, associations and foreign

	// Safe for concurrent use.
	wg       sync.WaitGroup // the janitor, pollers, read loops, what sessions have started
	lastID   atomic.Uint64  // of a session
	marks    marks
	foreign  foreign
	relayAt  relayAddrs
	routing  routing
	sessions registry
	stopping atomic.Bool // Shutdown has begun; it is set with mu held
	drains   atomic.Bool // it lets open sessions go on, so those that can end well do
	failing  ratelimit   // of errors of accept: they mostly have one cause for all listeners

	// mu guards all that follows.
	mu       sync.Mutex
	bound    map[address]bound
	ports    ownPorts               // of bound
	closing  map[address]*udpSocket // closed for new sessions; open sessions may still use them
	services map[string]*service    // by name of the listener
	retired  map[string]*service    // of removed listeners that still have sessions
	past     stats.Carried          // by the listeners that were removed and have no session any more
	probe    *tcpSocket             // see Probe; nil until its first call
}

// NewServer returns a server without listeners. Shutdown ends it. inherited may be nil.
// NewServer fails if the process has no descriptor free.
func NewServer(sh *shaper.Shaper, inherited Inherited, log *slog.Logger) (*Server, error) {
	return newServer(sh, inherited, log, sock.Kernel{})
}

// newServer is NewServer over any network.
func newServer(sh *shaper.Shaper, inherited Inherited, log *slog.Logger, network sock.Network) (*Server, error) {
	pollers, err := network.NewPollers()
	if err != nil {
		return nil, err
	}
	s := &Server{
		shaper:      sh,
		log:         log,
		inherited:   inherited,
		bound:       map[address]bound{},
		closing:     map[address]*udpSocket{},
		services:    map[string]*service{},
		retired:     map[string]*service{},
		pipes:       network.NewPipes(),
		network:     network,
		connectFrom: connectFrom,
		pollers:     pollers,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.routing.routes = &routes{classifier: policy.Compile(&policy.Policy{})}
	s.sessions.init()
	s.udpUpstreams.setMax(sock.Descriptors() / 2)
	s.names = upstream.NewNames(upstream.System().Lookup, log)
	s.wg.Go((&janitor{server: s}).run)
	for _, p := range pollers {
		s.wg.Go(p.Run)
	}
	return s, nil
}

// Listeners returns the counters of all listeners, sorted by name. Neither it nor the addresses of one are
// ever nil: in JSON they are lists, which may be empty.
func (s *Server) Listeners() []stats.ListenerReading {
	s.mu.Lock()
	defer s.mu.Unlock()
	addresses := map[*service][]string{}
	for _, b := range s.bound {
		sv := b.leadsTo()
		addresses[sv] = append(addresses[sv], b.local().String())
	}
	all := []stats.ListenerReading{}
	for _, name := range slices.Sorted(maps.Keys(s.services)) {
		sv := s.services[name]
		one := sv.stats.Read()
		terms := sv.terms.Load()
		addReasons(&one, terms.Protocol)
		if conf := terms.datagrams(); conf.Mode.IsEntry() && conf.Protocol == policy.UDP {
			addStrays(&one)
		}
		one.UpstreamFailures = sv.stats.Failed.Read(terms.leads.Upstreams())
		one.Upstreams = terms.leads.Read(time.Now())
		one.Name, one.Protocol = name, string(terms.Protocol)
		one.Addresses = append([]string{}, addresses[sv]...)
		slices.Sort(one.Addresses)
		all = append(all, one)
	}
	return all
}

// Carried returns what the sessions of all listeners have carried, also of those that a reload has removed.
func (s *Server) Carried() stats.Carried {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.past
	for _, services := range [...]map[string]*service{s.services, s.retired} {
		for _, sv := range services {
			all.Add(&sv.stats)
		}
	}
	return all
}

// Upstreams returns each address of the upstreams of all listeners, sorted by the listener.
func (s *Server) Upstreams() (all []stats.UpstreamReading) {
	for _, l := range s.Listeners() {
		all = append(all, l.Upstreams...)
	}
	return all
}

// addStrays completes a reading of an entry with datagrams: Stray has an entry for every reason,
// even if it is 0.
func addStrays(l *stats.ListenerReading) {
	counts := make(map[string]uint64)
	for _, reason := range stats.Strays {
		counts[reason] = l.Stray[reason]
	}
	l.Stray = counts
}

// addReasons completes a reading: Unframed has an entry for every reason, even if it is 0.
func addReasons(l *stats.ListenerReading, p policy.Protocol) {
	if !p.HasMessages() {
		return
	}
	counts := make(map[string]uint64)
	for reason := range frame.Reasons() {
		counts[reason.String()] = l.Unframed[reason.String()]
	}
	l.Unframed = counts
}

// Shutdown stops accepting, lets open sessions go on until ctx ends, resets those that
// remain, and waits for every goroutine of the server. It returns how many sessions it
// reset. Until ctx ends, the janitor ends idle sessions of messages. Shutdown may be called again,
// for example with a context that ends sooner.
func (s *Server) Shutdown(ctx context.Context) (reset int) {
	s.mu.Lock()
	s.drains.Store(ctx.Err() == nil)
	s.stopping.Store(true)
	s.sessions.close()
	for at, b := range s.bound {
		b.close()
		delete(s.bound, at)
	}
	s.ports = nil
	if s.probe != nil {
		s.probe.close()
	}
	s.mu.Unlock()

	counted := make(chan int, 1)
	stop := context.AfterFunc(ctx, func() { counted <- s.resetAll() })
	s.sessions.await()
	if !stop() {
		reset = <-counted
	}
	s.cancel()
	s.names.Close()
	for _, p := range s.pollers {
		p.Close()
	}
	s.wg.Wait()
	s.pipes.Close()
	return reset
}

// resetAll resets the open sessions, and the tunnels that still send for ended ones. It returns how
// many these were. The youngest session goes first: otherwise each permit that becomes free would
// start a session that waits for one.
func (s *Server) resetAll() (n int) {
	s.drains.Store(false)
	for _, one := range slices.Backward(s.sessions.all()) {
		if one.abort(stats.Drained) {
			n++
		}
	}
	for _, tn := range s.sessions.openTunnels() {
		if tn.abort() { // its session has ended, but its last bytes have not departed
			n++
		}
	}
	return n
}
