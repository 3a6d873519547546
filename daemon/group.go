package daemon

import (
	"context"
	"errors"
)

// An actor runs until it ends by itself or is interrupted.
type actor struct {
	execute   func() error // returns when nothing of the actor runs any longer
	interrupt func()       // makes execute return; may come after execute has returned
}

// until returns an actor that runs a function until its context ends.
func until(f func(context.Context)) actor {
	ctx, cancel := context.WithCancel(context.Background())
	return actor{
		execute:   func() error { f(ctx); return nil },
		interrupt: cancel,
	}
}

// runAll executes all actors until one returns. Then it interrupts all of them, waits for the
// last to return, and returns their errors joined.
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
