package shaper

import "time"

// A witness watches what a provider accepts from a class with learn in the shadow. That paces
// nothing, so no level can be tried. But in a second in which the provider refuses some
// messages, it accepts as many as it ever does: their mean is the limit. A burst that the
// provider takes adds to the first such seconds. Rare refusals are not about the pace.
type witness struct {
	top, floor float64 // messages a second

	since             time.Time // a second begins
	accepted, refused int       // in it
	seconds           int       // how many seconds had refusals, witnessed at most
	mean              float64   // of what was accepted in those
	usual             refusals  // among all answers
}

// The mean is about so many seconds with refusals, the last ones.
const witnessed = 64

// answered notes an answer. A nil witness watches nothing.
func (w *witness) answered(now time.Time, refused bool) {
	if w == nil {
		return
	}
	if past := now.Sub(w.since); past >= time.Second {
		w.judge()
		w.accepted, w.refused, w.since = 0, 0, now
		if past < 2*time.Second { // seconds follow each other without gaps while messages come
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
	if w.accepted == 0 || w.refused == 0 { // locked out, or below the limit
		return
	}
	w.seconds = min(w.seconds+1, witnessed)
	w.mean += (float64(w.accepted) - w.mean) / float64(w.seconds)
}

// found returns the limit; 0 if refusals are rare, or the provider takes as much as the rate.
func (w *witness) found() float64 {
	if w == nil || w.mean == 0 || w.mean >= w.top || w.top <= w.floor || w.usual.share() <= rare {
		return 0
	}
	return max(w.mean, w.floor)
}
