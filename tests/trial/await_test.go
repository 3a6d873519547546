package trial

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// hopeful is a test that notes why it fails.
type hopeful struct {
	testing.TB
	failure string
}

func (h *hopeful) Fatalf(format string, args ...any) {
	h.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestAwait waits for what comes soon, late, and never.
func TestAwait(t *testing.T) {
	for _, c := range []struct {
		comes time.Duration
		late  time.Duration // at most
	}{{0, 0}, {time.Millisecond, time.Millisecond}, {100 * time.Millisecond, 6 * time.Millisecond}, {Patience - time.Second, 25 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			Await(t, "it comes", func() bool { return time.Since(began) >= c.comes })
			if late := time.Since(began) - c.comes; late > c.late {
				t.Errorf("what comes after %v is seen %v late, want at most %v", c.comes, late, c.late)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		h := &hopeful{TB: t}
		began, ended := time.Now(), make(chan struct{})
		go func() {
			defer close(ended)
			Await(h, "the moon", func() bool { return false })
		}()
		<-ended
		if want := "waited 5m0s in vain for: the moon"; h.failure != want {
			t.Errorf("it fails with %q, want %q", h.failure, want)
		}
		if took := time.Since(began); took > Patience+50*time.Millisecond {
			t.Errorf("it takes %v", took)
		}
	})
}
