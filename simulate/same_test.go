package simulate

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/exchange/exchangetest"
	"shaper/frame"
	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
)

// TestSimulatedAsLive sends the same messages through the same policy in two ways. One is
// bytes, cut anywhere, through the exchange that the proxy has for a connection. The other is
// a simulation. The same messages must leave at the same times and in the same order, and the
// same messages must be refused.
func TestSimulatedAsLive(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for n := range uint64(300) {
		x := rand.New(rand.NewPCG(seed, n))
		text, protocol := randomPolicy(x)
		p := parse(t, text)
		sent := randomMessages(x, p, protocol)
		live := newLive(p)
		live.run(x, sent)
		r, departed := described(t, p, sent)
		if !slices.EqualFunc(live.departed, departed, sameGone) {
			t.Fatalf("seed %d, policy %d: live, %d messages leave:\n%v\nand simulated, %d:\n%v\nunder\n%s", seed, n,
				len(live.departed), live.departed, len(departed), departed, text)
		}
		for _, c := range r.Classes {
			got := [...]uint64{c.Refused[stats.QueueFull].Items, c.Refused[stats.MaxWait].Items, total(c.Dropped)}
			if c.Parent == "" && live.parents[c.Name] {
				continue
			}
			if want := live.lost[c.Name]; got != want {
				t.Fatalf("seed %d, policy %d: of %s, %v are lost live, and %v simulated, under\n%s", seed, n, c.Name, want, got, text)
			}
		}
	}
}

// A sending is a message that a client or its provider sends.
type sending struct {
	arrival Arrival
	bytes   string
	free    bool // it costs nothing, so the simulation leaves it out
}

// A gone is a message that has left.
type gone struct {
	At    time.Duration
	Class string
	From  netip.AddrPort
	Bytes int64 // different for each message
}

// sameGone compares what is live with what is simulated. The numbers of a token bucket are floating, so
// when it is asked changes when an item leaves, by a nanosecond.
func sameGone(a, b gone) bool {
	apart := (a.At - b.At).Abs()
	a.At = b.At
	return a == b && apart <= 1
}

func one(x *rand.Rand, of ...string) string { return of[x.IntN(len(of))] }

// randomPolicy returns the text of a policy, and the protocol of its listener.
func randomPolicy(x *rand.Rand) (string, policy.Protocol) {
	protocol := policy.Protocol(one(x, "smpp", "http", "iso8583", "lines"))
	var b strings.Builder
	class := func(name, parent string, back bool) {
		fmt.Fprintf(&b, "[class.%s]\nrate = \"%d messages/s\"\nqueue = \"%d messages\"\n", name, 1+x.IntN(300), 1+x.IntN(6))
		if parent != "" {
			fmt.Fprintf(&b, "parent = %q\nceil = \"300 messages/s\"\nweight = %d\npriority = %d\n", parent, 1+x.IntN(9), x.IntN(8))
		} else if x.IntN(2) == 0 {
			b.WriteString(one(x, "algorithm = \"token\"\nburst = \"4 messages\"\n", "algorithm = \"gcra\"\nburst = \"2 messages\"\n", "algorithm = \"sliding-log\"\n"))
		}
		if x.IntN(3) == 0 {
			fmt.Fprintf(&b, "max_wait = \"%dms\"\n", 1+x.IntN(500))
		}
		overflow := one(x, "", "wait", "refuse")
		if overflow == "refuse" && (back || !protocol.Refuses()) {
			overflow = "wait"
		}
		if overflow != "" {
			fmt.Fprintf(&b, "overflow = %q\n", overflow)
		}
		if !back && protocol.Refuses() && x.IntN(3) == 0 {
			fmt.Fprintf(&b, "in_flight = %d\n", 1+x.IntN(4))
		}
		if !back && x.IntN(3) == 0 {
			fmt.Fprintf(&b, "max_connections = 100\n")
		}
		if parent == "" && x.IntN(4) == 0 {
			b.WriteString("per = \"source\"\n")
		}
	}
	parent := ""
	if x.IntN(2) == 0 {
		parent = "account"
		fmt.Fprintf(&b, "[class.account]\nrate = \"%d messages/s\"\n", 300+x.IntN(300))
	}
	class("c", parent, false)
	class("otp", parent, false)
	back := ""
	if protocol != policy.HTTP {
		class("back", "", true)
		back = "return_class = \"back\"\n"
	}
	if protocol == policy.ISO8583 {
		back += "length_prefix = \"binary2\"\n"
	}
	fmt.Fprintf(&b, "[listener.l]\nlisten = \"127.0.0.1:4000\"\nprotocol = %q\nupstream = \"10.9.9.9:4000\"\nclass = \"c\"\n%s", protocol, back)
	switch protocol {
	case policy.SMPP:
		b.WriteString("[[rule]]\nsource_addr = \"otp*\"\nclass = \"otp\"\n")
	case policy.HTTP:
		b.WriteString("[[rule]]\npath = \"/otp*\"\nclass = \"otp\"\n")
	}
	return b.String(), protocol
}

