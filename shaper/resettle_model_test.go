package shaper

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shaper/policy"
	"shaper/tests/trial"
)

// A counted is a message as providers count it: with what it costs by its answer.
type counted struct {
	at   time.Time
	n    int64
	on   []string // the limits that it counts for
	from *Class
}

// A resettling sends messages, answers them, and reloads, all at random. Each of its limits lets 600
// tokens leave in a minute, by an algorithm of its own. Class c is beneath p, q or nothing, and these
// are beneath top or nothing; p may have one more limit.
type resettling struct {
	*rand.Rand
	by    map[string]policy.Algorithm // of each limit
	quiet policy.QuietGroups
	s     *Shaper
	on    []string // the limits of a message to c
	sent  []counted
	open  []int // those of sent that have no answer
	story []string
}

func (r *resettling) tell(format string, more ...any) {
	r.story = append(r.story, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, more...))
}

func (r *resettling) one(of ...string) string { return of[r.IntN(len(of))] }

// conf returns the policy of a class of 600 tokens a minute, all of which may leave at once.
func (r *resettling) conf(name, parent string) policy.Class {
	conf := named(name, classBy(r.by[name], "600 tokens/min"))
	conf.Queue, conf.Parent, conf.Adapt = policy.Queue{}, parent, name == "top"
	if conf.Algorithm.HasBurst() {
		conf.Burst = policy.Burst{N: 600, Kind: conf.Rate.Kind()}
	}
	return conf
}

// reload puts another policy in force. What comes from then on in the place of class c knows only that as
// much as may leave at once has just left, unless it goes on from c.
func (r *resettling) reload() {
	parents := map[string]string{"c": r.one("", "p", "q"), "p": r.one("", "top"), "q": r.one("", "top")}
	p, c := r.conf("p", parents["p"]), r.conf("c", parents["c"])
	confs := []policy.Class{r.conf("top", ""), r.conf("q", parents["q"])}
	r.on = nil
	for up := c.Parent; up != ""; up = parents[up] {
		r.on = append(r.on, up)
	}
	if r.IntN(2) == 0 {
		also := r.conf("also", "")
		if p.Also = []policy.Limit{also.Own()}; c.Parent == "p" {
			r.on = append(r.on, "also")
		}
	}
	kind := r.one("as it is", "slower", "quiet", "per", "gone")
	switch kind {
	case "slower":
		c.Rate = rateOf("300 tokens/min")
	case "quiet":
		c.Quieted = r.quiet
	case "per":
		c.Per, c.MaxKeys = policy.Per{{By: policy.ByRecipient}}, 100
	}
	if confs = append(confs, p); kind != "gone" {
		confs = append(confs, c)
	}
	if r.s.Apply(confs); kind == "per" || kind == "gone" {
		for i := range r.sent {
			r.sent[i].on = slices.DeleteFunc(slices.Clone(r.sent[i].on), func(name string) bool { return name == "c" })
		}
	} else {
		r.on = append(r.on, "c")
	}
	r.tell("reload: %v, c is %s, %v", parents, kind, r.on)
}

// send lets a message leave class c, if it may.
func (r *resettling) send(c *Class) {
	now, n := time.Now(), []int64{300, 1 + r.Int64N(300)}[r.IntN(2)]
	if c.Messages().HaveKeys() {
		c = c.JoinKey(now, c.Messages().Key(&policy.Conn{}, &policy.Message{Recipient: []byte(r.one("9198", "44"))}))
	}
	cost := Cost{Messages: 1, Tokens: int32(n)}
	if !c.Pass(now, cost) {
		c.Quit(now)
		return
	}
	c.Left(now, now, cost)
	r.open = append(r.open, len(r.sent))
	r.sent = append(r.sent, counted{now, n, r.on, c})
	r.tell("sent %d, %v", n, r.on)
}

// answer says of a message that it costs less.
func (r *resettling) answer() {
	i := r.IntN(len(r.open))
	m := &r.sent[r.open[i]]
	r.open = slices.Delete(r.open, i, i+1)
	less := []int64{m.n, r.Int64N(m.n + 1)}[r.IntN(2)]
	m.from.Provider().Settle(time.Now(), m.at, Cost{Tokens: int32(-less)})
	m.from.Quit(time.Now())
	m.n -= less
	r.tell("answer to %s: %d", m.at.Format("04:05.000"), m.n)
}

func (r *resettling) run() {
	r.s = NewOnRuntimeTimer()
	defer r.s.Close()
	r.reload()
	for range 5 + r.IntN(56) {
		time.Sleep(time.Duration([]int64{0, 0, r.Int64N(5e9), r.Int64N(70e9)}[r.IntN(4)]))
		switch what, c := r.IntN(10), r.s.Class("c"); {
		case what == 0:
			r.reload()
		case what < 6 && len(r.open) > 0:
			r.answer()
		case c != nil && what == 6:
			c.Provider().Throttled(time.Now(), 0, "429")
		case c != nil:
			r.send(c)
		}
	}
}

// allows reports whether an algorithm lets n of the 600 tokens leave from one time to another.
func allows(a policy.Algorithm, n int64, from, to time.Time) bool {
	switch d := to.Sub(from); {
	case a.HasBurst():
		return float64(n) <= 600+10*(d+100).Seconds()
	case a == policy.SlidingLog:
		return n <= 600 || d >= time.Minute
	}
	return n <= 600 || !from.Truncate(time.Minute).Equal(to.Truncate(time.Minute))
}

// broken returns which limit let too much leave; "" if none did.
func (r *resettling) broken() string {
	for name, a := range r.by {
		counts := slices.DeleteFunc(slices.Clone(r.sent), func(m counted) bool { return !slices.Contains(m.on, name) })
		for i, first := range counts {
			n := int64(0)
			for _, m := range counts[i:] {
				if n += m.n; !allows(a, n, first.at, m.at) {
					return fmt.Sprintf("%s (%s): %d from %s to %s", name, a, n, first.at.Format("04:05.000"), m.at.Format("04:05.000"))
				}
			}
		}
	}
	return ""
}

// Whatever reloads change between a message and its answer, no limit lets more leave than it promises.
func TestReloadsBeforeAnswersKeepThePromise(t *testing.T) {
	by := []policy.Algorithm{policy.FixedWindow, policy.SlidingLog, policy.SlidingWindow, policy.Token, policy.GCRA}
	for seed := range uint64(trial.Size(500, 50_000)) {
		r := &resettling{Rand: rand.New(rand.NewPCG(seed, 0)), by: map[string]policy.Algorithm{}, quiet: promotions(t, "")[0].Quieted}
		for _, name := range []string{"top", "p", "q", "c", "also"} {
			r.by[name] = by[r.IntN(len(by))]
		}
		synctest.Test(t, func(*testing.T) { r.run() })
		if broken := r.broken(); broken != "" {
			for _, line := range r.story {
				t.Log(line)
			}
			t.Fatalf("seed %d: %s", seed, broken)
		}
	}
}
