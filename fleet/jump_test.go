package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A jumping fleet is a and b, which have halves, and a store whose clock is set.
type jumping struct {
	t      *testing.T
	do     func(Stamp, *Call) (Reply, error)
	class  *Class
	real   time.Duration // since b was heard of
	skew   time.Duration // of the store's clock
	seq    int64
	shares map[string]int64
}

// briefHold is how long the store of such a fleet holds shares back.
const briefHold = time.Minute

// jumped returns the fleet a second after the store has heard of b.
func jumped(t *testing.T, do func(Stamp, *Call) (Reply, error), name string) *jumping {
	brief := standardTerms
	brief.hold = briefHold
	j := &jumping{t: t, do: do, class: &Class{Name: name, Rate: mustRate(t, "20 messages/s"), Late: time.Millisecond, terms: &brief}, shares: map[string]int64{}}
	for range 4 {
		j.real = 0
		j.call("a")
		j.call("b")
		j.real += time.Second
		j.skew += time.Second
	}
	if j.shares["a"] != whole/2 || j.shares["b"] != whole/2 {
		t.Fatalf("the shares are %v", j.shares)
	}
	return j
}

func (j *jumping) now() Stamp { return Stamp(1_760_000_000_123_456).Add(j.real + j.skew) }

// call lets a member say that it is there. It knows the store's clock.
func (j *jumping) call(member string) Reply { return j.send(member, j.now()) }

// send is call by a member to which the store's clock shows sent; 0: the member does not know.
func (j *jumping) send(member string, sent Stamp) Reply {
	j.seq++
	r, err := j.do(j.now(), &Call{Op: Beat, Class: j.class, Member: member, Seq: j.seq, Share: j.shares[member], Sent: sent, Grace: 2 * time.Second})
	if err != nil {
		j.t.Fatal(err)
	}
	j.shares[member] = r.Share
	return r
}

// cut lets b make one more call, by which it tells of a jump as a does. Nobody hears of it since.
func (j *jumping) cut(sent Stamp) {
	j.send("b", sent)
	j.skew, j.real = j.skew+j.real, 0
}

// step sets the clock a second later; 0: nobody calls for 3 s. A newcomer calls first times before a does; less than 0: b does, for the last time.
func (j *jumping) step(by time.Duration, first int) {
	if j.real += time.Second; by == 0 {
		j.real += 2 * time.Second
	}
	sent := j.now()
	if j.skew += by; first < 0 {
		j.cut(sent)
	}
	for i := range first {
		known := j.now()
		if i == 0 { // it has just started, perhaps under the name of the one before
			known = 0
		}
		j.send("new", known)
		j.real += 20 * time.Millisecond
		sent = sent.Add(20 * time.Millisecond)
	}
	j.send("a", sent)
	j.call("a")
}

// others returns what all but b have.
func (j *jumping) others() (sum int64) {
	for member, share := range j.shares {
		if member != "b" {
			sum += share
		}
	}
	return sum
}

