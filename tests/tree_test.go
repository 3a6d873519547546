package tests

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/tests/trial"
)

// treeBurst is the burst of class root, in bytes.
const treeBurst = 256 << 10

// treeBefore and treeAfter are the policies of the reloads. They differ in rates, ceils, priorities
// and weights, and in the parents of gold-udp and vip.
const (
	treeBefore = `
[class.root]
algorithm = "token"
rate = "4MB/s"
burst = "256KiB"
[class.gold]
parent = "root"
rate = "2MB/s"
ceil = "4MB/s"
[class.gold-tcp]
parent = "gold"
rate = "1MB/s"
ceil = "4MB/s"
[class.gold-udp]
parent = "gold"
rate = "500kB/s"
ceil = "4MB/s"
[class.bulk]
parent = "root"
rate = "1MB/s"
ceil = "4MB/s"
[class.bulk-tcp]
parent = "bulk"
rate = "500kB/s"
ceil = "4MB/s"
[class.bulk-udp]
parent = "bulk"
rate = "250kB/s"
ceil = "4MB/s"

[class.doors]
rate = "200 connections/s"
[class.front]
parent = "doors"
rate = "120 connections/s"
ceil = "200 connections/s"
[class.vip]
parent = "front"
rate = "60 connections/s"
ceil = "200 connections/s"
overflow = "wait"
[class.walk]
parent = "front"
rate = "60 connections/s"
ceil = "200 connections/s"
overflow = "wait"
[class.back]
parent = "doors"
rate = "40 connections/s"
ceil = "200 connections/s"
[class.guest]
parent = "back"
rate = "40 connections/s"
ceil = "200 connections/s"
overflow = "wait"
`
	treeAfter = `
[class.root]
algorithm = "token"
rate = "3MB/s"
burst = "256KiB"
[class.gold]
parent = "root"
rate = "500kB/s"
ceil = "600kB/s"
[class.gold-tcp]
parent = "gold"
rate = "500kB/s"
ceil = "600kB/s"
[class.bulk]
parent = "root"
rate = "1.5MB/s"
ceil = "3MB/s"
[class.bulk-tcp]
parent = "bulk"
rate = "250kB/s"
ceil = "3MB/s"
[class.bulk-udp]
parent = "bulk"
rate = "250kB/s"
ceil = "750kB/s"
priority = 0
[class.gold-udp]
parent = "bulk"
rate = "400kB/s"
ceil = "3MB/s"
weight = 5

[class.doors]
rate = "160 connections/s"
[class.front]
parent = "doors"
rate = "20 connections/s"
ceil = "160 connections/s"
[class.walk]
parent = "front"
rate = "20 connections/s"
ceil = "160 connections/s"
overflow = "wait"
[class.back]
parent = "doors"
rate = "80 connections/s"
ceil = "160 connections/s"
[class.vip]
parent = "back"
rate = "40 connections/s"
ceil = "160 connections/s"
overflow = "wait"
priority = 0
[class.guest]
parent = "back"
rate = "30 connections/s"
ceil = "160 connections/s"
overflow = "wait"
`
)

// What each leaf gets by the rule, per second.
var (
	sharesBefore = shares{
		// gold and bulk get their assured 2 MB/s and 1 MB/s, and half each of the remaining
		// 1 MB/s. In both, the leaves halve what is not assured to one of them.
		bytes:       map[string]float64{"gold-tcp": 1.5e6, "gold-udp": 1e6, "bulk-tcp": 875e3, "bulk-udp": 625e3},
		connections: map[string]float64{"vip": 70, "walk": 70, "guest": 60},
	}
	sharesAfter = shares{
		// gold gets its ceil, and bulk the rest. Of that, bulk-udp has priority, up to its ceil.
		// Of the remaining 1 MB/s, gold-udp gets five parts, and bulk-tcp one.
		bytes:       map[string]float64{"gold-tcp": 600e3, "bulk-udp": 750e3, "gold-udp": 400e3 + 1e6*5/6, "bulk-tcp": 250e3 + 1e6/6},
		connections: map[string]float64{"walk": 50, "vip": 80, "guest": 30},
	}
)

// shares holds what each leaf gets per second.
type shares struct{ bytes, connections map[string]float64 }

