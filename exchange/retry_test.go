package exchange_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/policy"
	"shaper/stats"
)

// If a provider refuses every 50th message, the client sees no refusal, no message is accepted
// twice, and all are accepted in their order.
func TestRetryHidesRefusals(t *testing.T) {
	hidesRefusals(t, newRepeated(t, policy.SMPP, "retry = { max = 3 }\n"), 100_000)
}

// So it is if the provider refuses them in the body of a 200.
func TestRetryHidesRefusalsInBodies(t *testing.T) {
	r := newRepeated(t, policy.HTTP, "retry = { max = 3 }\n"+throttledByN)
	r.inBody = true
	hidesRefusals(t, r, 10_000)
}

func hidesRefusals(t *testing.T, r *repeated, all int) {
	came, refused := 0, 0
	r.refuses = func(int, int) bool {
		if came++; came%50 == 0 {
			refused++
		}
		return came%50 == 0
	}
	r.window(all)
	for id := 1; id <= all; id++ {
		if r.taken[id-1] != id || len(r.got[id]) != 1 || !r.got[id][0] {
			t.Fatalf("as number %d, message %d is accepted; the client gets %v", id, r.taken[id-1], r.got[id])
		}
	}
	counted := r.classes["a"].Stats.Read().Retried
	if len(r.taken) != all || came != all+refused || counted["again"] != uint64(refused) {
		t.Errorf("%d messages came, %d were accepted and %d refused; counted: %v", came, len(r.taken), refused, counted)
	}
	if charged := r.classes["a"].Stats.Wait.Read().Count; r.Up.Cost.Messages != int64(came) || charged != uint64(came) {
		t.Errorf("%d attempts are sent and %d are charged, of %d", r.Up.Cost.Messages, charged, came)
	}
	r.Finish(stats.OK)
	r.idle()
}

// Requests that may be sent again follow each other, also if the end of the answer before them has come and has not passed.
// Only then does a refusal concern the last request.
func TestRetryBehindAnAnswerThatWaits(t *testing.T) {
	w := amidAnAnswer(t, `
[class.c]
rate = "1000 messages/s"
retry = { max = 1 }
on_throttle = { pause = "1s" }
`)
	passed := fixed(ok, padded("", 8000))
	first, second := post("Expect: 100-continue\r\n", "1"), post("", "2")
	w.send(first + second)
	w.wait(time.Second)
	if string(w.Up.Got) != get+first {
		t.Errorf("before the first one has its answer, %q have left", w.Up.Got)
	}
	answers := []string{fixed(limited, ""), fixed(ok, "2")} // "Expect" keeps the first one from being sent again
	for _, answer := range answers {
		w.answer(answer)
		w.wait(20 * time.Second)
	}
	if string(w.Up.Got) != get+first+second || string(w.Down.Got) != passed+strings.Join(answers, "") || exchange.KeptMemory() != 0 {
		t.Errorf("%q have left, and the client gets %q", w.Up.Got, w.Down.Got[min(len(passed), len(w.Down.Got)):])
	}
}

// If a message is refused as often as retry allows, the client gets the last answer.
func TestRetryGivesUp(t *testing.T) {
	for _, protocol := range []policy.Protocol{policy.SMPP, policy.HTTP} {
		r := newRepeated(t, protocol, "retry = { max = 3 }\n")
		r.refuses = func(id, _ int) bool { return id == 2 }
		for id := 1; id <= 3; id++ {
			r.send(id, "b", 1, 10)
		}
		r.pass(time.Minute)
		if want := "map[1:[true] 2:[false] 3:[true]]"; fmt.Sprint(r.got) != want || r.came[2] != 4 {
			t.Errorf("%s: the client gets %v, want %s; message 2 came %d times, want 4", protocol, r.got, want, r.came[2])
		}
		signal := map[policy.Protocol]string{policy.SMPP: "0x58", policy.HTTP: "429"}[protocol]
		if n := r.classes["a"].Stats.Retried.Read(); n[stats.Retry{Outcome: "again", Signal: signal}] != 3 || n[stats.Retry{Outcome: "last", Signal: signal}] != 1 {
			t.Errorf("%s: counted: %v", protocol, n)
		}
	}
}