// TestSharesAfterJumps sets the clock of the store, also in steps. b does not reach the store any more, and goes on at its
// share until the hold ends. Until then others do not get it, and soon after that they do.
func TestSharesAfterJumps(t *testing.T) {
	t.Parallel()
	const second, tenth = time.Second, briefHold / 10
	set := func(steps ...time.Duration) []time.Duration { return steps }
	for _, c := range []struct {
		what  string
		steps []time.Duration // one in each second; 0: nobody calls for 3 s
		first int             // calls of a newcomer that come first after each; less than 0: the last one of b
	}{
		{"none", nil, 0},
		{"5 s", set(5 * second), 0},
		{"half of the hold", set(5 * tenth), 0},
		{"nearly the hold", set(9 * tenth), 0},
		{"more than the hold", set(11 * tenth), 0},
		{"less than twice the hold", set(19 * tenth), 0},
		{"more than twice the hold", set(25 * tenth), 0},
		{"steps of 3 s", slices.Repeat(set(3*second), 10), 0},
		{"many steps of 3 s", slices.Repeat(set(3*second), 50), 0},
		{"twice", set(6*tenth, 6*tenth), 0},
		{"forward and back", set(9*tenth, -9*tenth), 0},
		{"far forward and back", set(11*tenth, -11*tenth), 0},
		{"twice the hold and back", set(25*tenth, -25*tenth), 0},
		{"back", set(-9 * tenth), 0},
		{"the last call of b first", set(9 * tenth), -1},
		{"a newcomer first", set(9 * tenth), 1},
		{"far, a newcomer first", set(11 * tenth), 1},
		{"far, a newcomer first, and again", set(11 * tenth), 2},
		{"silence, and then far, a newcomer first", set(0, 11*tenth), 2},
		{"twice, a newcomer first", set(6*tenth, 6*tenth), 2},
		{"far and back, a newcomer first", set(11*tenth, -11*tenth), 2},
		{"far, and forward again, a newcomer first", set(11*tenth, -10*tenth, 11*tenth), 2},
	} {
		for name, do := range both(t) {
			j := jumped(t, do, "acme "+c.what)
			for _, step := range c.steps {
				j.step(step, c.first)
			}
			for ; j.real < briefHold-briefHold/fastest; j.real += 2 * time.Second {
				if j.call("a"); c.first > 0 {
					j.call("new")
				}
				if n := j.others(); n > whole/2 {
					t.Fatalf("%s: %s: others than b get %d millionths after %v, and b has its half", name, c.what, n, j.real)
				}
			}
			j.real += 5 * time.Second // the member was idle, and the clock has jumped
			for range 3 {
				if j.call("a"); c.first > 0 {
					j.call("new")
				}
				j.real += 2 * time.Second
			}
			if n := j.others(); n < whole-1 {
				t.Errorf("%s: %s: others than b get %d millionths after %v, and b has nothing any more", name, c.what, n, j.real)
			}
		}
	}
}

// TestSharesAfterTwoJumps sets the clock twice before anybody calls who knew it before the first time: a newcomer calls in between, and
// tells of the second time only.
func TestSharesAfterTwoJumps(t *testing.T) {
	t.Parallel()
	for name, do := range both(t) {
		j := jumped(t, do, "acme")
		before := j.now()
		j.skew += briefHold * 11 / 10
		j.send("new", 0)
		between := j.now()
		j.real += 100 * time.Millisecond
		j.skew += briefHold * 11 / 10
		j.send("new", between)
		j.call("new")
		j.send("a", before.Add(100*time.Millisecond))
		for ; j.real < briefHold-briefHold/fastest; j.real += time.Second {
			j.call("a")
			j.call("new")
			if n := j.others(); n > whole/2 {
				t.Fatalf("%s: others than b get %d millionths after %v, and b has its half", name, n, j.real)
			}
		}
		for end := j.real + 5*time.Second; j.real < end; j.real += time.Second {
			j.call("a")
			j.call("new")
		}
		if n := j.others(); n < whole-1 {
			t.Errorf("%s: others than b get %d millionths after %v, and b has nothing any more", name, n, j.real)
		}
	}
}

// TestLateCallIsNoJump has a call come 5 s late while others call: the clock was not set, and no pause lasts longer.
func TestLateCallIsNoJump(t *testing.T) {
	t.Parallel()
	for name, do := range both(t) {
		j := jumped(t, do, "acme")
		till := j.now().Add(time.Minute)
		if _, err := do(j.now(), &Call{Op: Pause, Class: j.class, Member: "a", Wanted: time.Minute.Microseconds()}); err != nil {
			t.Fatal(err)
		}
		sent := j.now()
		for range 5 {
			j.real += time.Second
			j.call("a")
		}
		if r := j.send("b", sent); r.Pause != till {
			t.Errorf("%s: the pause ends %v later", name, r.Pause.Sub(till))
		}
	}
}

// TestFenceAfterAJump has a newcomer ask for a fence after the clock was set, and then somebody say so. The fence and the recovery last no longer than any.
func TestFenceAfterAJump(t *testing.T) {
	t.Parallel()
	for name, do := range both(t) {
		j := jumped(t, do, "acme")
		sent := j.now()
		j.skew += briefHold / 2
		if _, err := do(j.now(), &Call{Op: Beat, Class: j.class, Member: "new", Seq: 1, Fenced: true, Grace: time.Second}); err != nil {
			t.Fatal(err)
		}
		j.send("a", sent)
		j.real += 2 * time.Second
		j.call("b")
		j.seq++
		r, err := do(j.now(), &Call{Op: Take, Class: j.class, Member: "a", Seq: j.seq, Share: j.shares["a"], Sent: j.now(), Grace: time.Second, Number: 1, Wanted: 1, Need: 1})
		if err != nil || r.Units != 1 || r.Recover > r.Now {
			t.Errorf("%s: %v: two seconds after the fence, %d units are granted, and the recovery lasts %v", name, err, r.Units, r.Recover.Sub(r.Now))
		}
	}
}

