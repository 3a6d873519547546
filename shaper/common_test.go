package shaper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/policy"
	"shaper/unit"
)

// A note is a message of a recipient.
type note struct {
	key    Key
	bucket *Class
	item   *Item
}

// sendNotes lets n messages of the nth recipient join their bucket at d, and enter it. It returns them in order.
func sendNotes(t *testing.T, c *Class, d time.Duration, recipient, n int, asks bool) (notes []note, leave int) {
	t.Helper()
	key := to(t, c, recipient)
	for range n {
		it := packet(1)
		it.Asks, it.Settles = asks, true
		x := note{key, c.JoinKey(at(d), key), it}
		switch verdict := x.bucket.Enter(at(d), it); {
		case verdict == Leaves:
			leave++
		case verdict != Waits:
			t.Fatalf("at %v the verdict is %v", d, verdict)
		}
		notes = append(notes, x)
	}
	return notes, leave
}

// quitNotes ends messages that have left at d, whose answers have come if they get one.
func quitNotes(d time.Duration, notes ...note) {
	for _, x := range notes {
		x.item.Left(at(d))
		if x.item.Asks {
			x.bucket.Provider().Answered(at(d), true)
		}
		x.bucket.QuitKey(at(d), x.key)
	}
}

// While messages of a key wait in the common bucket, later ones wait behind them, although there is room
// for a bucket of its own: the limit holds for all of them, and they keep their order.
func TestKeyThatWaitsInTheCommonBucket(t *testing.T) {
	conf := classBy(policy.GCRA, "10 packets/s")
	conf.Burst = policy.Burst{N: 8, Kind: unit.Packets}
	c := NewClass(start, perRecipient(3, conf))
	for n := range 3 {
		notes, _ := sendNotes(t, c, 0, n, 1, false)
		quitNotes(0, notes...) // remembered until 0.1
	}
	all, leave := sendNotes(t, c, 0, 10, 23, false)
	if leave != 8 {
		t.Fatalf("%d leave at once, want the burst of 8", leave)
	}
	quitNotes(0, all[:8]...)
	released(t, c, 100*ms, all[8].item)
	quitNotes(100*ms, all[8])
	more, leave := sendNotes(t, c, 100*ms, 10, 5, false)
	if c.Buckets().Keys(at(100*ms)) == 3 || leave != 0 {
		t.Fatalf("there is no room for another key, or %d overtake what waits", leave)
	}
	holds(t, waitsWithKey(t, c, at(100*ms), policy.Conn{}, &policy.Message{Recipient: []byte("10")}), "test", "10 packets/s", 2100*ms)
	for i, x := range append(all[9:], more...) {
		d := time.Duration(2+i) * 100 * ms
		released(t, c, d-1)
		released(t, c, d, x.item)
		quitNotes(d, x)
	}
	if own, _ := sendNotes(t, c, 2100*ms, 10, 1, false); own[0].bucket == c.keys.common.bucket {
		t.Error("the key has no bucket of its own, although no message of it is in the common one")
	}
}

// A key whose messages wait in the common bucket for the class above gets no second burst.
func TestKeyThatWaitsForTheParent(t *testing.T) {
	conf := classBy(policy.GCRA, "10 packets/s")
	conf.Burst = policy.Burst{N: 8, Kind: unit.Packets}
	classes := tree(named("root", tokenClass("1000 packets/s", 1000)), under("root", named("keyed", perRecipient(1, conf))))
	c := classes["keyed"]
	classes["root"].Provider().ThrottledHere(start, second, "429")
	first := c.JoinKey(start, to(t, c, 1))
	sendNotes(t, c, 0, 10, 8, false)
	first.QuitKey(start, to(t, c, 1))
	sendNotes(t, c, 500*ms, 10, 8, false)
	leave := 0
	for c.Release(at(second)) != nil {
		leave++
	}
	if leave != 8 {
		t.Errorf("%d leave at once after the pause, want 8", leave)
	}
}

// What is in flight in the common bucket, or on its way out, counts for the messages that follow.
func TestKeyThatIsInFlightInTheCommonBucket(t *testing.T) {
	conf := leakyClass("1 packets/s")
	conf.InFlight = 1
	c := NewClass(start, perRecipient(1, conf))
	first := c.JoinKey(start, to(t, c, 1))
	one, _ := sendNotes(t, c, 0, 10, 1, true)
	first.QuitKey(start, to(t, c, 1))
	two, leave := sendNotes(t, c, second, 10, 1, true)
	if leave != 0 {
		t.Fatal("two messages are in flight")
	}
	quitNotes(3*second, one...)
	released(t, c, 4*second-1)
	released(t, c, 4*second, two[0].item)
	quitNotes(4500*ms, two...)
	if three, _ := sendNotes(t, c, 5*second, 10, 1, true); three[0].bucket == c.keys.common.bucket || three[0].bucket.Next(at(5*second)) != at(5500*ms) {
		t.Error("the key has no bucket of its own, or that does not go on from the last departure")
	}
}

