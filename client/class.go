package client

import (
	"fmt"

	"shaper/policy"
	"shaper/shaper"
	"shaper/unit"
)

// NewClass returns a class that limits to a rate, with a burst of what the rate counts.
// Whoever finds no room waits.
func NewClass(rate string, burst int) (*shaper.Class, error) {
	conf, err := configure(rate, burst)
	if err != nil {
		return nil, err
	}
	return shaper.NewLiveClass(conf), nil
}

// newLimits returns classes of a rate for what it counts: each way has one of its own.
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

// mostBurst is what a policy bounds a burst by, too.
const mostBurst = 1 << 43

// configure returns the policy of a class: a leaky bucket, or with a burst a token
// bucket.
func configure(rate string, burst int) (policy.Class, error) {
	parsed, err := unit.ParseRate(rate)
	if err != nil {
		return policy.Class{}, fmt.Errorf("client: %w", err)
	}
	if burst < 0 || int64(burst) > mostBurst {
		return policy.Class{}, fmt.Errorf("client: %d is not a burst; it is from 0, for none, to %d", burst, int64(mostBurst))
	}
	conf := policy.DefaultClass(rate)
	conf.Rate, conf.Overflow = parsed, policy.Wait
	if burst > 0 {
		conf.Algorithm, conf.Burst = policy.Token, policy.Burst{N: int64(burst), Kind: parsed.Kind()}
	}
	return conf, nil
}

// neverLimits returns the error of a class that counts nothing of what it is to limit.
func neverLimits(class *shaper.Class, why, instead string) error {
	kind := class.Rate().Kind()
	return fmt.Errorf("client: %q counts %v, and %s: it would never limit; a rate here is like %q", class.Name(), kind, why, instead)
}