// TestNoClockJumpsInSilence has nobody call for a while. The clock was not set: whoever calls then, soon gets what the dead had. A
// newcomer gets it as soon as others would have called.
func TestNoClockJumpsInSilence(t *testing.T) {
	t.Parallel()
	for _, silence := range []time.Duration{briefHold * 9 / 10, briefHold * 11 / 10, briefHold * 19 / 10} {
		for _, member := range []string{"a", "new"} {
			for name, do := range both(t) {
				j := jumped(t, do, fmt.Sprint("acme ", silence, member))
				if j.real += silence; member == "new" {
					j.send(member, 0)
				}
				for range 5 {
					j.call(member)
					j.real += time.Second
				}
				want := int64(whole)
				switch {
				case silence > briefHold:
				case member == "a":
					want = whole / 2
				default:
					want = 0
				}
				if got := j.shares[member]; got != want {
					t.Errorf("%s: %s gets %d millionths %v after b, want %d", name, member, got, j.real, want)
				}
			}
		}
	}
}

// TestNewcomersThatDie has newcomers that never know the clock for long, one after the other. The store forgets them after the hold, as it
// forgets any other member that has no share.
func TestNewcomersThatDie(t *testing.T) {
	t.Parallel()
	for name, do := range both(t) {
		j := jumped(t, do, "acme")
		var r Reply
		for i := 0; j.real < 3*briefHold; j.real += 2500 * time.Millisecond {
			r = j.send(fmt.Sprint("new", i), 0)
			i++
		}
		if most := int64(briefHold/(2500*time.Millisecond)) + 3; r.Members > most {
			t.Errorf("%s: there are %d members, want at most %d", name, r.Members, most)
		}
		if n := j.others(); n > whole/2 {
			t.Errorf("%s: others than b get %d millionths, although nobody knows whether its half is still used", name, n)
		}
	}
}

// TestPausesAfterJumps has a pause of the class and one of a key. They do not end sooner because the clock is set forward, or later
// because nobody calls.
func TestPausesAfterJumps(t *testing.T) {
	t.Parallel()
	const pause = time.Hour
	for _, key := range []string{"", "k"} {
		for _, jump := range []time.Duration{0, 5 * time.Second, briefHold * 3 / 2, -briefHold * 3 / 2} {
			for name, do := range both(t) {
				j := jumped(t, do, fmt.Sprint("acme ", jump))
				begin := j.now()
				r, err := do(begin, &Call{Op: Pause, Class: j.class, Key: key, Member: "a", Wanted: pause.Microseconds()})
				if err != nil {
					t.Fatal(err)
				}
				passed := time.Second
				if jump == 0 {
					passed = 100 * time.Second
				}
				j.real += passed
				sent := j.now()
				j.skew += jump
				j.send("a", sent)
				if r, err = do(j.now(), &Call{Op: Take, Class: j.class, Key: "k", Member: "a"}); err != nil {
					t.Fatal(err)
				}
				till := max(r.Pause, r.PausedTill)
				if left := till.Sub(r.Now); (left - pause + passed).Abs() > time.Second {
					t.Errorf("%s, key %q: the clock is set by %v, and %v of the pause are left", name, key, jump, left)
				}
			}
		}
	}
}

// TestStoreThatStoodStill has a store that stands still for some seconds, and then gets a call of that time. It cannot tell that from a
// clock that was set forward. b may use its share by now: it counts as silent until it calls again.
func TestStoreThatStoodStill(t *testing.T) {
	t.Parallel()
	for name, do := range both(t) {
		j := jumped(t, do, "acme")
		j.call("b")
		sent := j.now().Add(100 * time.Millisecond)
		j.real += 5 * time.Second
		if r := j.send("a", sent); r.Silent != whole/2 {
			t.Errorf("%s: %d millionths are of silent members, want those of b", name, r.Silent)
		}
		if r := j.send("b", 0); r.Silent != whole/2 {
			t.Errorf("%s: %d millionths are of silent members, want those of a", name, r.Silent)
		}
		if r := j.call("a"); r.Silent != 0 {
			t.Errorf("%s: %d millionths are of silent members", name, r.Silent)
		}
	}
}