// A message without an answer is not sent again, neither after a minute nor when the provider
// breaks the connection. What waits to be sent again then is refused.
func TestRetryNeedsAnAnswer(t *testing.T) {
	for _, protocol := range []policy.Protocol{policy.SMPP, policy.HTTP} {
		for _, end := range []error{io.EOF, exchange.ErrCut} {
			r := newRepeated(t, protocol, "retry = { max = 3 }\non_throttle = { pause = \"5s\" }\n")
			r.latency = func() time.Duration { return time.Hour }
			r.send(1, "b", 1, 10)
			r.pass(50 * time.Second)
			r.Machine.Tend(r.now.Add(20 * time.Second))
			r.pass(time.Second)
			if r.Down.Ends = end; r.came[1] != 1 {
				t.Errorf("%s: the message came %d times", protocol, r.came[1])
			}
			r.drive()
			r.pass(time.Minute)
			if len(r.got) != 0 || r.came[1] != 1 {
				t.Errorf("%s: it came %d times, and the client gets %v", protocol, r.came[1], r.got)
			}
			r.Finish(stats.OK)
			r = newRepeated(t, protocol, "retry = { max = 3 }\non_throttle = { pause = \"5s\" }\n")
			r.refuses = func(int, int) bool { return true }
			r.send(1, "b", 1, 10)
			r.pass(time.Second)
			if len(r.got) != 0 || r.came[1] != 1 || r.Machine.Waiting() != 1 {
				t.Fatalf("%s: it came %d times, the client gets %v, and %d wait", protocol, r.came[1], r.got, r.Machine.Waiting())
			}
			r.Down.Ends = end
			r.drive()
			r.pass(time.Minute)
			if fmt.Sprint(r.got) != "map[1:[false]]" || r.came[1] != 1 {
				t.Errorf("%s: it came %d times, and the client gets %v", protocol, r.came[1], r.got)
			}
		}
	}
}

// A message whose answer is given up is kept no longer, even if its write took a while. It would hold
// up the others for ever.
func TestKeptMessageIsGivenUpWithItsAnswer(t *testing.T) {
	r := newRepeated(t, policy.SMPP, "retry = { max = 3 }\n")
	r.latency = func() time.Duration { return time.Hour }
	r.Up.Heard = func(p []byte) {
		r.provider(p)
		r.Now = r.Now.Add(10 * time.Millisecond)
	}
	r.send(1, "b", 1, 10)
	r.pass(time.Minute + 5*time.Millisecond)
	r.Machine.Tend(r.now)
	r.send(2, "b", 1, 10)
	r.pass(time.Second)
	if r.came[1] != 1 || r.came[2] != 1 {
		t.Errorf("they came %d and %d times", r.came[1], r.came[2])
	}
	r.Finish(stats.OK)
}

// A connection does not rest while something that was read waits for its next turn.
func TestRest(t *testing.T) {
	r := newRepeated(t, policy.SMPP, "")
	for i := range uint32(200) {
		r.Up.In = append(r.Up.In, pdu(0x15, 0, i, "")...) // enquire_link
	}
	r.Machine.Drive(r.now)
	if r.Machine.Rests() {
		t.Error("it rests")
	}
	if r.drive(); !r.Machine.Rests() {
		t.Errorf("it does not rest, and holds %d and %d bytes", r.Machine.Held(stats.Upstream), r.Machine.Held(stats.Downstream))
	}
}

