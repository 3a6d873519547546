package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// linearClients is how many members call at once, each from connections of its own.
const linearClients = 6

// A linearState is what a bucket has given away: the sequential ledger that the histories of grants have to fit. It knows
// nothing of members that are silent, of lines and of losses.
type linearState struct {
	now  Stamp
	next slotTime // the next free slot
	from Stamp    // the window
	used int64    // of it
}

// step reports whether a bucket may give an answer to a call, and what it has given away then. An answer to a call that was
// sent twice has no time: nobody knows which of the two had the effect.
func (s linearState) step(c *Call, r Reply) (bool, linearState) {
	class, sure := c.Class, r.Now > 0
	if sure && r.Now < s.now {
		return false, s
	}
	s.now = max(s.now, r.Now)
	if class.Algorithm == FixedWindow {
		at := max(r.Now, r.First)
		if from := at - (at+Stamp(class.offset()))%Stamp(class.Window.Microseconds()); from > s.from {
			s.from, s.used = from, 0
		}
	}
	switch {
	case c.Op == Back:
		if s.from == c.From {
			s.used -= c.Wanted
		}
		return s.used >= 0, s
	case r.Units == 0:
		return r.Used == s.used, s
	case r.Units > c.Wanted || r.Units < c.Need:
		return false, s
	}
	if class.Algorithm == FixedWindow {
		s.used += r.Units
		return r.First == s.from && (!sure || r.Used == s.used) && s.used <= class.Limit(), s
	}
	first := slotTime{r.First, r.Rem}
	follows := first == s.next || first.us > s.next.us && (!sure || r.First >= r.Now.Add(-class.depth()))
	period := periodOf(class.Rate)
	sum := r.Rem + r.Span*period.rem
	s.next = slotTime{r.First + Stamp(r.Span*period.quo+sum/period.parts), sum % period.parts}
	return follows && (!sure || s.next.us <= r.Now.Add(class.timing().horizon+3*class.Rate.Time(1))), s
}

// linearModel says to porcupine what a bucket is. Buckets have nothing to do with each other.
var linearModel = porcupine.Model{
	Init: func() any { return linearState{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(linearState).step(input.(*Call), output.(Reply))
	},
	Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range all {
			key := o.Input.(*Call).Key
			byKey[key] = append(byKey[key], o)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
}

// A linearClient is a member that asks for units of several buckets, one call after the other. Some of its calls are given up
// early and sent again with their numbers: that is one operation, from the first call to the answer.
type linearClient struct {
	t       *testing.T
	id      int
	class   *Class
	store   *Store
	r       *rand.Rand
	zero    time.Time
	seq     int64
	number  int64
	history []porcupine.Operation
}

// operate does one operation on a bucket. from is the window of what a Back gives back.
func (l *linearClient) operate(op Op, key string, wanted int64, from Stamp) (r Reply) {
	c := &Call{Op: op, Class: l.class, Key: key, Member: fmt.Sprint("m", l.id), Grace: time.Hour, Share: whole / linearClients, Wanted: wanted, Need: 1 + l.r.Int64N(min(wanted, 3)), From: from}
	l.number++
	c.Number = l.number
	begun, hasty := time.Since(l.zero), op == Take && l.r.IntN(5) == 0
	for tried := false; ; tried = true {
		l.seq += linearClients
		c.Seq = l.seq
		ctx, cancel := context.WithCancel(context.Background())
		if hasty && !tried {
			time.AfterFunc(time.Duration(l.r.Int64N(int64(400*time.Microsecond))), cancel)
		}
		sent := *c
		var err error
		r, err = l.store.Do(ctx, &sent)
		cancel()
		switch {
		case err != nil && !hasty:
			l.t.Error(err)
			return r
		case err != nil:
		case op == Take && hasty && r.Units == 0: // the call that was given up may still get it
			time.Sleep(time.Millisecond)
		default:
			if tried {
				if l.windowAt(r.Now) == r.First && r.Used < r.Units { // it got these units of the window that is open
					l.t.Errorf("a repeated call gets %d units of a window that has %d used", r.Units, r.Used)
				}
				r.Now = 0
			}
			l.history = append(l.history, porcupine.Operation{ClientId: l.id, Input: c, Call: int64(begun), Output: r, Return: int64(time.Since(l.zero))})
			return r
		}
	}
}

// windowAt returns when the window of a time begins; -1 if the class has none.
func (l *linearClient) windowAt(at Stamp) Stamp {
	if l.class.Algorithm != FixedWindow {
		return -1
	}
	from, _ := l.class.windowOf(at)
	return from
}

// run does so many operations.
func (l *linearClient) run(n int) {
	for range n {
		key := []string{"a", "b", "c"}[l.r.IntN(3)]
		r := l.operate(Take, key, 1+l.r.Int64N(2*l.class.Lease()), 0)
		if l.class.Algorithm == FixedWindow && r.Units > 0 && l.r.IntN(3) == 0 {
			l.operate(Back, key, 1+l.r.Int64N(r.Units), r.First)
		}
	}
}

// TestGrantsAreLinearizable has members ask a Redis server at once, and holds that the grants of each bucket are those of a
// ledger that answers one call after the other. A history with one slot twice is none of these.
func TestGrantsAreLinearizable(t *testing.T) {
	srv := fleettest.StartRedis(t)
	for _, class := range []*Class{
		{Name: "leaky", Rate: mustRate(t, "30000 messages/s"), Late: time.Millisecond},
		{Name: "gcra", Rate: mustRate(t, "7777 messages/s"), Burst: 500, Late: time.Millisecond},
		{Name: "fixed", Algorithm: FixedWindow, Rate: mustRate(t, "50000 messages/s"), Window: 100 * time.Millisecond},
	} {
		t.Run(class.Name, func(t *testing.T) {
			brief := standardTerms
			brief.recovery = 0
			class.terms = &brief
			var clients []*linearClient
			zero := time.Now()
			for i := range linearClients {
				store, err := NewStore(Config{Addresses: []string{srv.Addr}, Deadline: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				clients = append(clients, &linearClient{t: t, id: i, class: class, store: store, r: rand.New(rand.NewPCG(1, uint64(i))), zero: zero, seq: int64(i)})
			}
			var wg sync.WaitGroup
			for _, c := range clients {
				wg.Go(func() { c.run(trial.Size(80, 5000)) })
			}
			wg.Wait()
			var all []porcupine.Operation
			granted := -1
			for _, c := range clients {
				all = append(all, c.history...)
			}
			if is := porcupine.CheckOperationsTimeout(linearModel, all, time.Minute); is != porcupine.Ok {
				t.Fatalf("a history of %d operations is %v", len(all), is)
			}
			for i, o := range all {
				if o.Output.(Reply).Units > 0 {
					granted = i
				}
			}
			t.Logf("%d operations", len(all))
			twice := slices.Clone(all)
			again := *twice[granted].Input.(*Call)
			again.Number++
			twice = append(twice, porcupine.Operation{ClientId: linearClients, Input: &again, Call: twice[granted].Call, Output: twice[granted].Output, Return: twice[granted].Return})
			isWindow := class.Algorithm == FixedWindow // which may have room for it
			if !isWindow && porcupine.CheckOperationsTimeout(linearModel, twice, time.Minute) == porcupine.Ok {
				t.Error("a history with one grant twice is one of a ledger")
			}
		})
	}
}
