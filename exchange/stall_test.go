package exchange_test

import (
	"strings"
	"testing"
	"time"

	"shaper/buffer"
	"shaper/exchange"
	"shaper/policy"
	"shaper/stats"
)

// If a provider stalls, it gets little of what leaves, and the other messages lose their
// turns. When it reads again, they come in their order and at the rate of the class.
func TestAStalledProvider(t *testing.T) {
	const n, rate, size = 12, 20, 7000
	var up strings.Builder
	for i := range n {
		up.WriteString(prefixed("0200" + string(rune('a'+i)) + strings.Repeat("x", size)))
	}
	s := newSchedule(t, policy.ISO8583, "queue = \"20 messages\"\n", []byte(up.String()), nil)
	s.send(0, up.Len())
	if s.Machine.Waiting() != n-1 {
		t.Fatalf("%d messages wait", s.Machine.Waiting())
	}
	s.Up.Room = 0
	s.pass(2 * time.Second)
	if waits, held := s.Machine.Waiting(), s.Machine.Held(stats.Upstream)-s.Machine.Waiting()*size; held > exchange.MostHeld+2*size || waits < n-6 {
		t.Fatalf("%d messages wait, and %d bytes have left", waits, held)
	}
	before := len(s.sent)
	s.Up.Room = -1
	s.settle()
	if string(s.Up.Got) != up.String() {
		t.Errorf("the provider got %d bytes of %d, or another order", len(s.Up.Got), up.Len())
	}
	for i := before + 1; i < len(s.sent); i++ {
		if gap := s.sent[i].Sub(s.sent[i-1]); gap < time.Second/rate {
			t.Errorf("message %d leaves %v after the one before it", i, gap)
		}
	}
}

// However much comes, and whoever does not read, the memory of an exchange is bounded.
func TestWhatAnExchangeHolds(t *testing.T) {
	const most = int(policy.ConnectionHolds) + 2*buffer.Max
	for _, protocol := range protocols {
		for _, keys := range []string{wait, fail} {
			if keys == fail && !protocol.Refuses() {
				continue
			}
			var one string
			switch protocol {
			case policy.SMPP:
				one = pdu(4, 0, 1, "\x00\x00\x00bulk\x00"+strings.Repeat("x", 500))
			case policy.HTTP:
				one = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
			case policy.ISO8583:
				one = prefixed("0200" + strings.Repeat("x", 500))
			case policy.Lines:
				one = "line\n"
			}
			s := newSchedule(t, protocol, keys, nil, nil)
			s.Up.Room, s.Down.Room = 0, 0
			many := []byte(strings.Repeat(one, 1<<20/len(one)))
			for range 40 {
				if len(s.Up.In) < len(many) {
					s.Up.In = append(s.Up.In, many...)
				}
				s.Drive(s.now)
				if up, down := s.Machine.Held(stats.Upstream), s.Machine.Held(stats.Downstream); up+down > most {
					t.Fatalf("with %s it holds %d bytes upstream and %d downstream", protocol, up, down)
				}
			}
		}
	}
}

// The time that the exchange itself takes counts: a message does not wait if the next turn has
// come meanwhile.
func TestTimePassesBetweenMessages(t *testing.T) {
	s := newSchedule(t, policy.Lines, "queue = \"20 messages\"\n", []byte(strings.Repeat("line\n", 50)), nil)
	s.Tick = time.Second/20 + time.Millisecond
	s.send(0, 1000)
	if n := s.all[1].Stats.Overlimits.Load(); len(s.sent) != 50 || n > 0 {
		t.Errorf("%d of 50 lines have left, and %d had to wait", len(s.sent), n)
	}
}

