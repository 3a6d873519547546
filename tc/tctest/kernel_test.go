package tctest

import (
	"errors"
	"syscall"
	"testing"
)

// The kernel in memory refuses what that of the machine does; tests/ has the other half.
func TestCases(t *testing.T) {
	k := New("eth0")
	l, err := k.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range Cases() {
		if _, err := k.Execute(c.Request(l.Attrs().Index)); !is(err, c.Want) {
			t.Errorf("%d: %v: %v, not %v", i, c, err, c.Want)
		}
	}
}

// is reports whether an error is one of the kernel's; 0: none.
func is(err error, want syscall.Errno) bool {
	if want == 0 {
		return err == nil
	}
	return errors.Is(err, want)
}
