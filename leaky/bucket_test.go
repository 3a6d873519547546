package leaky

import (
	"testing"
	"time"

	"shaper/limit"
	"shaper/unit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns the instant d after start.
func at(d time.Duration) time.Time { return start.Add(d) }

// wantNext fails unless the next item may leave at d and no earlier.
func wantNext(t *testing.T, l limit.Limiter, now, d time.Duration) {
	t.Helper()
	if got := l.Next(at(now), 0, 1); !got.Equal(at(d)) {
		t.Errorf("at %v the next may leave at %v, want %v", now, got.Sub(start), d)
	}
}

// leaves fails unless n bytes may leave at d. It takes them.
func leaves(t *testing.T, l limit.Limiter, since, d time.Duration, n int64) {
	t.Helper()
	if next := l.Next(at(d), 0, n); next.After(at(d)) {
		t.Errorf("at %v nothing may leave before %v", d, next.Sub(start))
	}
	l.Take(at(since), at(d), n)
}

func TestQuantum(t *testing.T) {
	for _, c := range []struct {
		rate        string
		want, piece int64
	}{
		{"0B/s", 2920, 1460}, // SetRate may replace a rate of 0
		{"1KB/s", 2920, 1460},
		{"2920KB/s", 2920, 1460},
		{"3893KB/s", 3893, 1946},
		{"3894KB/s", 3894, 2920}, // two segments are three quarters of it
		{"10MB/s", 10_000, 7300},
		{"262143kB/s", 262143, 195640},
		{"262144kB/s", 262144, 195640},
		{"524288kB/s", 524288, 262144},
		{"8TiB/s", 524288, 262144},
	} {
		rate, err := unit.ParseRate(c.rate)
		if err != nil {
			t.Fatal(err)
		}
		if got := Quantum(rate); got != c.want {
			t.Errorf("the quantum of %v is %d, want %d", rate, got, c.want)
		}
		if got := Piece(rate); got != c.piece || got > MaxPiece {
			t.Errorf("the piece of %v is %d, want %d", rate, got, c.piece)
		}
	}
}

func TestBucketDrainsAtTheRate(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(1_000_000))
	for i := range 10 {
		due := time.Duration(i) * time.Millisecond
		leaves(t, b, 0, due, 1000)
		wantNext(t, b, due, due+time.Millisecond)
	}
}

func TestBucketCountsWhatIsAhead(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(1000))
	leaves(t, b, 0, 0, 500)
	if got := b.Next(at(0), 2000, 9999); !got.Equal(at(2500 * time.Millisecond)) {
		t.Errorf("an item behind 2000 bytes leaves at %v, want 2.5s", got.Sub(start))
	}
}

func TestBucketIdleEarnsNothing(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(1_000_000))
	leaves(t, b, 0, 0, 1000)
	hour := time.Hour
	leaves(t, b, hour, hour, 1000) // it has become ready just now
	wantNext(t, b, hour, hour+time.Millisecond)
}

func TestBucketCatchesUpAfterALateWakeUp(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(1_000_000)) // a piece takes 1.46 ms
	us := time.Microsecond
	leaves(t, b, 0, 0, 1000)
	leaves(t, b, 0, 1400*us, 1000) // 400 us late
	wantNext(t, b, 1400*us, 2000*us)
	leaves(t, b, 0, 3300*us, 1000) // 1300 us late
	leaves(t, b, 0, 3300*us, 1000) // so the next one leaves at once
	wantNext(t, b, 3300*us, 4000*us)
}

// TestBucketCatchesUpOnTheRestOfAQuantum holds that a piece and what the bucket catches up at once
// are a quantum together, even at 16/15 of the rate.
func TestBucketCatchesUpOnTheRestOfAQuantum(t *testing.T) {
	for _, bytes := range []int64{1000, 1_000_000, 3_893_000, 3_894_000, 12_500_000, 125_000_000, 524_288_000, 1 << 40} {
		rate := unit.BytesPerSecond(bytes)
		rest := Quantum(rate) - Piece(rate)
		if got := rate.Units(Slack(rate)) * 16 / 15; got > rest || got < rest*9/10-10 {
			t.Errorf("at %v the bucket catches up on %d bytes at once, want nearly %d", rate, got, rest)
		}
	}
}

// TestBucketMakesUpForMoreThanSlack wakes up 10 ms too late. Gaps that are 1/16 shorter
// bring the bucket back to its schedule.
func TestBucketMakesUpForMoreThanSlack(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(1_000_000)) // a piece takes 1.46 ms
	ms := time.Millisecond
	leaves(t, b, 0, 0, 1000)
	leaves(t, b, 0, 11*ms, 1000) // due at 1 ms
	leaves(t, b, 0, 11*ms, 1000) // the bucket catches up the rest of a quantum at once
	now, items := b.Next(at(11*ms), 0, 1000).Sub(start), 3
	for next := b.Next(at(now), 0, 1000).Sub(start); next != time.Duration(items)*ms; next = b.Next(at(now), 0, 1000).Sub(start) {
		if gap := next - now; items > 3 && gap < ms*15/16 {
			t.Fatalf("item %d leaves %v after the item before it, more than 1/16 too soon", items, gap)
		}
		now = next
		leaves(t, b, 0, now, 1000)
		if items++; items > 1000 {
			t.Fatalf("after %d items the schedule is still behind: %v", items, next)
		}
	}
	if want := 135; items < want {
		t.Errorf("the bucket makes up for 10 ms within %d items, want at least %d", items, want)
	}
}