// Copies of messages stay in the common bucket as long as the messages would. When a copy has its answer, or its session ends,
// and the next message of the session is of another key, the key may have a bucket of its own.
func TestKeyOfCopiesInTheCommonBucket(t *testing.T) {
	conf := classBy(policy.GCRA, "10 messages/s")
	for _, end := range []string{"answered", "ended"} {
		c := tried(perRecipient(1, conf))
		offer := func(g *Guest, d time.Duration, n int) *Copy {
			x := g.Up.Offer(at(d), Offer{Class: c, Key: to(t, c, n), Cost: Cost{Messages: 1}, Asks: true, Waits: true})
			x.Sent(at(d))
			return x
		}
		first, other := c.trial.Guest(start, policy.Conn{}, c, nil), c.trial.Guest(start, policy.Conn{}, c, nil)
		offer(first, 0, 1)
		x := []*Copy{offer(other, 0, 10), offer(other, 0, 10)}
		first.End(at(ms), false)
		x = append(x, offer(other, second, 10))
		if n := c.keys.common.keys[to(t, c, 10).bucket]; n != 4 { // the session is in it, too
			t.Fatalf("%s: %d copies are in the common bucket, want 3 and the session", end, n)
		}
		if end == "answered" {
			for _, x := range x {
				x.Answered(at(2 * second))
			}
			offer(other, 2*second, 11).Answered(at(2 * second))
		} else {
			other.End(at(2*second), false)
		}
		c.trial.CatchUp(at(10 * second))
		if n := len(c.keys.common.keys); n != 0 {
			t.Errorf("%s: of %d keys a copy is in the common bucket, want none", end, n)
		}
	}
}

// A crowd is a random run of a class that has fewer buckets than keys, beside its rule by brute force.
type crowd struct {
	t       *rapid.T
	conf    policy.Class
	root, c *Class
	now     time.Time
	keys    []Key
	in      []*member // messages that have joined a bucket, in the order in which they have come
	left    [][]*member
	own     int // how many have joined a bucket of their own after the key was in the common one
	shared  map[int]bool
}

// A member is a message in a crowd.
type member struct {
	key                  int
	item                 *Item
	bucket               *Class
	charged, away, quits time.Time // when it was let go, leaves, and has its answer; zero if it waits
	gone                 bool      // it has left
}

func (m *member) waits() bool { return m.charged.IsZero() }

// due returns what comes next of a message, and when.
func (m *member) due() time.Time {
	switch {
	case m.waits():
		return limit.Never
	case m.gone:
		return m.quits
	}
	return m.away
}

// join lets messages of a key come.
func (r *crowd) join() {
	key := rapid.IntRange(0, len(r.keys)-1).Draw(r.t, "key")
	for range rapid.IntRange(1, 6).Draw(r.t, "messages") {
		is := slices.ContainsFunc(r.in, func(m *member) bool { return m.key == key })
		room := r.c.Buckets().Keys(r.now) < r.c.keys.maxKeys()
		m := &member{key: key, item: packet(1), bucket: r.c.JoinKey(r.now, r.keys[key])}
		m.item.Asks, m.item.Settles = rapid.Bool().Draw(r.t, "asks"), true
		switch {
		case m.bucket == r.c.keys.common.bucket:
			if room && !is {
				r.t.Fatalf("at %v, key %d shares a bucket, although it is nowhere and there is room", r.now.Sub(start), key)
			}
			r.shared[key] = true
		case r.shared[key]:
			r.own++
			delete(r.shared, key)
		}
		r.in = append(r.in, m)
		switch m.bucket.Enter(r.now, m.item) {
		case Leaves:
			r.goes(m)
		case Waits:
		default:
			r.t.Fatal("it is refused")
		}
	}
}

// goes notes that a message has been let go, and draws what follows.
func (r *crowd) goes(m *member) {
	for _, o := range r.in[:slices.Index(r.in, m)] {
		if o.key == m.key && o.waits() {
			r.t.Fatalf("at %v, a message of key %d overtakes another one", r.now.Sub(start), m.key)
		}
	}
	m.charged = r.now
	m.away = r.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 10, 90}).Draw(r.t, "away")) * ms)
	m.quits = m.away.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 20, 700}).Draw(r.t, "answer")) * ms)
	r.left[m.key] = append(r.left[m.key], m)
	if n := r.unanswered(m.key); m.item.Asks && r.conf.InFlight > 0 && n > r.conf.InFlight {
		r.t.Fatalf("at %v, %d messages of key %d are in flight", r.now.Sub(start), n, m.key)
	}
	r.check(m.key)
}

func (r *crowd) unanswered(key int) (n int) {
	for _, m := range r.in {
		if m.key == key && m.item.Asks && !m.waits() {
			n++
		}
	}
	return n
}

