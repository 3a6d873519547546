package shaper

import "time"

// A learner finds a limit of the provider that nobody has written down, below the rate of a
// class. It knows only which messages the provider refuses as too fast.
//
// It paces the class at a level, and judges that by epochs of 100 answers. Two refusals in one
// make it fail. Then the level goes down by 4 %, and by twice as much for each further failure
// in a row. So the limit is in a bracket: below it is a level that held, above it one that
// failed. The learner halves the bracket until its ends are within 2 %, and then stays at the
// level that held. Above that level, each refusal makes a level fail. It goes up only while
// the class is saturated. When 4,096 more answers and five minutes have passed, it tries a level
// 2 % higher, and then 5 % higher each time. So while the limit stays, it costs some two refusals
// in 4,096 messages.
//
// A refusal that a slower pace does not prevent is not about the pace. So if the fraction of
// refusals does not fall by half below a level that failed with a fraction of up to 4 %, the
// learner goes back to that level. It takes that fraction as usual, and then tolerates three times
// as much; above a level that held, three in 100 at most. If it sees such refusals at a level that
// holds, it tests them in the same way, once for each rest.
//
// A schedule or `shaper set` may lower the top to the level, or below it, for a while. Then the class is
// paced at the top, and keeps the level for when the top is above it again. If the top fails, the level
// goes down from there.
//
// The lock of the tree guards a learner.
type learner struct {
	top, floor float64 // messages a second: the bounds of the pace

	level     float64 // the pace, or what was found if that is above the top
	found     bool    // level was found, and is not just the top; a top may be lowered to it
	low, high float64 // the ends of the bracket; 0: not found
	rest      rest
	usual     refusals // what is refused at levels that hold
	failed    attempt  // the level that failed first, until a lower one is judged; zero: there is none
	fails     int      // how many levels have failed in a row

	// The epoch.
	since         time.Time
	paused        time.Duration // how long the class has paused in it
	sent, refused int           // answers
	stale         int           // how many answers to come belong to the level before
	settled       time.Time     // answers that come before still show that level
}

// refusals say how many of some answers were refusals.
type refusals struct{ sent, refused float64 }

// fraction returns which part of the answers were refusals.
func (s refusals) fraction() float64 { return s.refused / max(s.sent, 1) }

// add adds the answers of an epoch. It halves the weight of those long ago.
func (s *refusals) add(sent, refused int) {
	if s.sent > 4000 {
		s.sent, s.refused = s.sent/2, s.refused/2
	}
	s.sent, s.refused = s.sent+float64(sent), s.refused+float64(refused)
}

// An attempt compares a level with a lower one, to see whether that is refused less.
type attempt struct {
	level, fraction float64 // the higher level, and which fraction was refused there
	tests           bool    // the higher level holds; the attempt tests whether its fraction is usual
	high            float64 // with tests: the upper end of the bracket before
}

// A rest is the time in which no higher level is tried.
type rest struct {
	until   time.Time
	answers int  // since it began
	tested  bool // the usual fraction was tested
}

const (
	epochAnswers = 100             // answers by which a level is judged
	testEpochs   = 3               // epochs by which a test is judged
	leastDrop    = 0.04            // of the level that fails first
	rare         = 0.04            // a larger fraction of refusals is never usual
	notable      = 0.001           // a larger usual fraction is tested
	closedAt     = 1.02            // the ends of a closed bracket
	restAnswers  = 4096            // the least rest
	restTime     = 5 * time.Minute // and its least time
	settleTime   = time.Second     // providers count by the second
)

func newLearner(top, floor float64) *learner { return &learner{top: top, floor: floor, level: top} }

// bound changes the bounds. A level that was found stays, even if it is above the new top. If none was
// found, the level is the new top.
func (l *learner) bound(top, floor float64) {
	if l.found {
		l.level = max(l.level, floor)
	} else {
		l.level = top
	}
	l.top, l.floor = top, floor
	if l.low > l.level {
		l.low = 0
	}
	l.begin(0)
}

// part returns the pace as a part of the top, which is the rate of the class: 1 at most.
func (l *learner) part() float64 {
	if l.level >= l.top {
		return 1
	}
	return l.level / l.top
}

// learns reports whether there is a pace to try. There is none while a rate is lowered to the floor.
func (l *learner) learns() bool { return l != nil && l.top > l.floor }

// goOn goes on from what a learner of an earlier process has found: its level, and the ends of its
// bracket. If a level was tried above low, which held, goOn goes on from low.
func (l *learner) goOn(now time.Time, level, low, high float64) {
	if low > 0 {
		level = low
	}
	if level <= 0 {
		return
	}
	l.level, l.found, l.low, l.high = max(level, l.floor), true, 0, 0
	if low >= l.floor {
		l.low = l.level
	}
	if high > l.level {
		l.high = high
	}
	if l.low > 0 && l.high > 0 && l.high <= l.low*closedAt {
		l.rest = rest{until: now.Add(restTime)}
	}
	l.begin(0)
}

// begin begins an epoch. The next stale answers are not about its level.
func (l *learner) begin(stale int) { l.sent, l.refused, l.stale = 0, 0, stale }

