package exchange_test

import (
	"strings"
	"testing"
	"time"

	"shaper/limit"
	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// A lent member has so many units, which are over at a time.
type lent struct {
	shaper.Member
	have int64
	lost int64 // what has not left although it was charged
	over time.Time
}

func (l *lent) Budget(int, string) shaper.Budget { return lentBudget{member: l} }
func (*lent) PausedUntil(string) (at time.Time)  { return at }

type lentBudget struct {
	shaper.Budget
	member *lent
}

func (lentBudget) SetRate(time.Time, unit.Rate, int64)          {}
func (lentBudget) Amend(_, _ time.Time, _ int64)                {}
func (lentBudget) Want(time.Time, int64, ...int64)              {}
func (lentBudget) Owe(time.Time, int64, time.Time)              {}
func (lentBudget) Left(time.Time)                               {}
func (lentBudget) RefusedUntil(time.Time, int64) (at time.Time) { return at }
func (lentBudget) Estimate(now time.Time, _, _ int64) time.Time { return now }
func (b lentBudget) Take(_, _ time.Time, n int64)               { b.member.have -= n }
func (b lentBudget) Lost(_ time.Time, n int64)                  { b.member.lost += n }
func (b lentBudget) Over() time.Time                            { return b.member.over }
func (b lentBudget) Next(now time.Time, ahead, n int64) time.Time {
	if ahead+n <= b.member.have {
		return now
	}
	return limit.Never
}

// leaves is the owner of an item.
type leaves struct{ do func() }

func (l leaves) Leave(time.Time) { l.do() }

// lend grants units that are over after a time, and lets what waits leave by them.
func (w *wire) lend(member *lent, units int64, over time.Duration) {
	w.Now = w.Now.Add(time.Second)
	member.have, member.over = units, w.Now.Add(over)
	w.classes["c"].Told(w.Now, "")
	w.wait(0)
}

// A message whose slot of a fleet is over when it is about to be sent waits for the next one, and keeps its place. A millisecond
// passes between the turn of a message and the last look at the clock.
func TestPerishedMessageWaitsAgain(t *testing.T) {
	const tick = time.Millisecond
	for _, protocol := range protocols {
		class, answers := "[class.c]\nrate = \"1000 messages/s\"\nqueue = \"9 messages\"\n", protocol == policy.SMPP || protocol == policy.HTTP
		if answers {
			class += "in_flight = 9\n"
		}
		w := through(t, protocol, class)
		var member lent
		w.classes["c"].Share(w.Now, &member)
		one := counted[protocol]
		w.send(one + one + one)
		behind := &shaper.Item{Owner: leaves{func() {
			if string(w.Up.Got) != one+one+one {
				t.Errorf("%s: an item of another connection leaves before %d bytes of this one", protocol, 3*len(one)-len(w.Up.Got))
			}
		}}, Cost: shaper.Cost{Messages: 1, Bytes: 1}, Held: 1}
		if protocol != policy.HTTP { // it offers its class one request at a time
			w.classes["c"].Enter(w.Now, behind)
		}
		w.Tick = tick
		for i, over := range []time.Duration{tick - 1, 1, 0, tick, tick - 1, tick} {
			before := len(w.Up.Got)
			w.lend(&member, 1, over)
			want := 0
			if over == tick {
				want = len(one)
			}
			if got := len(w.Up.Got) - before; got != want {
				t.Errorf("%s: with slot %d, which is over after %v, %d bytes leave, want %d", protocol, i, over, got, want)
			}
		}
		if n := w.classes["c"].InFlight(); answers && n != 2 {
			t.Errorf("%s: %d messages are in flight, want 2", protocol, n)
		}
		if w.lend(&member, 1, time.Hour); string(w.Up.Got) != one+one+one || w.Machine.Waiting() > 0 {
			t.Errorf("%s: in the end %q has left, and %d messages wait", protocol, w.Up.Got, w.Machine.Waiting())
		}
		w.lend(&member, 1, time.Hour)
		if n := w.classes["c"].Backlog().Items; n > 0 || member.lost != 4 {
			t.Errorf("%s: %d items still wait, and %d slots were lost, want 4", protocol, n, member.lost)
		}
		w.Finish(stats.OK)
	}
}

// A piece of a body does, too.
func TestPerishedPieceWaitsAgain(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\nrate = \"1KB/s\"\n")
	var member lent
	w.classes["c"].Share(w.Now, &member)
	const head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 600\r\n\r\n"
	text := head + strings.Repeat("x", 600)
	w.send(text)
	w.Tick = time.Millisecond
	for range 3 {
		if w.lend(&member, int64(len(head)), time.Millisecond-1); len(w.Up.Got) > 0 {
			t.Fatalf("%d bytes leave although their slot is over", len(w.Up.Got))
		}
	}
	for range 3 {
		w.lend(&member, 1000, time.Minute)
	}
	if string(w.Up.Got) != text {
		t.Errorf("%d of %d bytes have left", len(w.Up.Got), len(text))
	}
}
