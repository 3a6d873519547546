package policy

import (
	"fmt"

	"shaper/unit"
)

// Retry says that shaper sends a message again that the provider has refused as too fast. The
// zero Retry sends none again.
type Retry struct {
	Max int `json:"max"` // how often a message is sent again at most
	// InFlight is how many messages of a class and a connection may be sent and not yet
	// answered. With 1, no later message is accepted before one that is sent again.
	InFlight int `json:"in_flight"`
}

// DefaultRetry keeps the order. If the provider does not say how long to wait, its three pauses take
// 7 s together.
var DefaultRetry = Retry{Max: 3, InFlight: 1}

// What is kept of messages that may have to be sent again, in memory: their bytes, and with
// HTTP their bodies. A message for which there is no room is not sent again. It counts towards
// ConnectionHolds, too.
const (
	RetryHolds   = 256 * unit.KiB // the longest message that is kept
	RetriesHolds = 64 * unit.MiB  // all messages of the process together
)

const (
	retryForm = `a table like { max = 3 }`
	maxForm   = `an integer from 1 to 100`
	orderForm = `an integer from 1 to 4096`
)

var (
	parseRetryMax = integer(1, 100, maxForm)
	parseInOrder  = integer(1, 4096, orderForm)
)

// String prints the table as in a policy file, and the zero Retry as "".
func (r Retry) String() string {
	if r == (Retry{}) {
		return ""
	}
	return fmt.Sprintf("{ max = %d, in_flight = %d }", r.Max, r.InFlight)
}

var retryFields = []field[Retry]{
	onlyIntegers(one("max", maxForm, func(r *Retry) *int { return &r.Max }, parseRetryMax)),
	onlyIntegers(one("in_flight", orderForm, func(r *Retry) *int { return &r.InFlight }, parseInOrder)),
}
