package trial

import (
	"testing"
	"time"
)

// Patience is how long tests wait for what must happen, even on a busy machine.
const Patience = 5 * time.Minute

// Await waits until a condition holds that somebody else brings about: another goroutine, a program or the kernel. It
// looks every millisecond at first, and less often the longer it takes, since each look takes the other some time. If the
// condition does not hold within Patience, the test ends, and has failed; what says what it waited for. So only the goroutine
// of the test may call Await.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); {
		waited := time.Since(began)
		if waited > Patience {
			t.Fatalf("waited %v in vain for: %s", Patience, what)
		}
		time.Sleep(min(time.Millisecond+waited/20, 25*time.Millisecond))
	}
}