// treeLoad is a daemon with greedy clients in each leaf of its trees.
type treeLoad struct {
	*program
	allowed   allowance            // of class root
	arrived   map[string]*recorder // bytes or connections that arrived from each leaf
	listeners string               // the listeners' sections of the policy
	stop      chan struct{}
	wg        sync.WaitGroup
	streams   attempts
	doors     attempts
	datagrams map[string]net.Conn
	sent      sync.Map // datagrams sent to each leaf, once its socket is closed
}

// Reloads change a three-level tree under live streams, datagrams and connections. Each takes
// effect within 100 ms, and no reload gives a burst or loses anything.
func TestTreeIsReloadedInFlight(t *testing.T) {
	l := startTree(t)
	trial.Judge(t, 5*time.Millisecond, func() *trial.Miss {
		return trial.Join(l.changesTo(treeAfter, 3e6, sharesAfter), l.changesTo(treeBefore, 4e6, sharesBefore))
	})
	l.reload(treeAfter, 3e6)
	l.shows(`
doors
  back
    guest
    vip
  front
    walk
root
  bulk
    bulk-tcp
    bulk-udp
    gold-udp
  gold
    gold-tcp
`)
	l.finish()
	l.streams.check(t, "streams")
	l.doors.check(t, "connections")
	l.checkDatagrams()
	l.checkBurst()
}

// startTree starts the daemon with treeBefore, and the clients.
func startTree(t *testing.T) *treeLoad {
	l := &treeLoad{arrived: map[string]*recorder{}, stop: make(chan struct{}), datagrams: map[string]net.Conn{}}
	for leaf := range sharesBefore.bytes {
		if strings.HasSuffix(leaf, "-tcp") {
			l.listen(leaf, "tcp", serve(t, l.record(leaf).hash))
		} else {
			r, upstream := recordUDP(t)
			l.arrived[leaf] = r
			l.listen(leaf, "udp", upstream)
		}
	}
	for leaf := range sharesBefore.connections {
		r := l.record(leaf)
		l.listen(leaf, "tcp", serve(t, func(c *net.TCPConn) {
			r.note(arrival{time.Now(), 1})
			answerHash(c)
		}))
	}
	l.allowed = allowance{{time.Now(), 4e6}}
	l.program = start(t, plain(), treeBefore+l.listeners)
	l.offer()
	time.Sleep(time.Second / 2)
	return l
}

// record makes the recorder of a leaf.
func (l *treeLoad) record(leaf string) *recorder {
	l.arrived[leaf] = &recorder{}
	return l.arrived[leaf]
}

// hash records what arrives on a connection, and answers with its SHA-256.
func (r *recorder) hash(c *net.TCPConn) {
	h := sha256.New()
	r.read(c, h)
	c.Write(h.Sum(nil))
}

// listen adds the listener of a leaf to the policy.
func (l *treeLoad) listen(leaf, protocol, upstream string) {
	l.listeners += fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = %q\nclass = %q\n", leaf, protocol, upstream, leaf)
}

// offer keeps each leaf busy. Streams write as much as they can, more datagrams come than their
// leaf can send, and some connections always wait.
func (l *treeLoad) offer() {
	for leaf := range sharesBefore.bytes {
		addr := l.addr(leaf)
		if strings.HasSuffix(leaf, "-udp") {
			c := dialUDP(l.t, addr)
			l.datagrams[leaf] = c
			l.wg.Go(func() { l.sent.Store(leaf, pace(c, 1000, 1500)) })
			continue
		}
		for i := range 3 {
			l.wg.Go(func() { l.streams.add(longStream(addr, i, l.stop)) })
		}
	}
	for leaf := range sharesBefore.connections {
		addr := l.addr(leaf)
		for i := range 8 {
			l.wg.Go(func() { l.connect(addr, i) })
		}
	}
}

// connect makes one short connection after another.
func (l *treeLoad) connect(addr string, n int) {
	for {
		select {
		case <-l.stop:
			return
		default:
			l.doors.add(shortConnection(addr, n))
		}
	}
}

// reload puts a policy in force, and adds the new rate of class root to l.allowed.
func (l *treeLoad) reload(policy string, root float64) (done time.Time) {
	l.t.Helper()
	l.write(policy + l.listeners)
	began := time.Now()
	l.must("reload")
	done = time.Now()
	l.allowed = l.allowed.changed(began, done, root)
	return done
}