// check fails if the last message of a key has left too early.
func (r *crowd) check(key int) {
	all := r.left[key]
	last, period := all[len(all)-1], time.Duration(time.Second)/time.Duration(r.conf.Rate.Units(time.Second))
	most, burst := int(r.conf.Rate.Units(time.Second)), max(int(r.conf.Burst.N), 1)
	inWindow, inLog, inLong := 0, 0, 0
	for i, m := range all {
		// What has not left yet counts from when it was let go.
		since := m.charged
		if m.gone {
			since = m.away
		}
		switch r.conf.Algorithm {
		case policy.Leaky:
			if m != last && since.Add(period).After(last.charged) {
				r.t.Fatalf("key %d: a gap of %v, want %v", key, last.charged.Sub(since), period)
			}
		case policy.Token, policy.GCRA:
			if n, took := len(all)-i, last.charged.Sub(m.charged)+time.Microsecond; took < time.Duration(n-burst)*period {
				r.t.Fatalf("key %d: %d in %v, want no more than %d and one each %v", key, n, took, burst, period)
			}
		}
		if m.charged.Truncate(time.Second).Equal(last.charged.Truncate(time.Second)) {
			inWindow++
		}
		if since.Add(time.Second).After(last.charged) {
			inLog++
		}
		if m.charged.Add(time.Second).After(last.charged) {
			inLong++
		}
	}
	switch a := r.conf.Algorithm; {
	case a == policy.SlidingLog && inLog > most,
		(a == policy.FixedWindow || a == policy.SlidingWindow) && inWindow > most,
		a == policy.SlidingWindow && inLong >= 2*most:
		r.t.Fatalf("key %d: %d of %d in the log, %d in the window of the clock, %d in a second", key, inLog, most, inWindow, inLong)
	}
}

// run lets pass time until a moment, event by event.
func (r *crowd) run(until time.Time) {
	for {
		next, what := until, (*member)(nil)
		for _, m := range r.in {
			if m.due().Before(next) {
				next, what = m.due(), m
			}
		}
		if at := r.root.Next(r.now); at.Before(next) {
			r.now = later(r.now, at)
			it := r.root.Release(r.now)
			if it == nil {
				continue
			}
			r.goes(r.in[slices.IndexFunc(r.in, func(m *member) bool { return m.item == it })])
			continue
		}
		if r.now = later(r.now, next); what == nil {
			return
		}
		if !what.gone {
			what.gone = true
			what.item.Left(r.now)
			continue
		}
		if what.item.Asks {
			what.bucket.Provider().Answered(r.now, true)
		}
		what.bucket.QuitKey(r.now, r.keys[what.key])
		r.in = slices.DeleteFunc(r.in, func(m *member) bool { return m == what })
	}
}

// Whatever keys come, go and share the last bucket: each has its limit once, its messages keep their order, and it gets
// a bucket of its own as soon as there is room and no message of it is in the common one.
func TestKeysHaveTheirLimitOnce(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			own := 0 // times that a key has got its bucket
			rapid.Check(t, func(t *rapid.T) {
				conf := classBy(algorithm, rapid.SampledFrom([]string{"10 packets/s", "4 packets/s"}).Draw(t, "rate"))
				if algorithm.HasBurst() {
					conf.Burst = policy.Burst{N: rapid.Int64Range(1, 8).Draw(t, "burst"), Kind: unit.Packets}
				}
				conf.InFlight = rapid.IntRange(0, 3).Draw(t, "in flight")
				conf = under("root", named("keyed", perRecipient(rapid.IntRange(1, 3).Draw(t, "max_keys"), conf)))
				classes := tree(named("root", tokenClass("1000 packets/s", 1000)), conf)
				r := &crowd{t: t, conf: conf, root: classes["root"], c: classes["keyed"], now: start, shared: map[int]bool{}}
				for n := range rapid.IntRange(2, 6).Draw(t, "keys") {
					r.keys = append(r.keys, r.c.Messages().Key(&policy.Conn{}, &policy.Message{Recipient: fmt.Append(nil, n)}))
				}
				r.left = make([][]*member, len(r.keys))
				for range rapid.IntRange(5, 80).Draw(t, "steps") {
					switch rapid.IntRange(0, 9).Draw(t, "step") {
					case 0:
						r.root.Provider().ThrottledHere(r.now, time.Duration(rapid.IntRange(1, 900).Draw(t, "pause"))*ms, "429")
					case 1:
						conf.MaxKeys = rapid.IntRange(1, 3).Draw(t, "max_keys")
						r.c.Set(r.now, conf)
					case 2, 3, 4:
						r.run(r.now.Add(time.Duration(rapid.SampledFrom([]int{0, 50, 100, 350, 700, 2500}).Draw(t, "by")) * ms))
					default:
						r.join()
					}
				}
				for n := 0; len(r.in) > 0; n++ {
					if r.run(r.now.Add(10 * time.Second)); n == 60 {
						t.Fatalf("%d messages never leave", len(r.in))
					}
				}
				if r.root.Next(r.now) != limit.Never || len(r.c.keys.common.keys) != 0 {
					t.Fatalf("all have quit, but something waits, or of %d keys a message is in the common bucket", len(r.c.keys.common.keys))
				}
				own += r.own
			})
			if own == 0 {
				t.Error("no key has ever left the common bucket: the test shows nothing")
			}
		})
	}
}
