package exchange

import (
	"time"

	"shaper/frame"
	"shaper/shaper"
	"shaper/stats"
	"shaper/unit"
)

// hearHints tells the class of a request what the head of its answer says of the limits of the
// provider, if the class wants that. charged is what the request was charged.
func hearHints(class *shaper.Class, now time.Time, charged charge, fields []byte) {
	if !class.Messages().TakesHints() {
		return
	}
	var said frame.Hints
	said.Read(fields, now)
	for range said.Unclear {
		class.Tally().Hinted(stats.HintUnclear)
	}
	var all [16]shaper.Hint
	hints := all[:0]
	for _, h := range said.All() {
		hints = append(hints, shaper.Hint{Kind: kindOf(h.Unit), ID: h.ID, Remaining: h.Remaining, Until: now.Add(h.For)})
	}
	class.Provider().Heard(now, charged.at, charged.cost, hints)
}

// kindOf returns the unit of a hint; Bytes, which no class of messages counts, for an unknown one.
func kindOf(of frame.HintUnit) unit.Kind {
	switch of {
	case frame.HintRequests:
		return unit.Messages
	case frame.HintTokens:
		return unit.Tokens
	}
	return unit.Bytes
}