// A peer that says that a long message follows takes no memory for it before its bytes have come.
func TestDeclaredLengthsTakeNoMemory(t *testing.T) {
	for _, down := range []bool{false, true} {
		w := through(t, policy.SMPP, "[class.c]\nrate = \"1 messages/s\"\n")
		long := pdu(0x15, 0, 1, strings.Repeat("x", 128<<10-16))
		send, to := w.send, &w.Up
		if down {
			send, to = w.answer, &w.Down
		}
		for came := 0; came < len(long); {
			n := min(max(came/3, 16), len(long)-came)
			send(long[came : came+n])
			came += n
			if held := w.Machine.InputMemory(); held > int64(max(8<<10, 8*came)) {
				t.Fatalf("%d bytes have come, and take %d", came, held)
			}
		}
		if string(to.Got) != long {
			t.Errorf("%d bytes have left", len(to.Got))
		}
		w.Finish(stats.OK)
	}
}

// A message that loses its turn is charged to a quota once: what is sent during a stall of the provider, and after it,
// is what the day has counted, to the message.
func TestAStallCostsNothingOfTheDay(t *testing.T) {
	const n, day = 600, 650
	pace := "rate = \"10 messages/s\"\nqueue = \"1000 messages\"\noverflow = \"wait\"\n"
	for name, class := range map[string]string{
		"also":                "[class.c]\nalso = [\"650 messages/day\"]\n" + pace,
		"an hour and a day":   "[class.c]\nalso = [\"640 messages/h\", \"650 messages/day\"]\n" + pace,
		"the day is the rate": "[class.c]\nrate = \"650 messages/day\"\nalgorithm = \"fixed-window\"\nalso = [\"10 messages/s\"]\nqueue = \"1000 messages\"\noverflow = \"wait\"\n",
		"sliding log":         "[class.c]\nalso = [{ rate = \"650 messages/day\", algorithm = \"sliding-log\" }]\n" + pace,
		"sliding window":      "[class.c]\nalso = [{ rate = \"650 messages/day\", algorithm = \"sliding-window\" }]\n" + pace,
		"day of a zone":       "[class.c]\nalso = [{ rate = \"650 messages/day\", zone = \"UTC\" }]\n" + pace,
		"token":               "[class.c]\nalgorithm = \"token\"\nburst = \"20 messages\"\nalso = [\"650 messages/day\"]\n" + pace,
		"parent":              "[class.day]\nrate = \"650 messages/day\"\nalgorithm = \"fixed-window\"\n[class.c]\nparent = \"day\"\n" + pace,
		"per":                 "[class.c]\nper = \"recipient\"\nalso = [\"650 messages/day\"]\n" + pace,
		"per, and a parent":   "[class.day]\nrate = \"650 messages/day\"\nalgorithm = \"fixed-window\"\n[class.c]\nparent = \"day\"\nper = \"recipient\"\n" + pace,
		"retry":               "[class.c]\nretry = { max = 2 }\nalso = [\"650 messages/day\"]\n" + pace,
		"beneath a shadow":    "[class.all]\nshadow = true\nrate = \"5 messages/s\"\nalso = [\"30 messages/h\", \"50 messages/day\"]\n[class.c]\nparent = \"all\"\nalso = [\"650 messages/day\"]\n" + pace,
	} {
		t.Run(name, func(t *testing.T) {
			w := through(t, policy.SMPP, class)
			w.stalls(n)
			for id := range 100 {
				w.send(submit(n+id, 1))
				w.answer(accepted(uint32(n + id)))
			}
			for id := range 100 {
				w.wait(100 * time.Millisecond)
				w.answer(accepted(uint32(n + id)))
			}
			want := int64(day)
			if name == "an hour and a day" {
				want = 640
			}
			if got := w.Up.Cost.Messages; got != want {
				t.Errorf("%d messages have left in the day, want %d", got, want)
			}
			w.Finish(stats.OK)
		})
	}
}

