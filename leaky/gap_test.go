package leaky

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/limit"
	"shaper/unit"
)

func TestGapIsExact(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0.5 packets/s":          2 * time.Second,
		"0.75 messages/s":        1333333334, // rounded up
		"20000 messages/15min":   45 * time.Millisecond,
		"120 packets/min":        500 * time.Millisecond,
		"30 messages/s":          33333334,
		"1 connections/h":        time.Hour,
		"8796093022208 packet/s": 1,
	} {
		rate, err := unit.ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		g := NewGap(rate)
		for i := range 3 {
			due := time.Duration(i) * want
			leaves(t, g, 0, due, 1)
			wantNext(t, g, due, due+want)
		}
	}
}

func TestGapNeverCatchesUp(t *testing.T) {
	g := NewGap(unit.NewRate(unit.Messages, 10, time.Second))
	ms := time.Millisecond
	leaves(t, g, 0, 0, 1)
	leaves(t, g, 0, 130*ms, 1) // 30 ms late
	wantNext(t, g, 130*ms, 230*ms)
}

func TestGapCountsFromWhenTheItemLeft(t *testing.T) {
	g := NewGap(unit.NewRate(unit.Messages, 10, time.Second))
	ms := time.Millisecond
	leaves(t, g, 0, 0, 1)
	g.Left(at(7*ms), at(0), 1) // writing took a while
	wantNext(t, g, 10*ms, 107*ms)
	g.Left(at(5*ms), at(0), 1) // an earlier departure, reported late
	wantNext(t, g, 10*ms, 107*ms)
}

func TestGapGrowsWithTheCost(t *testing.T) {
	g := NewGap(unit.NewRate(unit.Messages, 10, time.Second))
	leaves(t, g, 0, 0, 5) // one write with five messages
	wantNext(t, g, 0, 500*time.Millisecond)
}

// An item that leaves before its gap is over pays for the rest, as every limiter has it: the next one waits for both.
func TestGapTooEarly(t *testing.T) {
	for _, c := range []struct {
		rate      unit.Rate
		cost      int64
		then, now time.Duration
		want      time.Duration
	}{
		{unit.NewRate(unit.Messages, 10, time.Second), 100, 0, 0, 10100 * time.Millisecond},
		{unit.NewRate(unit.Messages, 10, time.Second), 100, 0, 4 * time.Second, 10100 * time.Millisecond},
		{unit.NewRate(unit.Messages, 10, time.Second), 1, 0, 99 * time.Millisecond, 200 * time.Millisecond}, // a part of a unit is left
		{unit.NewRate(unit.Messages, 10, time.Second), 1, 0, 100 * time.Millisecond, 200 * time.Millisecond},
		{unit.NewRate(unit.Messages, 3, time.Second), 2, 0, 333333334, time.Second + 1},
	} {
		g := NewGap(c.rate)
		leaves(t, g, c.then, c.then, c.cost)
		g.Take(at(c.now), at(c.now), 1)
		wantNext(t, g, c.now, c.want)
	}
	g := NewGap(unit.NewRate(unit.Messages, 10, time.Second))
	for i := range 36000 { // an hour in which each is a little early or late, as slots of a fleet are
		now := time.Duration(i)*100*time.Millisecond + time.Duration(i%2)*time.Millisecond
		g.Take(at(now), at(now), 1)
	}
	if next := g.Next(at(time.Hour), 0, 1).Sub(at(time.Hour)); next > 102*time.Millisecond {
		t.Errorf("the next item waits %v", next)
	}
	g = NewGap(unit.NewRate(unit.Messages, 10, time.Second))
	leaves(t, g, 0, 0, 7)
	g.SetRate(at(0), unit.NewRate(unit.Messages, 0, time.Second), 0)
	g.Take(at(time.Minute), at(time.Minute), 1)
	g.SetRate(at(time.Minute), unit.NewRate(unit.Messages, 10, time.Second), 0)
	wantNext(t, g, time.Minute, time.Minute+800*time.Millisecond)
}

func TestGapAhead(t *testing.T) {
	g := NewGap(unit.NewRate(unit.Packets, 10, time.Second))
	leaves(t, g, 0, 0, 1)
	if got := g.Next(at(0), 3, 1); !got.Equal(at(400 * time.Millisecond)) {
		t.Errorf("an item behind three leaves at %v, want 400ms", got.Sub(start))
	}
	if got := g.Next(at(time.Hour), 3, 1); !got.Equal(at(time.Hour + 300*time.Millisecond)) {
		t.Errorf("an hour later, an item behind three leaves at %v, want 1h0.3s", got.Sub(start))
	}
}

func TestGapSetRate(t *testing.T) {
	g := NewGap(unit.NewRate(unit.Messages, 1, time.Minute))
	leaves(t, g, 0, 0, 1)
	g.SetRate(at(time.Second), unit.NewRate(unit.Messages, 10, time.Second), 0)
	wantNext(t, g, time.Second, 100*time.Millisecond) // which has passed long ago
	g.SetRate(at(time.Second), unit.NewRate(unit.Messages, 0, time.Second), 0)
	if got := g.Next(at(time.Hour), 0, 1); got != limit.Never {
		t.Errorf("under a rate of 0 the next item may leave at %v", got)
	}
	g.SetRate(at(2*time.Second), unit.NewRate(unit.Messages, 1, time.Hour), 0)
	wantNext(t, g, 2*time.Second, time.Hour) // no new burst
}

// TestGapNeverShorter draws traces with late departures, late reports and changes of
// the rate. No gap is shorter than cost/rate.
func TestGapNeverShorter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(unit.Messages).Draw(t, "rate")
		g, now := NewGap(rate), start
		var left time.Time // the last departure
		cost := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "items") {
			if rapid.IntRange(0, 4).Draw(t, "change") == 0 {
				rate = anyRate(unit.Messages).Draw(t, "rate")
				g.SetRate(now, rate, 0)
			}
			n := rapid.Int64Range(1, 1000).Draw(t, "n")
			if next := g.Next(now, 0, n); next.After(now) {
				now = next
			}
			now = now.Add(lateness(time.Second).Draw(t, "late"))
			if now.After(horizon) {
				return
			}
			if gap := now.Sub(left); cost > 0 && allows(rate, gap).Cmp(big.NewRat(cost, 1)) < 0 {
				t.Fatalf("%v: an item left %v after one of cost %d", rate, gap, cost)
			}
			g.Take(now, now, n)
			now = now.Add(lateness(time.Millisecond).Draw(t, "writing"))
			g.Left(now, now, n)
			left, cost = now, n
		}
	})
}

// A gap becomes that of what the last item really costs. An item before it has had its gap.
func TestGapIsAmended(t *testing.T) {
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	g := NewGap(unit.NewRate(unit.Tokens, 1, time.Second))
	g.Take(at(0), at(0), 10)
	g.Left(at(1), at(0), 1) // it was written late
	expect := func(want int) {
		t.Helper()
		if got := g.Next(at(1), 0, 1); !got.Equal(at(want)) {
			t.Errorf("the next item leaves at %v, want %d s", got.Sub(start), want)
		}
	}
	expect(11)
	g.Amend(at(2), at(0), -4)
	expect(7)
	g.Amend(at(2), at(0), 3)
	expect(10)
	g.Amend(at(2), at(-5), -3) // of an item before
	expect(10)
	g.Amend(at(2), at(0), -20)
	expect(1)
	g.Amend(at(20), at(0), 5)
	expect(25)
}
