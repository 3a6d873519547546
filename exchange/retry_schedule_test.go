package exchange_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/exchange"
	"shaper/policy"
	"shaper/stats"
)

// Whatever the provider refuses, each message gets one answer, is accepted once at most, and in
// its order.
func TestRetryProperties(t *testing.T) {
	for seed := range uint64(400) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { retrySchedule(t, rand.New(rand.NewPCG(seed, 16))) }) {
			break
		}
	}
}

// A schedule begins half a second before the minute: then one recipient may be woken, and another
// one not any more.
const quietMinute = "quiet = [{ recipient = \"1\", to = \"00:01\" }, { recipient = \"2\", from = \"00:01\", to = \"00:02\" }]\n"

// retrySchedule plays one random schedule.
func retrySchedule(t *testing.T, x *rand.Rand) {
	protocol, keys, inFlight, keyed := randomRetry(x)
	r := newRepeated(t, protocol, keys)
	odds := []int{2, 5, 50}[x.IntN(3)]
	r.keyed, r.inBody = keyed, strings.Contains(keys, throttledByN) && x.IntN(4) > 0
	r.Down.Most = []int{0, 1 + x.IntN(100)}[x.IntN(2)]
	r.refuses = func(int, int) bool { return x.IntN(odds) == 0 }
	r.latency = func() time.Duration { return time.Duration(x.IntN(30)) * time.Millisecond }
	reloads := r.play(x, keys)
	r.Up.Room = -1
	r.drive()
	broken, before := false, len(r.taken)
	switch x.IntN(4) {
	case 0:
		r.Down.Ends, r.answers, broken = []error{io.EOF, exchange.ErrCut}[x.IntN(2)], nil, true
	case 1:
		r.Up.Ends = io.EOF
	}
	r.drive()
	r.pass(3 * time.Minute)
	r.check(broken || r.Lingers || r.Retired || r.Over && r.Result != stats.OK)
	if r.Lingers && !broken {
		r.endsGently()
	}
	if n := r.Machine.Charges(); n > 0 && !broken && !r.Over {
		t.Fatalf("all requests are answered, and %d charges are kept", n)
	}
	if broken && slices.ContainsFunc(r.taken[before:], func(id int) bool { return r.came[id] > 1 }) {
		t.Fatal("a message is sent again after the connection has ended")
	}
	if inFlight == 1 && reloads == 0 {
		r.inOrder()
	}
	r.Finish(stats.Aborted)
	r.idle()
}

// randomRetry returns a protocol, and keys of a class with retry; how many messages may be in flight, and
// whether each recipient is a key.
func randomRetry(x *rand.Rand) (protocol policy.Protocol, keys string, inFlight int, keyed bool) {
	protocol, inFlight = policy.SMPP, []int{1, 1, 3}[x.IntN(3)]
	keys = fmt.Sprintf("retry = { max = %d, in_flight = %d }\n", 1+x.IntN(4), inFlight)
	keys += one(x, "", "queue = \"2 messages\"\n", "overflow = \"wait\"\nqueue = \"2 messages\"\n", "max_wait = \"50ms\"\n", "in_flight = 2\n")
	keyed = x.IntN(2) == 0
	if x.IntN(3) == 0 {
		protocol, keyed = policy.HTTP, false
	}
	switch {
	case protocol == policy.HTTP:
		keys += one(x, "", "settle = { header = \"X-Id\" }\n", "cost = 2\nsettle = { json = \"n\" }\n", throttledByN, throttledByN)
	case keyed:
		keys += one(x, "per = \"recipient\"\n", quietMinute, "per = \"source\"\n"+quietMinute)
	}
	return protocol, keys, inFlight, keyed
}

// play does random things to a connection, and returns how often it was a reload.
func (r *repeated) play(x *rand.Rand, keys string) (reloads int) {
	for id := 1; id < 60; {
		switch x.IntN(12) {
		default:
			r.send(id, one(x, "b", "o"), 1+x.IntN(2), []int{0, 5, 3000}[x.IntN(3)])
			id++
		case 0, 1, 2, 3:
			r.pass(time.Duration(x.IntN(60)) * time.Millisecond)
		case 4:
			if x.IntN(20) == 0 {
				r.reload(keys)
				reloads++
			}
		case 6:
			if x.IntN(40) == 0 && !r.Over {
				r.Machine.Retire(r.now, true)
				r.drive()
			}
		case 5:
			r.Up.Room = []int{-1, -1, 0, 100}[x.IntN(4)]
			r.drive()
		}
	}
	return reloads
}