// A reload moves a request that waits to be sent again, with its body. That is no field of its head.
func TestReloadMovesRequestsWithBodies(t *testing.T) {
	for _, keys := range []string{"cost = 2\n", "per = \"path\"\n"} {
		keys += "retry = { max = 3 }\n"
		r := newRepeated(t, policy.HTTP, keys)
		r.refuses = func(_, attempt int) bool { return attempt == 1 }
		r.send(1, "b", 1, 10)
		r.pass(5 * time.Millisecond)
		if r.came[1] != 1 || r.Machine.Waiting() != 1 {
			t.Fatalf("the request came %d times, and %d wait", r.came[1], r.Machine.Waiting())
		}
		r.reload(keys)
		r.pass(time.Second)
		if r.came[1] != 2 || fmt.Sprint(r.got) != "map[1:[true]]" {
			t.Errorf("with %q, the request came %d times, and the client gets %v", keys, r.came[1], r.got)
		}
		r.Finish(stats.OK)
	}
}

// A message that is too large, or would have to wait too long, is not sent again, and neither is
// one for which there is no memory.
func TestRetryKeepsWithinBounds(t *testing.T) {
	refuseFirst := func(_, attempt int) bool { return attempt == 1 }
	for _, c := range []struct {
		keys    string
		size    int
		outcome string
	}{
		{"", 200 << 10, "again"}, {"", 300 << 10, "not_kept"}, {"max_wait = \"5ms\"\n", 10, "too_long"},
	} {
		r := newRepeated(t, policy.HTTP, "retry = { max = 3 }\n"+c.keys)
		r.refuses = refuseFirst
		r.send(1, "b", 1, c.size)
		r.pass(time.Minute)
		if n := r.classes["a"].Stats.Read().Retried; n[c.outcome] != 1 || len(n) != 1 || r.got[1][0] != (c.outcome == "again") {
			t.Errorf("with %q and %d bytes: %v, and the client gets %v", c.keys, c.size, n, r.got)
		}
		r.Finish(stats.OK)
	}
	var all []*repeated
	for exchange.KeptMemory()+int64(policy.Holds(200<<10)) <= int64(policy.RetriesHolds) {
		r := newRepeated(t, policy.HTTP, "retry = { max = 3 }\n")
		r.send(1, "b", 1, 200<<10)
		all = append(all, r)
	}
	r := newRepeated(t, policy.HTTP, "retry = { max = 3 }\n")
	r.refuses = refuseFirst
	r.send(1, "b", 1, 200<<10)
	r.pass(time.Second)
	if n := r.classes["a"].Stats.Read().Retried; n["not_kept"] != 1 {
		t.Errorf("after %d messages of 200 KiB, another one is kept: %v", len(all), n)
	}
	for _, r := range all {
		r.Finish(stats.OK)
	}
	r.Finish(stats.OK)
	if n := exchange.KeptMemory(); n != 0 {
		t.Errorf("%d bytes are still kept", n)
	}
}

// What must not overtake waits for the answers to all that may have to be sent again, and so
// does the end of the stream.
func TestRetryHoldsUpTheEnd(t *testing.T) {
	r := newRepeated(t, policy.SMPP, "retry = { max = 3 }\n")
	r.refuses = func(_, attempt int) bool { return attempt < 3 }
	r.send(1, "b", 1, 10)
	r.Up.In = append(r.Up.In, pdu(6, 0, 9, "")...) // unbind
	r.Up.Ends = io.EOF
	r.drive()
	r.pass(10 * time.Millisecond)
	if bytes.Contains(r.Up.Got, []byte(pdu(6, 0, 9, ""))) || r.Up.Told {
		t.Fatal("an unbind or the end overtakes a message that was refused")
	}
	r.pass(time.Second)
	if !bytes.HasSuffix(r.Up.Got, []byte(pdu(6, 0, 9, ""))) || !r.Up.Told || r.came[1] != 3 || !r.got[1][0] {
		t.Errorf("the message came %d times; then the provider got %q", r.came[1], r.Up.Got)
	}
}

// A refused message is used by another connection at once, so nobody looks at it any more.
func TestRefusedMessagesAreNotRead(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				r := newRepeated(t, policy.HTTP, "max_wait = \"1ns\"\n")
				for range 50 {
					r.Up.In = append(r.Up.In, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"...)
					r.drive() // the body has not come
					r.Up.In = append(r.Up.In, 'b')
					r.drive()
				}
				r.Finish(stats.OK)
			}
		})
	}
	all.Wait()
}