// stalls sends so many messages. Soon the provider stalls for half a minute, and then goes on until it has all.
func (w *wire) stalls(n int) {
	w.t.Helper()
	for id := range n {
		w.send(submit(id, 1))
	}
	answered := 0
	pass := func(d time.Duration) {
		for end := w.Now.Add(d); w.Now.Before(end); {
			w.wait(100 * time.Millisecond)
			for ; answered < int(w.Up.Cost.Messages); answered++ {
				w.answer(accepted(uint32(answered)))
			}
		}
	}
	pass(5 * time.Second)
	w.Up.Room = 0
	pass(30 * time.Second)
	if sent := w.Up.Cost.Messages; sent > 100 {
		w.t.Fatalf("%d messages were sent to a provider that stalls", sent)
	}
	w.Up.Room = -1
	pass(90 * time.Second)
	if sent := int(w.Up.Cost.Messages); sent != n || w.Machine.Waiting() > 0 {
		w.t.Fatalf("%d of %d messages have left", sent, n)
	}
}

// A window lets all that it holds leave at once, which is more than a socket takes. A provider that reads faster than
// the rate still gets all of each window: the turns that are lost meanwhile cost nothing.
func TestWindowsAreUsedInFull(t *testing.T) {
	const seconds, rate, size = 120, 10, 4000
	for name, class := range map[string]string{
		"10s":            "rate = \"10 messages/s\"\nalgorithm = \"fixed-window\"\nwindow = \"10s\"\n",
		"10s, sliding":   "rate = \"10 messages/s\"\nalgorithm = \"sliding-window\"\nwindow = \"10s\"\n",
		"10s, log":       "rate = \"10 messages/s\"\nalgorithm = \"sliding-log\"\nwindow = \"10s\"\n",
		"minute":         "rate = \"600 messages/min\"\nalgorithm = \"fixed-window\"\n",
		"10s and minute": "rate = \"10 messages/s\"\nalgorithm = \"fixed-window\"\nwindow = \"10s\"\nalso = [\"600 messages/min\"]\n",
	} {
		w := through(t, policy.SMPP, "[class.c]\nqueue = \"2000 messages\"\noverflow = \"wait\"\n"+class)
		w.Up.Room = 0
		for id := range 2 * seconds * rate {
			w.send(submit(id, 1))
		}
		for range 10*seconds - 1 { // the next window begins then
			w.wait(time.Second / 10)
			w.Up.Room = min(w.Up.Room+2*rate*size/10, 10*size) // twice the rate
			w.Drive(w.Now)
		}
		if sent, want := w.Up.Cost.Messages, int64(seconds*rate); sent < want*9/10 || sent > want {
			t.Errorf("%s: %d messages have left in %d s, want %d", name, sent, seconds, want)
		}
		w.Finish(stats.OK)
	}
}

// What has lost its turn still counts in the bound of the queue: however often a provider stalls, no more wait than
// the policy says, and the rest is refused.
func TestStallsKeepTheBoundOfTheQueue(t *testing.T) {
	const most = 50
	for name, class := range map[string]string{
		"leaky":           "rate = \"30 messages/min\"\n",
		"window":          "rate = \"30 messages/min\"\nalgorithm = \"fixed-window\"\n",
		"bytes, queue":    "rate = \"2KB/s\"\n",
		"retry":           "rate = \"30 messages/min\"\nretry = { max = 1 }\n",
		"window of a day": "rate = \"60 messages/day\"\nalgorithm = \"fixed-window\"\n",
	} {
		w := through(t, policy.SMPP, "[class.c]\nqueue = \"50 items\"\noverflow = \"refuse\"\n"+class)
		offered := 0
		offer := func(n int) {
			for range n {
				w.send(submit(offered, 1))
				offered++
			}
		}
		for range 4 {
			w.Up.Room = -1
			w.Drive(w.Now)
			offer(200)
			if waits := w.Machine.Waiting(); waits > most {
				t.Fatalf("%s: %d messages wait, and the queue has room for %d", name, waits, most)
			}
			w.Up.Room = 0
			w.wait(10 * time.Minute)
		}
		w.Up.Room = -1
		w.Drive(w.Now)
		if refused, left := len(w.Down.Got)/16, int(w.Up.Cost.Messages); refused+left+w.Machine.Waiting() != offered {
			t.Errorf("%s: of %d messages %d have left, %d wait, and %d were refused", name, offered, left, w.Machine.Waiting(), refused)
		}
		w.Finish(stats.OK)
	}
}
