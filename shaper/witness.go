package shaper

import "time"

// A witness estimates the limit of a provider for a class with learn in the shadow. Such a class
// paces nothing, so it cannot try levels as a learner does. It only watches the answers. In a second
// in which the provider refuses some messages, it accepts as many as its limit allows. So the limit
// is the mean of what it accepts in such seconds. If the provider allows bursts, the first such
// seconds are too high. If few of all answers are refusals, these are not about the pace, and there
// is no estimate.
//
// The lock of the tree guards a witness.
type witness struct {
	top, floor float64 // the rate of the class and learn.floor, in messages a second

	since             time.Time // when the present second began
	accepted, refused int       // answers in it
	seconds           int       // how many seconds had refusals; witnessed at most
	mean              float64   // messages accepted in a second with refusals
	usual             refusals  // among all answers
}

// witnessed is how many seconds with refusals the mean is about, the latest ones.
const witnessed = 64

// answered notes an answer: that the provider has refused a message as too fast, or that it has
// accepted one. A nil witness watches nothing.
func (w *witness) answered(now time.Time, refused bool) {
	if w == nil {
		return
	}
	if past := now.Sub(w.since); past >= time.Second {
		w.judge()
		w.accepted, w.refused, w.since = 0, 0, now
		if past < 2*time.Second { // while messages come, each second begins where the last one ends
			w.since = now.Add(time.Second - past)
		}
	}
	if refused {
		w.refused++
	} else {
		w.accepted++
	}
}

// judge judges the second that has ended.
func (w *witness) judge() {
	w.usual.add(w.accepted+w.refused, w.refused)
	if w.accepted == 0 || w.refused == 0 { // the provider accepts nothing, or the class is below the limit
		return
	}
	w.seconds = min(w.seconds+1, witnessed)
	w.mean += (float64(w.accepted) - w.mean) / float64(w.seconds)
}

// found returns the limit of the provider, in messages a second, and not below the floor. It returns
// 0 if there is none to tell: refusals are rare, or the provider accepts the whole rate.
func (w *witness) found() float64 {
	if w == nil || w.mean == 0 || w.mean >= w.top || w.top <= w.floor || w.usual.fraction() <= rare {
		return 0
	}
	return max(w.mean, w.floor)
}
