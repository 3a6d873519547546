package daemon

import (
	"context"
	"errors"
)

// An actor is something that runs until it is told to stop.
type actor struct {
	execute   func() error // returns when nothing of the actor runs any more
	interrupt func()       // makes execute return; it may have returned already
}

// until makes an actor of a function that ends with its context.
func until(f func(context.Context)) actor {
	ctx, cancel := context.WithCancel(context.Background())
	return actor{
		execute:   func() error { f(ctx); return nil },
		interrupt: cancel,
	}
}

// runAll executes all actors until one returns. Then it interrupts all of
// them, and returns their errors when the last one has returned.
func runAll(actors ...actor) error {
	ended := make(chan error, len(actors))
	for _, a := range actors {
		go func() { ended <- a.execute() }()
	}
	var errs []error
	for i := range actors {
		errs = append(errs, <-ended)
		if i > 0 {
			continue
		}
		for _, a := range actors {
			a.interrupt()
		}
	}
	return errors.Join(errs...)
}
