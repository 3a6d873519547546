package daemon

import (
	"context"
	"errors"
	"testing"
)

// When one actor ends, runAll interrupts the others and waits for all.
func TestRunAll(t *testing.T) {
	failed, late := errors.New("failed"), errors.New("late")
	stop, ended := make(chan struct{}), 0
	waits := actor{
		execute:   func() error { <-stop; ended++; return late },
		interrupt: func() { close(stop) },
	}
	follows := until(func(ctx context.Context) { <-ctx.Done() })
	err := runAll(waits, follows, actor{func() error { return failed }, func() {}})
	if !errors.Is(err, failed) || !errors.Is(err, late) || ended != 1 {
		t.Errorf("runAll is %v after %d ends", err, ended)
	}
}

func TestRunAllWithoutErrors(t *testing.T) {
	if err := runAll(until(func(context.Context) {}), until(func(ctx context.Context) { <-ctx.Done() })); err != nil {
		t.Error(err)
	}
}