// changesTo reloads, and returns an error unless the shares are as wanted from 100 ms later on. It
// compares the shares of bytes in each tenth of a second, and those of connections over half a
// second, because there are fewer of them.
func (l *treeLoad) changesTo(policy string, root float64, want shares) *trial.Miss {
	const window, windows = 100 * time.Millisecond, 10
	const sure = 0.2 // in a shorter time a busy machine may stand still
	from := l.reload(policy, root).Add(window)
	time.Sleep(time.Until(from.Add(windows * window)))
	wrong := trial.Join(l.check("connections", want.connections, from, 5*window, 0.05, 0),
		l.check("connections in the whole second", want.connections, from, windows*window, 0.05, sure))
	for i := range windows {
		at := from.Add(time.Duration(i) * window)
		wrong = trial.Join(wrong, l.check(fmt.Sprintf("from %v on", at.Sub(from)+window), want.bytes, at, window, 0.04, 0))
	}
	return trial.Join(wrong, l.check("in the whole second", want.bytes, from, windows*window, 0.02, sure))
}

// check returns a Miss if a leaf's share of what arrived in a span is off by more than within.
// The whole may be off by 15 %: the machine may be late, and shaper makes up for it. Sure is the part
// of the whole that arrives on a busy machine, too. If it is not 0, no share is off by a third of the
// whole there.
func (l *treeLoad) check(what string, want map[string]float64, from time.Time, span time.Duration, within, sure float64) (wrong *trial.Miss) {
	got, all, wanted := map[string]float64{}, 0., 0.
	for leaf := range want {
		got[leaf] = float64(l.arrived[leaf].between(from, from.Add(span))) / span.Seconds()
		all, wanted = all+got[leaf], wanted+want[leaf]
	}
	off := math.Abs(all/wanted - 1)
	wrong = trial.Most(off, 0.15, 1-sure, "%s: %.0f/s in all, want %.0f/s", what, all, wanted)
	worst, apart := 0., 1.
	if sure > 0 {
		apart = 1. / 3
	}
	for leaf := range want {
		off := math.Abs(got[leaf]/max(all, 1) - want[leaf]/wanted)
		worst = max(worst, off)
		wrong = trial.Join(wrong, trial.Most(off, within, apart, "%s: %s has %.1f %% of %.0f/s, want %.1f %%", what, leaf, 100*got[leaf]/all, all, 100*want[leaf]/wanted))
	}
	l.t.Logf("%s: %.0f/s of %.0f/s, every share within %.2f %%", what, all, wanted, 100*worst)
	return wrong
}

// shows checks that `shaper classes` shows the classes as a tree.
func (l *treeLoad) shows(tree string) {
	l.t.Helper()
	var names []string
	table, _, _ := strings.Cut(l.must("classes"), "\n\n")
	for line := range strings.Lines(table) {
		name := strings.TrimLeft(line, " ")
		names = append(names, line[:len(line)-len(name)]+strings.Fields(name)[0])
	}
	if got := "\n" + strings.Join(names[1:], "\n") + "\n"; got != tree {
		l.t.Errorf("shaper classes shows this tree:\n%s\nwant:\n%s", got, tree)
	}
}

// finish ends all clients, and waits until no datagram waits.
func (l *treeLoad) finish() {
	close(l.stop)
	for _, c := range l.datagrams {
		c.Close()
	}
	l.wg.Wait()
	for leaf := range l.datagrams {
		trial.Await(l.t, leaf+" has sent what waited", func() bool { return l.class(leaf).Backlog == 0 })
	}
}

// checkDatagrams checks that each datagram has arrived or is counted as dropped.
func (l *treeLoad) checkDatagrams() {
	for leaf := range l.datagrams {
		offered, _ := l.sent.Load(leaf)
		c := l.class(leaf)
		sent, dropped := int(c.Sent["upstream"].Packets), 0
		for _, loss := range c.Dropped {
			dropped += int(loss.Items)
		}
		trial.Await(l.t, leaf+" has arrived", func() bool { return len(l.arrived[leaf].all()) >= sent })
		arrived := len(l.arrived[leaf].all())
		l.t.Logf("%s: %d datagrams offered, %d dropped, %d sent, %d arrived", leaf, offered, dropped, sent, arrived)
		if sent+dropped != offered || sent != arrived {
			l.t.Errorf("%s has lost datagrams that are not counted as dropped", leaf)
		}
	}
}

