package exchange_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/stats"
)

// hinted is a class that lets 50 messages leave at once.
const hinted = "algorithm = \"gcra\"\nrate = \"1000 messages/s\"\nburst = \"50 messages\"\nhints = true\n"

// answered is an answer with some fields.
func answered(fields string) string {
	return "HTTP/1.1 200 OK\r\n" + fields + "Content-Length: 2\r\n\r\n{}"
}

const github = "X-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: %d\r\nX-RateLimit-Reset: %d\r\n"

// sent returns how many requests have left.
func (w *wire) sent() int { return strings.Count(string(w.Up.Got), " HTTP/1.1\r\n") }

// leaves expects how many requests have left.
func (w *wire) leaves(want int) {
	w.t.Helper()
	if got := w.sent(); got != want {
		w.t.Errorf("%d requests have left, want %d", got, want)
	}
}

// As many requests leave as an answer says, and then none before its limit is renewed.
func TestHints(t *testing.T) {
	for _, hints := range []bool{true, false} {
		w := through(t, policy.HTTP, "[class.c]\n"+strings.Replace(hinted, "true", fmt.Sprint(hints), 1))
		w.send(get)
		w.wait(time.Second)
		answer := answered(fmt.Sprintf(github, 2, 30))
		w.answer(answer)
		w.send(strings.Repeat(get, 4))
		w.wait(30*time.Second - 1)
		if string(w.Down.Got) != answer {
			t.Errorf("the client got %q", w.Down.Got)
		}
		if !hints {
			w.leaves(5)
			if w.Machine.Charges() != 0 || w.classes["c"].Stats.Hinted.Read() != nil {
				t.Error("a class without hints looks at answers")
			}
			continue
		}
		w.leaves(3)
		w.wait(1)
		w.leaves(5)
	}
}

// Requests without an answer may not be among those that the provider has counted.
func TestHintsCountWhatIsInFlight(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\n"+hinted)
	for range 3 {
		w.send(get)
		w.wait(100 * time.Millisecond)
	}
	w.answer(answered(fmt.Sprintf(github, 3, 30))) // two are on their way, so one more may leave
	w.send(strings.Repeat(get, 3))
	w.wait(time.Second)
	w.leaves(4)
	w.answer(answered(fmt.Sprintf(github, 2, 29)))
	w.answer(answered(fmt.Sprintf(github, 1, 29)))
	w.wait(time.Second)
	w.leaves(4)
	w.answer(answered(fmt.Sprintf(github, 1, 28))) // this may be as old as what the others say
	w.free(28 * time.Second)
	w.leaves(6)
}

// An answer holds from its head on, however long its body takes.
func TestHintsOfAnAnswerThatStreams(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\n"+hinted)
	w.send(get)
	w.wait(time.Second)
	w.answer("HTTP/1.1 103 Early Hints\r\n" + fmt.Sprintf(github, 9, 90) + "\r\n")
	w.answer("HTTP/1.1 200 OK\r\n" + fmt.Sprintf(github, 1, 30) + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
	w.send(get + get)
	w.leaves(2)
	w.answer("0\r\n\r\n")
	w.free(30 * time.Second)
}

// Each class keeps to the hints of what it counts: here of requests above, and of tokens below.
func TestHintsOfTwoUnits(t *testing.T) {
	const classes = "[class.all]\n" + hinted + "[class.c]\nparent = \"all\"\nalgorithm = \"gcra\"\nrate = \"1000 tokens/s\"\nburst = \"1000 tokens\"\ncost = { json = \"n\" }\nhints = true\n"
	const openAI = "x-ratelimit-remaining-requests: %d\r\nx-ratelimit-reset-requests: %s\r\nx-ratelimit-remaining-tokens: %d\r\nx-ratelimit-reset-tokens: %s\r\n"
	for _, c := range []struct {
		hints string
		want  time.Duration
	}{
		{fmt.Sprintf(openAI, 0, "20ms", 500, "6m0s"), 20 * time.Millisecond},
		{fmt.Sprintf(openAI, 1, "1m0s", 9, "6m0s"), 6 * time.Minute},
		{fmt.Sprintf(openAI, 1, "1m0s", 10, "6m0s"), 0},
		{"RateLimit: \"a\";r=0;t=9\r\nRateLimit-Policy: \"a\";q=1;w=60;qu=\"content-bytes\"\r\n", 0},
	} {
		w := through(t, policy.HTTP, classes)
		w.send(post("", `{"n":10}`))
		w.answer(answered(c.hints))
		if w.send(post("", `{"n":10}`)); c.want > 0 {
			w.free(c.want)
		}
		w.leaves(2)
	}
}

// A hint is about the key of its message.
func TestHintsOfKeys(t *testing.T) {
	for _, away := range []bool{false, true} {
		w := through(t, policy.HTTP, "[class.c]\nper = \"header:To\"\n"+hinted)
		to := func(name string) string { return "GET / HTTP/1.1\r\nHost: h\r\nTo: " + name + "\r\n\r\n" }
		w.send(to("a"))
		w.answer(answered(fmt.Sprintf(github, 0, 30)))
		w.send(to("b"))
		w.leaves(2)
		w.answer(answered(""))
		if away {
			w.wait(10 * time.Second)
			w.send(to("c"))
			w.answer(answered(""))
			w.wait(10 * time.Second)
		}
		w.send(to("a"))
		if left := 30 * time.Second; away {
			w.free(left - 20*time.Second)
		} else {
			w.free(left)
		}
	}
}

// A request that is refused and sent again waits for what the refusal says.
func TestHintsOfRefusals(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\nretry = { max = 1 }\n"+hinted)
	w.send(get)
	w.answer(limited + fmt.Sprintf(github, 0, 7) + "Content-Length: 0\r\n\r\n")
	w.free(7 * time.Second)
	w.Finish(stats.OK)
}

// What makes no sense, or is of another unit, changes nothing and is counted.
func TestHintsThatMakeNoSense(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\n"+hinted)
	w.send(get)
	w.answer(answered("X-RateLimit-Remaining: -1\r\nX-RateLimit-Reset: 9\r\nRateLimit: \"a\";r=0;t=99999999999\r\n" +
		"anthropic-ratelimit-tokens-remaining: 0\r\nanthropic-ratelimit-tokens-reset: 2100-01-01T00:00:00Z\r\n" +
		"x-ratelimit-remaining-tokens: 0\r\nx-ratelimit-reset-tokens: 1m\r\nx-ratelimit-remaining-requests: 50\r\nx-ratelimit-reset-requests: 1s\r\n"))
	w.send(get)
	w.leaves(2)
	want := map[string]uint64{stats.HintUnclear: 3, stats.HintOtherUnit: 1, stats.HintTaken: 1}
	if got := w.classes["c"].Stats.Hinted.Read(); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// A hint never lets anything leave that the class would hold.
func TestHintsOnlyLower(t *testing.T) {
	w := through(t, policy.HTTP, "[class.c]\nrate = \"1 messages/s\"\nhints = true")
	w.send(get + get)
	w.answer(answered(fmt.Sprintf(github, 59, 1)))
	w.free(time.Second)
}
