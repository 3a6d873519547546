package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"shaper/tests/trial"
	"shaper/unit"
)

// A scriptStore runs reserve.lua on a Redis in this process, at times that the test sets.
type scriptStore struct {
	id   string
	now  Stamp
	mini *miniredis.Miniredis
	conn redis.Conn
}

func newScriptStore(t testing.TB, id string) *scriptStore {
	mini := miniredis.RunT(t)
	conn, err := redis.Dial("tcp", mini.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &scriptStore{id: id, mini: mini, conn: conn}
}

func (s *scriptStore) do(now Stamp, c *Call) (Reply, error) {
	s.setTime(now)
	s.mini.SetTime(time.UnixMicro(int64(now)))
	_, r, err := readReply(script.Do(s.conn, scriptArgs("test:", s.id, 7, c)...))
	return r, err
}

// setTime sets the clock, by which keys expire.
func (s *scriptStore) setTime(now Stamp) {
	switch {
	case s.now == 0 || now == s.now:
	case now > s.now:
		s.mini.FastForward(now.Sub(s.now))
	default:
		for _, key := range s.mini.Keys() {
			s.mini.SetTTL(key, s.mini.TTL(key)+s.now.Sub(now))
		}
	}
	s.now = now
}

func mustRate(t testing.TB, text string) unit.Rate {
	r, err := unit.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// testClasses are one class of each kind, with rates that are no whole microseconds.
func testClasses(t testing.TB) []*Class {
	day := func(now time.Time) (from, to time.Time) {
		from = now.UTC().Truncate(24 * time.Hour).Add(5 * time.Hour)
		if from.After(now) {
			from = from.Add(-24 * time.Hour)
		}
		return from, from.Add(24 * time.Hour)
	}
	all := []*Class{
		{Name: "leaky", Rate: mustRate(t, "29.7 messages/s"), Late: time.Millisecond},
		{Name: "slow", Rate: mustRate(t, "7 messages/min"), Late: time.Second},
		{Name: "bytes", Rate: mustRate(t, "12345678B/s"), Late: time.Millisecond},
		{Name: "gcra", Rate: mustRate(t, "300 messages/s"), Burst: 50, Late: time.Millisecond},
		{Name: "fixed", Algorithm: FixedWindow, Rate: mustRate(t, "500 messages/s"), Window: time.Second},
		{Name: "week", Algorithm: FixedWindow, Rate: mustRate(t, "500 messages/7d"), Window: 7 * 24 * time.Hour},
		{Name: "day", Algorithm: FixedWindow, Rate: mustRate(t, "900 messages/day"), Window: 24 * time.Hour, Bounds: day},
		{Name: "sliding", Algorithm: SlidingWindow, Rate: mustRate(t, "900 messages/3s"), Window: 3 * time.Second},
		{Name: "log", Algorithm: SlidingLog, Rate: mustRate(t, "900 messages/2s"), Window: 2 * time.Second},
		{Name: "long log", Algorithm: SlidingLog, Rate: mustRate(t, "900 messages/day"), Window: 24 * time.Hour},
	}
	for _, c := range all {
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestScriptAndModelAgree sends the same random calls to both, with clocks that jump, numbers that
// come again, members that go, and stores that change.
func TestScriptAndModelAgree(t *testing.T) {
	t.Parallel()
	for _, class := range testClasses(t) {
		t.Run(class.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(len(class.Name))))
			script, model := newScriptStore(t, "a"), &Model{ID: "a"}
			now := Stamp(1_760_000_000_123_456)
			g := generator{r: r, class: class, seq: map[string]int64{}, number: map[string]int64{}}
			for i := range trial.Size(200, 400) {
				now = g.later(now)
				if r.IntN(300) == 0 {
					model.ID = fmt.Sprint("store", i)
					script.id = model.ID
				}
				c := g.call(now)
				if r.IntN(4) == 0 { // of a member whose policy has another rate, or another deadline
					slower := *class
					slower.Rate, slower.Deadline = class.Rate.Below(unit.Percent(r.IntN(300_000))), time.Duration(r.IntN(300))*time.Millisecond
					c.Class = &slower
				}
				g.compare(t, script, model, now, c, i)
			}
		})
	}
}

// compare sends a call to both stores, which have to answer the same. i is its number.
func (g *generator) compare(t *testing.T, script *scriptStore, model *Model, now Stamp, c *Call, i int) {
	t.Helper()
	want := model.Do(now, c)
	got, err := script.do(now, c)
	if err != nil {
		t.Fatal(err)
	}
	if want.Units > 0 {
		g.granted = want.First
	}
	if got != want {
		t.Fatalf("class %s, call %d: %+v\nat %d\nthe script answers %+v\nthe model          %+v", g.class.Name, i, *c, now, got, want)
	}
}

// A generator draws calls of a few members.
type generator struct {
	r           *rand.Rand
	class       *Class
	seq, number map[string]int64
	granted     Stamp // the First of the last grant
}

func (g *generator) later(now Stamp) Stamp {
	switch g.r.IntN(200) {
	case 0:
		return now.Add(-time.Duration(g.r.Int64N(int64(time.Hour))))
	case 1:
		return now.Add(time.Duration(g.r.Int64N(int64(time.Hour))))
	case 2, 3, 4, 5:
		return now.Add(time.Duration(g.r.Int64N(int64(5 * time.Second))))
	}
	return now.Add(time.Duration(g.r.Int64N(int64(20 * time.Millisecond))))
}

func (g *generator) call(now Stamp) *Call {
	r := g.r
	member := fmt.Sprint("m", r.IntN(4))
	key := []string{"", "", "k"}[r.IntN(3)]
	g.seq[member]++
	c := &Call{
		Op: []Op{Take, Take, Take, Take, Take, Take, Beat, Back, Back, Pause, Move, Leave}[r.IntN(12)], Class: g.class, Key: key, Member: member,
		Seq: max(g.seq[member]-int64(r.IntN(10)/9), 0), Fenced: r.IntN(200) == 0, Grace: time.Duration(r.IntN(300)) * time.Millisecond,
		Share: []int64{0, 0, 200_000, 500_000}[r.IntN(4)], Heard: r.Int64N(30), Lead: time.Duration(r.IntN(3000)) * time.Microsecond,
	}
	if r.IntN(2) == 0 {
		c.Sent = now.Add(-time.Duration(r.IntN(10)) * time.Millisecond)
	}
	switch c.Op {
	case Take:
		if r.IntN(8) > 0 {
			g.number[member+key]++
		}
		c.Wanted = 1 + r.Int64N(2*g.class.Lease())
		c.Need = 1 + r.Int64N(c.Wanted)
		g.window(now, c)
	case Back:
		g.number[member+key]++
		c.Wanted, c.From = 1+r.Int64N(g.class.Lease()), g.granted
	case Pause, Move:
		c.Wanted = r.Int64N(200_000)
	}
	c.Number = g.number[member+key] - int64(r.IntN(10)/9)
	return c
}

func (g *generator) window(now Stamp, c *Call) {
	if g.class.Algorithm == Slots {
		return
	}
	switch g.r.IntN(12) {
	case 0: // they have left already
		c.Need = 0
	case 1: // nothing waits
		c.Wanted, c.Need = 0, 0
	}
	if r := g.r; r.IntN(4) == 0 {
		c.Known, c.Lasts, c.Spent = r.Int64N(g.class.Limit()), time.Duration(r.Int64N(int64(g.class.Window))), nil
		for range r.IntN(4) {
			c.Spent = append(c.Spent, Use{r.Int64N(3), time.Duration(r.Int64N(int64(g.class.Window) * 5 / 4))})
		}
	}
	if g.class.Bounds != nil {
		from, to := g.class.Bounds(time.UnixMicro(int64(now)))
		c.From, c.To = Stamp(from.UnixMicro()), Stamp(to.UnixMicro())
	}
}

// both returns the script and the model as stores.
func both(t *testing.T) map[string]func(Stamp, *Call) (Reply, error) {
	stores, _ := bothThatChange(t)
	return stores
}

// bothThatChange is both. become makes them other servers, by their ID, with all that they knew.
func bothThatChange(t *testing.T) (stores map[string]func(Stamp, *Call) (Reply, error), become func(id string)) {
	script, model := newScriptStore(t, "a"), &Model{ID: "a"}
	return map[string]func(Stamp, *Call) (Reply, error){
		"script": script.do,
		"model":  func(now Stamp, c *Call) (Reply, error) { return model.Do(now, c), nil },
	}, func(id string) { script.id, model.ID = id, id }
}

// TestLateCallOfALeaver has a call of a member arrive after its Leave: it went by another connection. It does not bring the
// member back, whose share would be held back for ten minutes. Under its name a member comes again with larger numbers.
func TestLateCallOfALeaver(t *testing.T) {
	for name, do := range both(t) {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		for i, c := range []struct {
			op            Op
			seq           int64
			share, others int64
		}{{Beat, 11, 0, 1}, {Leave, 13, 0, 0}, {Beat, 12, 0, 0}, {Leave, 13, 0, 0}, {Beat, 0, 0, 0}, {Beat, 14, whole, 1}} {
			now = now.Add(2 * time.Second)
			r, err := do(now, &Call{Op: c.op, Class: class, Member: "m", Seq: c.seq, Grace: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if r.Members != c.others || i > 0 && c.op == Beat && r.Share != c.share {
				t.Errorf("%s: after call %d there are %d members, and the share is %d; want %d and %d", name, i, r.Members, r.Share, c.others, c.share)
			}
		}
	}
}

// TestLateCallsOfManyLeavers has several members leave at once, and then calls arrive that they sent before.
func TestLateCallsOfManyLeavers(t *testing.T) {
	for name, do := range both(t) {
		class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
		now := Stamp(1_760_000_000_123_456)
		each := func(op Op, seq, members int64) {
			for i := range int64(60) { // more than the store remembers
				r, err := do(now, &Call{Op: op, Class: class, Member: fmt.Sprint("machine-1234-", i), Seq: 100*i + seq, Grace: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if i == 59 && r.Members != members {
					t.Errorf("%s: after %s %d there are %d members, want %d", name, op, seq, r.Members, members)
				}
			}
		}
		each(Beat, 11, 60)
		each(Leave, 13, 0)
		for i := int64(59); i > 30; i-- {
			r, err := do(now, &Call{Op: Beat, Class: class, Member: fmt.Sprint("machine-1234-", i), Seq: 100*i + 12, Grace: time.Second})
			if err != nil || r.Members != 0 || r.Share != 0 {
				t.Errorf("%s: %v: a late call of leaver %d makes %d members", name, err, i, r.Members)
			}
		}
		each(Beat, 14, 60)
		each(Leave, 13, 60) // they have come again
	}
}

// TestOldCallTellsNoDeadline has calls of a member that say nothing of it, or are older than others, with another deadline.
func TestOldCallTellsNoDeadline(t *testing.T) {
	for name, do := range both(t) {
		now := Stamp(1_760_000_000_123_456)
		for i, c := range []struct {
			member   string
			seq      int64
			deadline time.Duration
			shortest time.Duration
		}{
			{"n", 0, maxDeadline, maxDeadline}, {"m", 10, defaultDeadline, defaultDeadline}, {"m", 9, maxDeadline, defaultDeadline},
			{"m", 0, maxDeadline, defaultDeadline}, {"n", 0, maxDeadline, defaultDeadline}, {"n", 1, maxDeadline, defaultDeadline}, {"m", 11, maxDeadline, maxDeadline},
		} {
			class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond, Deadline: c.deadline}
			r, err := do(now, &Call{Op: Beat, Class: class, Member: c.member, Seq: c.seq, Grace: time.Second})
			if err != nil || r.Shortest != c.shortest.Microseconds() {
				t.Errorf("%s: %v: after call %d the shortest deadline is %d µs, want %v", name, err, i, r.Shortest, c.shortest)
			}
		}
	}
}

// TestPauseOutlastsSilence has no member for 25 minutes while the class, or a key, pauses for an hour.
func TestPauseOutlastsSilence(t *testing.T) {
	for _, key := range []string{"", "k"} {
		for name, do := range both(t) {
			class := &Class{Name: "acme", Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond}
			now := Stamp(1_760_000_000_123_456)
			if _, err := do(now, &Call{Op: Pause, Class: class, Key: key, Member: "m", Seq: 1, Grace: time.Second, Wanted: time.Hour.Microseconds()}); err != nil {
				t.Fatal(err)
			}
			till := now.Add(time.Hour)
			for i, c := range []struct {
				after  time.Duration
				paused bool
			}{{25 * time.Minute, true}, {34 * time.Minute, true}, {2 * time.Minute, false}} {
				now = now.Add(c.after)
				r, err := do(now, &Call{Op: Take, Class: class, Key: "k", Member: fmt.Sprint("new", i), Seq: 1, Number: 1, Wanted: 1, Need: 1, Grace: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if is := r.Pause == till && r.Pause > r.Now || r.PausedTill == till; is != c.paused {
					t.Errorf("%s, key %q: after %v of an hour it pauses: %v", name, key, now.Sub(till.Add(-time.Hour)), is)
				}
			}
		}
	}
}
