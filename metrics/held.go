package metrics

import (
	"slices"
	"time"

	"shaper/stats"
)

// heldUntil returns for each class until when nothing leaves of what waits in it and beneath it: until the
// first of that may leave. It is the zero time if nothing waits, if something waits only for its turn, or if nobody
// knows until when.
func heldUntil(classes []stats.ClassReading) map[string]time.Time {
	beneath, all := map[string][]stats.ClassReading{}, make(map[string]time.Time, len(classes))
	for _, c := range classes {
		beneath[c.Parent] = append(beneath[c.Parent], c)
	}
	for _, c := range beneath[""] {
		hold(c, beneath, all)
	}
	return all
}

// hold puts into all until when a class is held, and those beneath it in which something waits. The reading of a
// class tells what the first of all these items waits for. That is not enough, because it passes over those of which nobody knows
// until when they wait.
func hold(c stats.ClassReading, beneath map[string][]stats.ClassReading, all map[string]time.Time) {
	own, holds := c.BacklogItems, []time.Time(nil)
	for _, child := range beneath[c.Name] {
		if child.BacklogItems > 0 {
			hold(child, beneath, all)
			own, holds = own-child.BacklogItems, append(holds, all[child.Name])
		}
	}
	if own > 0 || holds == nil {
		waits := stats.Hold{}
		if c.WaitsFor != nil {
			waits = *c.WaitsFor
		}
		holds = append(holds, waits.Until)
	}
	all[c.Name] = slices.MinFunc(holds, time.Time.Compare)
}