// randomMessages returns what some clients and their providers send, in order. No two come at
// the same time.
func randomMessages(x *rand.Rand, p *policy.Policy, protocol policy.Protocol) (all []sending) {
	at := Epoch
	for n := range 1 + x.IntN(150) {
		at = at.Add(1 + time.Duration(x.IntN(2)*x.IntN(20_000_000)))
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + x.IntN(2))}), 5000)
		s := sending{arrival: Arrival{At: at, Conn: connTo(p.Listeners[0], client, 4000)}}
		s.arrival.Returns = protocol != policy.HTTP && x.IntN(4) == 0
		s.write(x, protocol, n)
		s.arrival.Bytes = int64(len(s.bytes))
		all = append(all, s)
	}
	return all
}

// write sets the bytes of message n. Each message has another number of bytes.
func (s *sending) write(x *rand.Rand, protocol policy.Protocol, n int) {
	said, pad := one(x, "otp1", "bulk"), strings.Repeat("x", n)
	switch protocol {
	case policy.SMPP:
		command, body := uint32(0x04), "\x00\x00\x00"+said+"\x00"+pad
		switch s.arrival.Message.SourceAddr = said; {
		case x.IntN(5) == 0:
			command, body, s.free = 0x15, "", true
		case s.arrival.Returns:
			command = 0x05
		}
		s.bytes = pduOf(command, uint32(n), body)
	case policy.HTTP:
		s.arrival.Message = policy.Fields{Path: "/" + said, Method: "GET", Host: "h"}
		s.bytes = "GET /" + said + " HTTP/1.1\r\nHost: h\r\nX: " + pad + "\r\n\r\n"
	case policy.ISO8583:
		kind := "0200"
		if x.IntN(5) == 0 {
			kind, s.free = "0800", true
		}
		s.bytes = string(binary.BigEndian.AppendUint16(nil, uint16(len(kind+pad)))) + kind + pad
	case policy.Lines:
		s.bytes = pad + "x\n"
	}
}

func pduOf(command, sequence uint32, body string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
	b = binary.BigEndian.AppendUint32(b, command)
	b = binary.BigEndian.AppendUint32(b, 0)
	return string(binary.BigEndian.AppendUint32(b, sequence)) + body
}

