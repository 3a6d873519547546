package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

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
	for _, class := range testClasses(t) {
		t.Run(class.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(len(class.Name))))
			script, model := newScriptStore(t, "a"), &Model{ID: "a"}
			now := Stamp(1_760_000_000_123_456)
			g := generator{r: r, class: class, seq: map[string]int64{}, number: map[string]int64{}}
			for i := range 400 {
				now = g.later(now)
				if r.IntN(300) == 0 {
					model.ID = fmt.Sprint("store", i)
					script.id = model.ID
				}
				c := g.call(now)
				if r.IntN(4) == 0 { // of a member whose policy has another rate
					slower := *class
					slower.Rate = class.Rate.Below(unit.Percent(r.IntN(300_000)))
					c.Class = &slower
				}
				want := model.Do(now, c)
				got, err := script.do(now, c)
				if err != nil {
					t.Fatal(err)
				}
				if want.Units > 0 {
					g.granted = want.First
				}
				if got != want {
					t.Fatalf("call %d: %+v\nat %d\nthe script answers %+v\nthe model          %+v", i, *c, now, got, want)
				}
			}
		})
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
		Op: []Op{Take, Take, Take, Take, Take, Take, Beat, Back, Back, Pause, Leave}[r.IntN(11)], Class: g.class, Key: key, Member: member,
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
		c.Wanted = 1 + r.Int64N(g.class.Lease())
		if g.class.Algorithm != Slots {
			g.number[member+key]++
			c.From = g.granted
		}
	case Pause:
		c.Wanted = r.Int64N(200_000)
	}
	c.Number = g.number[member+key] - int64(r.IntN(10)/9)
	return c
}

func (g *generator) window(now Stamp, c *Call) {
	if g.class.Algorithm == Slots {
		return
	}
	if r := g.r; r.IntN(4) == 0 {
		c.Known, c.Left, c.Spent = r.Int64N(g.class.Limit()), time.Duration(r.Int64N(int64(g.class.Window))), r.Int64N(3)
	}
	if g.class.Bounds != nil {
		from, to := g.class.Bounds(time.UnixMicro(int64(now)))
		c.From, c.To = Stamp(from.UnixMicro()), Stamp(to.UnixMicro())
	}
}