// answered counts an answer, and judges the level when enough of them have come. inFlight is how many
// requests have no answer yet: if the level changes, their answers are about the level before. answered
// reports whether the level has changed.
func (l *learner) answered(now time.Time, refused bool, inFlight int) (changed bool) {
	if l.stale--; l.stale >= 0 || now.Before(l.settled) || !l.learns() {
		return false
	}
	l.stale = 0
	if l.sent == 0 {
		l.since, l.paused = now, 0
	}
	was := l.level
	if l.sent++; refused {
		l.refused++
	}
	switch {
	case refused && float64(l.refused) > l.tolerated():
		l.fail(now)
	case l.sent >= l.length():
		l.pass(now)
	}
	if l.level == was {
		return false
	}
	l.found = l.level != l.top
	if l.begin(inFlight); l.level < was {
		l.settled = now.Add(settleTime)
	}
	return true
}

// probes reports whether the level is above one that held.
func (l *learner) probes() bool { return l.low > 0 && l.level > l.low }

// length returns how many answers judge the level.
func (l *learner) length() int {
	if l.failed.tests {
		return testEpochs * epochAnswers
	}
	return epochAnswers
}

// tolerated returns how many refusals the level survives.
func (l *learner) tolerated() float64 {
	n := 3 * min(l.usual.fraction(), rare) * float64(l.length())
	if l.probes() {
		return min(n, 0.03*epochAnswers)
	}
	return n + 1
}

// fail goes down: the level has too many refusals.
func (l *learner) fail(now time.Time) {
	fraction := float64(l.refused) / float64(max(l.sent, epochAnswers/2))
	l.level = min(l.level, l.top) // the pace that has failed
	switch {
	case l.probes():
		l.high, l.level, l.fails = l.level, l.low, 0
		if l.high <= l.low*closedAt {
			l.rest = rest{until: now.Add(restTime)}
		}
	case l.isUsual(fraction):
		l.dismiss(now)
	default:
		if l.fails == 0 {
			l.failed = attempt{level: l.level, fraction: fraction}
		}
		l.high, l.low = l.level, 0
		l.lower(leastDrop * float64(int(1)<<min(l.fails, 4)))
		l.fails++
	}
}

// lower takes a part of the level away, half of it at most.
func (l *learner) lower(part float64) { l.level = max(l.floor, l.level*(1-min(part, 0.5))) }

// isUsual reports whether a fraction of refusals shows that they are not about the pace: it has not fallen
// by half below the level that failed.
func (l *learner) isUsual(fraction float64) bool {
	return l.failed.fraction > 0 && l.failed.fraction < rare && l.fails <= 1 && fraction >= l.failed.fraction/2
}

// dismiss goes back to the level that failed: it has not caused the refusals, which are usual.
func (l *learner) dismiss(now time.Time) {
	l.usual.add(l.sent, l.refused)
	l.level, l.low, l.high = l.failed.level, l.failed.level, l.failed.high
	l.failed, l.fails = attempt{}, 0
	l.rest = rest{until: now.Add(restTime), tested: true}
	l.begin(0)
}

// pass judges a level that has not failed in its epoch.
func (l *learner) pass(now time.Time) {
	n, fraction := l.sent, float64(l.refused)/float64(l.sent)
	if l.isUsual(fraction) {
		l.dismiss(now)
		return
	}
	if l.level > l.top { // the top has held, and says nothing about the level
		l.begin(0)
		return
	}
	saturated := float64(n) >= 0.8*l.level*(now.Sub(l.since)-l.paused).Seconds()
	refused := l.refused
	l.begin(0)
	if !saturated { // a higher level might fail, and this one too
		return
	}
	if l.failed.fraction > 0 { // going down has helped
		if l.usual = (refusals{}); l.failed.tests {
			l.high = l.failed.level
		}
	}
	l.failed, l.fails, l.low = attempt{}, 0, l.level
	l.usual.add(n, refused)
	l.rest.answers += n
	l.next(now)
}

// next chooses the level after one that held.
func (l *learner) next(now time.Time) {
	rests := now.Before(l.rest.until) || l.rest.answers < restAnswers && !l.rest.until.IsZero()
	switch {
	case l.high > l.low*closedAt:
		l.level = min((l.low+l.high)/2, l.low*1.25)
	case !l.rest.tested && l.usual.sent >= 2*epochAnswers && l.usual.fraction() > notable:
		l.failed, l.low = attempt{level: l.level, fraction: l.usual.fraction(), tests: true, high: l.high}, 0
		drop := 0.02 + 2*l.usual.fraction() // more than if the level were above a limit by as much as is refused
		if l.rest.tested = true; l.high == 0 {
			drop = max(drop, 0.15)
		}
		l.lower(drop)
	case rests:
	case l.high > 0 && l.rest.until.IsZero():
		l.rest = rest{until: now.Add(restTime)}
	case l.high > 0:
		l.high = 0
		l.level = min(l.top, l.low*1.02)
	case l.low < l.top:
		l.level = min(l.top, l.low*1.05)
	default:
		l.rest.tested = false
	}
}
