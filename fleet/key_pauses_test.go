package fleet

import (
	"fmt"
	"testing"
)

// TestKeyPausesAreBounded has more keys pause than a store keeps, and more than it names.
func TestKeyPausesAreBounded(t *testing.T) {
	var p keyPauses
	for i := range int64(maxPaused + 1) {
		p.add(0, fmt.Sprint(i), 1000+i)
	}
	if first, last := p.of(0, "0"), p.of(0, fmt.Sprint(maxPaused)); first != 0 || last != 1000+maxPaused || len(p.until) != maxPaused {
		t.Errorf("%d keys pause, the first until %d and the last until %d; the first is one too many", len(p.until), first, last)
	}
	for heard, want := range map[int64]int64{0: maxPaused + 2 - 64, maxPaused: maxPaused + 1, maxPaused + 2: maxPaused + 2 - 64} {
		if number, key := p.next(heard); number != want || key != fmt.Sprint(want-1) {
			t.Errorf("after %d comes %d, of key %s, want %d", heard, number, key, want)
		}
	}
	p.setBack(500)
	if till := p.of(0, "1"); till != 501 {
		t.Errorf("with a clock that is set back by 500, a pause until 1001 lasts until %d, want 501", till)
	}
	if till := p.of(501, "1"); till != 0 {
		t.Errorf("a pause that is over lasts until %d", till)
	}
}