// checkBurst checks that over all reloads the root passed at most its burst and its rate in any
// window. A reload that gives a burst would add a whole one. The check allows for half a burst, for
// bytes that were delayed between their release and their write.
func (l *treeLoad) checkBurst() {
	var root recorder
	for leaf := range sharesBefore.bytes {
		root.arrivals = append(root.arrivals, l.arrived[leaf].all()...)
	}
	slices.SortFunc(root.arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	excess := root.excess(l.allowed)
	l.t.Logf("the fullest window of the root has %.0f bytes more than its rate; the burst is %d", excess, treeBurst)
	if excess > 1.5*treeBurst {
		l.t.Error("a reload gives a burst")
	}
	if excess < 0.5*treeBurst {
		l.t.Error("the burst was not used, so the test cannot see another one")
	}
}

// A round trip needs wakeUps besides its wait: of shaper for the request, for its turn and for the
// answer, of the echo, and of the test. All together may be late by late.
const (
	late    = 5 * time.Millisecond
	wakeUps = 5
)

// A small item of the first priority waits for at most one item of the bulk, over TCP and UDP,
// whether its class has an assured rate or borrows.
func TestUrgentWaitsForOneItem(t *testing.T) {
	for _, assured := range []string{"10kB/s", "0B/s"} {
		t.Run("assured "+assured[:len(assured)-2], func(t *testing.T) {
			p := startBulk(t, assured)
			urgent := []net.Conn{dial(t, "", p.addr("tcp")), dialUDP(t, p.addr("udp"))}
			trial.Judge(t, late/wakeUps, func() *trial.Miss {
				var waits []time.Duration
				for i := range 60 {
					waits = append(waits, roundTrip(t, urgent[i%2]))
					time.Sleep(20*time.Millisecond + time.Duration(i)*271*time.Microsecond) // not in step with the bulk
				}
				return checkWaits(t, assured, waits)
			})
		})
	}
}

// startBulk starts a daemon with four bulk classes that fill class line, and class urgent of the
// first priority. Without its priority, urgent would wait for sixteen items.
func startBulk(t *testing.T, assured string) *program {
	policy := `
[class.line]
rate = "100kB/s"
[class.urgent]
parent = "line"
rate = "ASSURED"
ceil = "100kB/s"
priority = 0
[listener.tcp]
listen = "127.0.0.1:0"
upstream = "echo:"
class = "urgent"
[listener.udp]
listen = "127.0.0.1:0"
protocol = "udp"
upstream = "echo:"
class = "urgent"
`
	for i := range 4 {
		policy += strings.ReplaceAll(`
[class.bulkN]
parent = "line"
rate = "ASSURED"
ceil = "100kB/s"
weight = 4
[listener.bulkN]
listen = "127.0.0.1:0"
upstream = "discard:"
class = "bulkN"
`, "N", fmt.Sprint(i))
	}
	p := start(t, plain(), strings.ReplaceAll(policy, "ASSURED", assured))
	for i := range 4 {
		go flood(dial(t, "", p.addr(fmt.Sprint("bulk", i))), 16<<10)
	}
	return p
}

// roundTrip returns how long the echo of a hundred bytes takes.
func roundTrip(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	began, piece := time.Now(), make([]byte, 100)
	if _, err := c.Write(piece); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, piece); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

// checkWaits returns a Miss if a round trip waited for more than one item of the bulk, or if the
// waits are so short that the line cannot have been busy. On a busy machine half of the round trips
// wait for less than four items: without its priority, urgent would wait for sixteen.
func checkWaits(t *testing.T, assured string, waits []time.Duration) *trial.Miss {
	const item = 1460 * time.Second / 100e3 // half a quantum of the line
	slices.Sort(waits)
	half, most := waits[len(waits)/2], waits[len(waits)-1]
	t.Logf("assured %s: round trips take at most %v, half of them at most %v; an item of the bulk takes %v", assured, most, half, item)
	return trial.Join(
		trial.Most(most, item+late, patience, "a round trip took %v, want at most one item of the bulk", most),
		trial.Most(half, item+late, 4*item, "half of the round trips took %v, want at most one item of the bulk", half),
		trial.Least(half, item/8, 0, "the line is not busy: half of the round trips took %v", half))
}
