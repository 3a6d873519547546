package simulate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"
)

// once runs a workload of all patterns, and returns all results.
func once(t *testing.T, seed uint64) (report, departures, plot string) {
	t.Helper()
	p := parse(t, account+udp("urgent", "urgent")+udp("bulk", "bulk")+"[class.stream]\nrate = \"1mbit\"\n"+tcp("web", "stream"))
	var list []Load
	for _, text := range []string{"rate=200 packets/s,pattern=poisson", "rate=1mbit,pattern=bursts,on=100ms,off=50ms", "rate=30 packets/s,pattern=seconds"} {
		l, err := ParseLoad(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, l)
	}
	sources, err := Sources(p, list, seed)
	if err != nil {
		t.Fatal(err)
	}
	var left, image bytes.Buffer
	write, _ := WriteDepartures(&left, false)
	r, err := Run(p, sources, Options{For: 5 * time.Second, Curves: true, Departures: write})
	if err != nil {
		t.Fatal(err)
	}
	if err := Plot(&image, r, r); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), left.String(), image.String()
}

func TestTheSameSeedGivesTheSame(t *testing.T) {
	report, departures, plot := once(t, 1)
	again, departuresAgain, plotAgain := once(t, 1)
	if report != again || departures != departuresAgain || plot != plotAgain {
		t.Error("two runs of the same workload differ")
	}
	if other, _, _ := once(t, 2); other == report {
		t.Error("another seed changes nothing")
	}
	if !strings.HasPrefix(departures, "time,wait,class,client,bytes\n0.000000000,0.000000000,") {
		t.Errorf("departures begin with %.100s", departures)
	}
}

func TestPlotIsXML(t *testing.T) {
	_, _, plot := once(t, 1)
	in, panels := xml.NewDecoder(strings.NewReader(plot)), 0
	for {
		token, err := in.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "g" {
			panels++
		}
	}
	if panels != 8 {
		t.Errorf("%d panels, want 4 classes of 2 reports", panels)
	}
	if len(plot) > 300_000 {
		t.Errorf("the image has %d bytes", len(plot))
	}
	var empty bytes.Buffer
	if err := Plot(&empty, &Report{}); err != nil || xml.Unmarshal(empty.Bytes(), new(struct{})) != nil {
		t.Errorf("a plot of no reports: %v\n%s", err, &empty)
	}
}

// A curve has few steps. It loses only the exact times.
func TestCurve(t *testing.T) {
	c, most := newCurve(), uint64(0)
	at := time.Duration(0)
	for i := range uint64(100_000) {
		at += time.Duration(i%7) * time.Millisecond
		waiting := i * 7919 % 1000
		most = max(most, waiting)
		c.note(at, point{i, i / 2, waiting})
	}
	steps := c.filled().steps
	last, highest := steps[len(steps)-1], uint64(0)
	for i, s := range steps {
		highest = max(highest, s.Most)
		if i > 0 && s.Last.Offered < steps[i-1].Last.Offered {
			t.Fatalf("step %d goes back", i)
		}
	}
	if len(steps) > maxSteps || len(steps) < maxSteps/2-1 || last.Last.Offered != 99_999 || highest != most {
		t.Errorf("%d steps end with %+v, and at most %d wait, want %d", len(steps), last, highest, most)
	}
	if end := time.Duration(len(steps)) * c.step; end <= at || end > at+c.step {
		t.Errorf("the curve ends at %v, want %v", end, at)
	}
}
