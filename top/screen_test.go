package top

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestDrawOnlyWhatChanged(t *testing.T) {
	all := classes()
	all[2].WaitsFor = nil // its last milliseconds would count down
	m := shown(80, 24, all...)
	s := screen{looks: colours, width: 80}
	whole := string(s.draw(m.view()))
	if !strings.HasPrefix(whole, beginUpdate+clearScreen) || !strings.HasSuffix(whole, endUpdate) {
		t.Errorf("the first frame is %q", whole)
	}
	m.now = m.now.Add(10 * time.Millisecond)
	if text := s.draw(m.view()); text != nil {
		t.Errorf("nothing has changed, and it draws %q", text)
	}
	m.tree.Classes[3].Now = "997kbit"
	text := string(s.draw(m.view()))
	if !strings.HasPrefix(text, beginUpdate+"\x1b[7;1H") || !strings.Contains(text, "997kbit") || strings.Count(text, ";1H") != 1 || strings.Contains(text, clearScreen) {
		t.Errorf("for one class it draws %q", text)
	}
	s.forget()
	if again := string(s.draw(m.view())); len(again) != len(whole) {
		t.Errorf("it draws a whole frame of %d bytes, then of %d", len(whole), len(again))
	}
}

// A line as wide as the terminal leaves the cursor on the last column. To clear the rest of the line
// would clear that.
func TestLastColumnStays(t *testing.T) {
	s := screen{width: 3}
	if text := string(s.draw(frame{text("abc", plain), text("ab", plain)})); strings.Contains(text, "abc"+clearLine) || !strings.Contains(text, "ab"+clearLine) {
		t.Errorf("%q", text)
	}
}

func TestNoColour(t *testing.T) {
	m := shown(80, 24, classes()...)
	for _, c := range []struct {
		looks [nStyles]string
		has   bool
	}{{colours, true}, {noColor, false}} {
		s := screen{looks: c.looks, width: 80}
		text := string(s.draw(m.view()))
		if strings.Contains(text, "\x1b[33m") != c.has || strings.Contains(text, "\x1b[1;31m") {
			t.Errorf("colours: %v, want %v, in %q", !c.has, c.has, text)
		}
	}
}

func TestSampled(t *testing.T) {
	at := func(s ...int) (all []time.Time) {
		for _, n := range s {
			all = append(all, noon.Add(time.Duration(n)*time.Second))
		}
		return all
	}
	none := math.NaN()
	for _, c := range []struct {
		times  []time.Time
		values []float64
		parts  int
		want   string
	}{
		{at(0, 10, 20, 30), []float64{none, 1, 2, 3}, 3, "▃▅█"},
		{at(0, 10, 20, 30), []float64{3, 3, none, 3}, 3, "█ █"},
		{at(0, 1, 2, 3), []float64{0, 3, 0, 0}, 2, "█▁"}, // the larger of two
		{at(0, 20), []float64{none, 3}, 4, "████"},       // since the one before
		{at(0), []float64{3}, 3, "   "},
		{at(-90, -80, 5, 10), []float64{3, 3, 3, 1}, 2, "█▃"},
	} {
		from := c.times[0]
		if from.Before(noon) {
			from = noon
		}
		if got := plot(sampled(c.times, c.values, from, c.times[len(c.times)-1], c.parts), 3, 1)[0]; got != c.want {
			t.Errorf("%v at %v in %d parts: %q, want %q", c.values, c.times, c.parts, got, c.want)
		}
	}
	if got := plot([]float64{none, 0, 1, 8, 16}, 16, 2); got[0] != "    █" || got[1] != " ▁▁██" {
		t.Errorf("in two lines: %q", got)
	}
}

func TestPastIsBounded(t *testing.T) {
	var p past
	e := bulkPage()
	for i := range 5 * mostSeen {
		e.View.Class.BacklogItems = int64(i)
		p.add(noon.Add(time.Duration(i)*time.Second), e.View.Class)
	}
	n := len(p.times)
	if n > mostSeen || n < mostSeen/2 || len(p.values[waiting]) != n || !p.times[0].Before(noon.Add(time.Minute)) || p.values[waiting][n-1] != 5*mostSeen-1 {
		t.Errorf("%d samples since %v, the last is %v", n, p.times[0], p.values[waiting][n-1])
	}
	for i := 1; i < n; i++ {
		if !p.times[i].After(p.times[i-1]) || p.values[waiting][i] < p.values[waiting][i-1] {
			t.Fatalf("sample %d comes before sample %d", i, i-1)
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 49: "49", 999.4: "999", 1500: "1.5k", 999999: "1M", 2.5e13: "25T"} {
		if got := short(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}
