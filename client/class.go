package client

import (
	"fmt"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// NewClass returns a class with a rate such as "20 messages/s" (unit.ParseRate). A burst
// of n lets n of what the rate counts leave at once after a pause; 0 lets none. What finds
// the queue full waits.
func NewClass(rate string, burst int) (*shaper.Class, error) {
	conf, err := configure(rate, burst)
	if err != nil {
		return nil, err
	}
	return shaper.NewLiveClass(conf), nil
}

// newLimits returns Limits with the same rate for reads and for writes, or for opening if
// the rate counts connections. Each field gets a class of its own.
func newLimits(rate string, burst int) (Limits, error) {
	conf, err := configure(rate, burst)
	if err != nil {
		return Limits{}, err
	}
	if conf.Rate.Kind() == unit.Connections {
		return Limits{Open: shaper.NewLiveClass(conf)}, nil
	}
	return Limits{Read: shaper.NewLiveClass(conf), Write: shaper.NewLiveClass(conf)}, nil
}

// mostBurst is the largest burst. Policy files have the same bound.
const mostBurst = 1 << 43

// configure returns the policy of a class: a leaky bucket if burst is 0, else a token bucket.
func configure(rate string, burst int) (policy.Class, error) {
	parsed, err := unit.ParseRate(rate)
	if err != nil {
		return policy.Class{}, fmt.Errorf("client: %w", err)
	}
	if burst < 0 || int64(burst) > mostBurst {
		return policy.Class{}, fmt.Errorf("client: %d is not a burst; a burst is from 0, which is none, to %d", burst, int64(mostBurst))
	}
	conf := policy.DefaultClass(rate)
	conf.Rate, conf.Overflow = parsed, policy.Wait
	if burst > 0 {
		conf.Algorithm, conf.Burst = policy.Token, policy.Burst{N: int64(burst), Kind: parsed.Kind()}
	}
	return conf, nil
}

// neverLimits returns the error for a class that counts nothing of what it should limit.
func neverLimits(class *shaper.Class, why, instead string) error {
	kind := class.Rate().Kind()
	return fmt.Errorf("client: %q counts %v, and %s: it would never limit; a rate here is like %q", class.Name(), kind, why, instead)
}