// described sends messages through a simulation.
func described(t *testing.T, p *policy.Policy, sent []sending) (r *Report, departed []gone) {
	t.Helper()
	r, err := Run(p, []Source{{Next: func(a *Arrival) error {
		for len(sent) > 0 && sent[0].free {
			sent = sent[1:]
		}
		if len(sent) == 0 {
			return io.EOF
		}
		*a, sent = sent[0].arrival, sent[1:]
		return nil
	}}}, Options{Departures: func(d *Departure) error {
		departed = append(departed, gone{d.At.Sub(Epoch), d.Class, d.Source, d.Bytes})
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r, departed
}

// live holds connections that carry bytes, in virtual time.
type live struct {
	policy     *policy.Policy
	classifier *policy.Classifier
	now        time.Time
	classes    map[string]*shaper.Class
	roots      []*shaper.Class
	next       map[*shaper.Class]time.Time // when the next message of each tree leaves, by its root
	parents    map[string]bool
	hosts      map[netip.AddrPort][]*exchangetest.Host
	departed   []gone
	lost       map[string][3]uint64
}

func newLive(p *policy.Policy) *live {
	l := &live{policy: p, classifier: policy.Compile(p), now: Epoch, classes: map[string]*shaper.Class{}, next: map[*shaper.Class]time.Time{}, parents: map[string]bool{},
		hosts: map[netip.AddrPort][]*exchangetest.Host{}, lost: map[string][3]uint64{}}
	for i, c := range shaper.NewTree(Epoch, p.Classes) {
		l.classes[p.Classes[i].Name] = c
		l.parents[p.Classes[i].Parent] = true
		if c.Parent() == nil {
			l.roots = append(l.roots, c)
			l.next[c] = limit.Never
		}
	}
	return l
}

// look notes when the next messages leave. Class.Next may round differently at another time,
// so it is called only when something has happened.
func (l *live) look() {
	for root := range l.next {
		l.next[root] = root.Next(l.now)
	}
}

// run sends messages, cut into pieces that come one by one, and then lets all of them leave.
func (l *live) run(x *rand.Rand, sent []sending) {
	for _, s := range sent {
		l.until(s.arrival.At.Add(-1))
		h := l.host(&s.arrival)
		in := &h.Up
		if s.arrival.Returns {
			in = &h.Down
		}
		h.Up.Most, h.Down.Most = x.IntN(40), x.IntN(40)
		cut := x.IntN(len(s.bytes))
		in.In = append(in.In, s.bytes[:cut]...)
		h.Drive(l.now)
		l.until(s.arrival.At)
		in.In = append(in.In, s.bytes[cut:]...)
		if h.Drive(l.now); !s.free {
			l.look()
		}
	}
	l.until(limit.Never)
}

// until lets messages leave up to a time.
func (l *live) until(at time.Time) {
	for {
		var first *shaper.Class
		next := limit.Never
		for _, root := range l.roots {
			if at := l.next[root]; at.Before(next) {
				first, next = root, at
			}
		}
		if first == nil || next.After(at) {
			break
		}
		if next.After(l.now) {
			l.now = next
		}
		if it := first.Release(l.now); it != nil {
			it.Owner.Leave(l.now)
		}
		l.look()
	}
	if at != limit.Never && at.After(l.now) {
		l.now = at
	}
}

// host returns the connection for a message. An HTTP client has one for each request that
// waits.
func (l *live) host(a *Arrival) *exchangetest.Host {
	from := a.Conn.Source
	for _, h := range l.hosts[from] {
		if h.Machine.Waiting() == 0 || l.policy.Listeners[0].Protocol != policy.HTTP {
			return h
		}
	}
	h := l.connect(a.Conn)
	l.hosts[from] = append(l.hosts[from], h)
	return h
}

func (l *live) connect(who policy.Conn) *exchangetest.Host {
	conf := l.policy.Listeners[0]
	link := frame.NewLink(frame.Settings{Protocol: frame.Protocol(conf.Protocol), Prefix: frame.Prefix(conf.LengthPrefix)})
	h := exchangetest.New(l.now, exchange.Config{Protocol: conf.Protocol, Link: link,
		Class: l.classes["c"].Join(l.now, who), Back: l.classes["back"].Join(l.now, who)})
	h.Machine.Obey(l.now, who, l.classifier.Messages(who), func(name string) *shaper.Class { return l.classes[name].Join(l.now, who) })
	h.Machine.Watch(&watch{l, who.Source})
	answer := frame.NewLink(frame.Settings{Protocol: frame.Protocol(conf.Protocol), Prefix: frame.Prefix(conf.LengthPrefix)})
	var asked []byte
	h.Up.Heard = func(p []byte) { // the provider answers at once
		asked = append(asked, p...)
		for {
			n, event, err := answer.Up().Next(asked)
			if err != nil {
				panic(err)
			}
			if event != frame.Whole {
				return
			}
			m := answer.Up().Message()
			switch {
			case m.Kind != frame.Counted:
			case conf.Protocol == policy.SMPP:
				h.Down.In = append(h.Down.In, pduOf(m.Command|1<<31, m.Sequence, "")...)
			case conf.Protocol == policy.HTTP:
				answer.Refuse(m, true)
				h.Down.In = append(h.Down.In, "HTTP/1.1 204 No Content\r\n\r\n"...)
			}
			asked = asked[n:]
		}
	}
	return h
}

// A watch notes what becomes of the messages of a client.
type watch struct {
	live *live
	from netip.AddrPort
}

func (w *watch) Found(_ time.Time, f exchange.Found) exchange.Follower {
	return &watched{w, f.Class.Named().Name(), int64(f.Size)}
}

func (w *watch) Answered(time.Time, uint32)   {}
func (w *watch) Expired(time.Time, time.Time) {}

type watched struct {
	*watch
	class string
	bytes int64
}

func (w *watched) Sent(now time.Time) {
	w.live.departed = append(w.live.departed, gone{now.Sub(Epoch), w.class, w.from, w.bytes})
}

func (w *watched) lose(what int) {
	n := w.live.lost[w.class]
	n[what]++
	w.live.lost[w.class] = n
}

func (w *watched) Refused(_ time.Time, reason stats.Reason) {
	if reason == stats.QueueFull {
		w.lose(0)
	} else {
		w.lose(1)
	}
}

func (w *watched) Dropped(time.Time, stats.Reason) { w.lose(2) }