// TestBucketIdleForgets holds that a bucket makes up for nothing once nothing waits.
func TestBucketIdleForgets(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(1_000_000))
	ms := time.Millisecond
	leaves(t, b, 0, 0, 1000)
	leaves(t, b, 0, 40*ms, 1000) // 39 ms late
	leaves(t, b, 100*ms, 100*ms, 1000)
	wantNext(t, b, 100*ms, 101*ms)
}

func TestBucketAfterASuspend(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(10_000_000))
	leaves(t, b, 0, 0, 5000)
	minute, sum := time.Minute, int64(0)
	for !b.Next(at(minute), 0, 5000).After(at(minute)) {
		b.Take(at(0), at(minute), 5000)
		sum += 5000
	}
	if sum > 10_000 {
		t.Errorf("%d bytes left at once after a minute's suspend, more than a quantum", sum)
	}
}

func TestBucketLetsALargeItemPass(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(1000))
	leaves(t, b, 0, 0, 65_507) // twenty times the quantum
	wantNext(t, b, 0, 65_507*time.Millisecond)
}

func TestBucketClockGoingBack(t *testing.T) {
	b := NewBucket(unit.BytesPerSecond(1000))
	leaves(t, b, time.Hour, time.Hour, 1000)
	b.Take(at(0), at(0), 1000) // by a caller whose clock is an hour slow
	wantNext(t, b, 0, time.Hour+2*time.Second)
}

func TestBucketSetRate(t *testing.T) {
	slow, fast := unit.BytesPerSecond(100), unit.BytesPerSecond(1_000_000)
	second := time.Second

	t.Run("what is owed drains at the new rate", func(t *testing.T) {
		b := NewBucket(slow)
		leaves(t, b, 0, 0, 1460)
		wantNext(t, b, 0, 14600*time.Millisecond)
		b.SetRate(at(second), fast, 0) // 100 bytes have drained
		wantNext(t, b, second, second+1360*time.Microsecond)
	})
	t.Run("slower too", func(t *testing.T) {
		b := NewBucket(fast)
		leaves(t, b, 0, 0, 1460)
		b.SetRate(at(460*time.Microsecond), slow, 0)
		wantNext(t, b, 0, 460*time.Microsecond+10*second)
	})
	t.Run("an idle bucket gets no burst", func(t *testing.T) {
		b := NewBucket(slow)
		b.SetRate(at(time.Hour), fast, 0)
		leaves(t, b, 0, time.Hour, 1460)
		wantNext(t, b, time.Hour, time.Hour+1460*time.Microsecond)
	})
	t.Run("a rate of 0 blocks and drains nothing", func(t *testing.T) {
		b := NewBucket(slow)
		leaves(t, b, 0, 0, 1000)
		b.SetRate(at(second), unit.BytesPerSecond(0), 0)
		if got := b.Next(at(time.Hour), 0, 1); got != limit.Never {
			t.Errorf("under a rate of 0 the next item may leave at %v", got)
		}
		b.SetRate(at(time.Hour), fast, 0)
		wantNext(t, b, time.Hour, time.Hour+900*time.Microsecond)
	})
	t.Run("the same rate changes nothing", func(t *testing.T) {
		b := NewBucket(unit.BytesPerSecond(3))
		leaves(t, b, 0, 0, 1)
		for d := range time.Duration(1000) {
			b.SetRate(at(d), unit.BytesPerSecond(3), 0)
		}
		wantNext(t, b, 1000, 333_333_334)
	})
}

func TestBucketAmend(t *testing.T) {
	second := time.Second
	t.Run("what costs less is owed no more", func(t *testing.T) {
		b := NewBucket(unit.BytesPerSecond(1000))
		leaves(t, b, 0, 0, 3000)
		limit.Amend(b, at(second), at(0), -2500)
		wantNext(t, b, second, second/2)
		limit.Amend(b, at(second), at(0), -2500) // more than it was charged
		wantNext(t, b, second, 0)
	})
	t.Run("what costs more is charged", func(t *testing.T) {
		b := NewBucket(unit.BytesPerSecond(1000))
		leaves(t, b, 0, 0, 1000)
		limit.Amend(b, at(second/2), at(0), 1000)
		wantNext(t, b, second/2, 2*second)
		limit.Amend(b, at(5*second), at(0), 1000)
		wantNext(t, b, 5*second, 6*second)
	})
	t.Run("nothing comes back once another one has left", func(t *testing.T) {
		b := NewBucket(unit.BytesPerSecond(1000))
		leaves(t, b, 0, 0, 1000)
		leaves(t, b, 0, second, 1000)
		limit.Amend(b, at(second), at(0), -1000)
		wantNext(t, b, second, 2*second)
	})
	t.Run("nor after a change of the rate", func(t *testing.T) {
		b := NewBucket(unit.BytesPerSecond(1000))
		leaves(t, b, 0, 0, 1000)
		b.SetRate(at(0), unit.BytesPerSecond(100), 0)
		limit.Amend(b, at(0), at(0), -1000)
		wantNext(t, b, 0, 10*second)
	})
	t.Run("nor for what the bucket before has charged", func(t *testing.T) {
		b := NewBucket(unit.BytesPerSecond(1000))
		leaves(t, b, 0, 0, 1000)
		limit.Succeed(b, at(0))
		limit.Amend(b, at(0), at(0), -1000)
		wantNext(t, b, 0, second)
	})
}
