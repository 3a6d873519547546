package conn

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"shaper/frame"
	"shaper/policy"
	"shaper/shaper"
	"shaper/sock"
	"shaper/stats"
)

// Server runs the listeners of one policy after another. It owns every
// goroutine it starts; Shutdown awaits them all.
type Server struct {
	shaper    *shaper.Shaper
	log       *slog.Logger
	inherited Inherited
	wg        sync.WaitGroup // accept loops, read loops, pollers, what sessions have started
	network   sock.Network
	pollers   []*sock.Poller
	// lookup returns the addresses of an upstream; replaced by tests.
	lookup func(ctx context.Context, upstream string) ([]netip.AddrPort, error)

	// routes is what classifies. It is locked for reading while a session is
	// put into its classes, so that none is classified by rules that Commit
	// has just replaced.
	routesMu sync.RWMutex
	routes   *routes
	shadow   *shadow // a policy that gets copies; nil: there is none. See Shadow
	marks    marks

	lastID atomic.Uint64 // of a session

	mu       sync.Mutex
	bound    map[address]bound
	leaving  map[address]*udpSocket // closed for new sessions, and perhaps still open
	services map[string]*service
	retired  map[string]*service // of listeners that are gone, with the sessions that they have still
	sessions map[uint64]session
	tunnels  map[*tunnel]bool
	stopping bool
	idle     *sync.Cond // of mu: the last session has ended, or the last tunnel

	pipes        sock.Pipes // for bytes in flight
	udpUpstreams gate       // bounds the sockets of sessions of datagrams

	probe *tcpSocket // see Probe; nil until then

	ctx    context.Context // ends when all sessions have: for what they have started
	cancel context.CancelFunc
}

// service is a listener of the policy: what its sockets lead to. It lives as
// long as its name does.
type service struct {
	terms atomic.Pointer[terms]
	stats stats.Listener
	class *shaper.Class // of every session, whatever the rules say; nil but for Probe
	gate  gate          // bounds the sessions
	names resolver

	faults [numFaults]ratelimit // of sessions, in the log
}

// NewServer returns a server without listeners. Shutdown ends it. inherited
// may be nil. Its error is that of a kernel that has no descriptors left.
func NewServer(sh *shaper.Shaper, inherited Inherited, log *slog.Logger) (*Server, error) {
	return newServer(sh, inherited, log, sock.Kernel{})
}

// newServer is NewServer on a network.
func newServer(sh *shaper.Shaper, inherited Inherited, log *slog.Logger, network sock.Network) (*Server, error) {
	pollers, err := network.NewPollers()
	if err != nil {
		return nil, err
	}
	s := &Server{
		shaper:    sh,
		log:       log,
		inherited: inherited,
		routes:    &routes{classifier: policy.Compile(&policy.Policy{})},
		bound:     map[address]bound{},
		leaving:   map[address]*udpSocket{},
		services:  map[string]*service{},
		retired:   map[string]*service{},
		sessions:  map[uint64]session{},
		tunnels:   map[*tunnel]bool{},
		pipes:     network.NewPipes(),
		network:   network,
		pollers:   pollers,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.idle = sync.NewCond(&s.mu)
	s.udpUpstreams.setMax(sock.Descriptors() / 2)
	s.lookup = lookup
	s.wg.Go(s.janitor)
	for _, p := range pollers {
		s.wg.Go(p.Run)
	}
	return s, nil
}

// Listeners returns what the counters of each listener read, by name.
func (s *Server) Listeners() []stats.ListenerReading {
	s.mu.Lock()
	defer s.mu.Unlock()
	addresses := map[*service][]string{}
	for _, b := range s.bound {
		sv := b.leadsTo()
		addresses[sv] = append(addresses[sv], b.local().addr.String())
	}
	var all []stats.ListenerReading
	for _, name := range slices.Sorted(maps.Keys(s.services)) {
		sv := s.services[name]
		one := sv.stats.Read()
		terms := sv.terms.Load()
		addReasons(&one, terms.Protocol)
		if terms.Protocol != policy.UDP { // which takes the first, and never learns whether it is there
			one.UpstreamFailures = sv.stats.Failed.Read(terms.Upstream)
		}
		one.Name, one.Protocol = name, string(terms.Protocol)
		one.Addresses = slices.Sorted(slices.Values(addresses[sv]))
		all = append(all, one)
	}
	return all
}

// addReasons has a reading have an entry for each reason why messages cannot be framed.
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

// Shutdown stops accepting, lets open sessions go on until ctx ends, resets
// those that are left, and awaits every goroutine of the server. It returns
// how many sessions it reset. It may be called again, as with a context that
// ends sooner.
func (s *Server) Shutdown(ctx context.Context) (reset int) {
	s.mu.Lock()
	s.stopping = true
	for at, b := range s.bound {
		b.close()
		delete(s.bound, at)
	}
	if s.probe != nil {
		s.probe.close()
	}
	s.mu.Unlock()

	counted := make(chan int, 1)
	stop := context.AfterFunc(ctx, func() { counted <- s.resetAll() })
	s.awaitSessions()
	if !stop() {
		reset = <-counted
	}
	s.cancel()
	for _, p := range s.pollers {
		p.Close()
	}
	s.wg.Wait()
	s.pipes.Close()
	return reset
}

// resetAll resets the open sessions and returns how many there were. Those that
// came last go first: else each that ends would let in one that waits for a slot.
func (s *Server) resetAll() (n int) {
	for _, one := range slices.Backward(s.all()) {
		if one.abort(stats.Drained) {
			n++
		}
	}
	s.mu.Lock()
	tunnels := slices.Collect(maps.Keys(s.tunnels))
	s.mu.Unlock()
	for _, tn := range tunnels {
		if tn.abort() { // its session has ended, and its last bytes had not left
			n++
		}
	}
	return n
}

// awaitSessions awaits the end of all sessions, and what tunnels have still to send.
func (s *Server) awaitSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.sessions) > 0 || len(s.tunnels) > 0 {
		s.idle.Wait()
	}
}
