package trial

import "testing"

// ending notes how a test ends.
type ending struct {
	testing.TB
	how string
}

func (e *ending) Fatalf(string, ...any) { e.how += "fatal " }

func (e *ending) Skipf(string, ...any) { e.how += "skip " }

func TestSkipUnlessCI(t *testing.T) {
	for ci, want := range map[string]string{"": "skip ", "true": "fatal skip "} { // a real Fatalf does not return
		t.Setenv("CI", ci)
		e := &ending{TB: t}
		if SkipUnlessCI(e, "it lacks something"); e.how != want {
			t.Errorf("with CI=%s: %s, want %s", ci, e.how, want)
		}
	}
}
