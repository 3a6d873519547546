package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// Items of many sizes use the limit as those of one size do: a member asks for whole items.
func TestFleetOfManySizes(t *testing.T) {
	span := trial.Size(20*time.Second, time.Minute)
	const ms = time.Millisecond
	const units = "cost = { bytes = 100 }\n"
	below := func(name, more string) string {
		return "[class." + name + "]\nrate = \"100000 tokens/s\"\nalgorithm = \"gcra\"\nparent = \"acme\"\nqueue = \"20000 items\"\n" + units + more
	}
	for _, c := range []struct {
		name    string
		rate    int // in units of 100 bytes, of which items have 1 to 5
		bytes   bool
		delay   time.Duration
		classes []string // beneath the shared class
		least   float64  // of the limit less its headroom
	}{
		{"400", 400, false, 2 * ms, nil, 0.95},
		{"400, far", 400, false, 10 * ms, nil, 0.95},
		{"100", 100, false, 2 * ms, nil, 0.95},
		{"2000", 2000, false, 2 * ms, nil, 0.95},
		{"bytes", 400, true, 2 * ms, nil, 0.95},
		{"400 of one class", 400, false, 2 * ms, []string{below("one", "")}, 0.95},
		{"400 of two classes", 400, false, 2 * ms, []string{below("one", ""), below("two", "")}, 0.80},
		{"400 of an urgent class", 400, false, 2 * ms, []string{below("one", ""), below("two", "priority = 1\n")}, 0.80},
	} {
		t.Run(c.name, func(t *testing.T) {
			class := fmt.Sprintf("rate = \"%d tokens/s\"\n", c.rate) + units
			if c.bytes {
				class = fmt.Sprintf("rate = \"%dB/s\"\n", 100*c.rate)
			}
			class += "headroom = \"5%\"\nshared = \"prod\"\nqueue = \"20000 items\"\n"
			listeners := []string{"gateway"}
			for i, of := range c.classes {
				class += of
				name := []string{"one", "two"}[i]
				class += fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:%d\"\nprotocol = \"http\"\nupstream = \"192.0.2.2:2775\"\nclass = \"%s\"\n", name, 3000+i, name)
				listeners = append(listeners[:i], name)
			}
			var loads []string
			for _, l := range listeners {
				for size := 100; size <= 500; size += 100 {
					loads = append(loads, fmt.Sprintf("listener=%s,pattern=poisson,rate=%d messages/s,size=%dB", l, c.rate*2/15/len(listeners), size))
				}
			}
			var left []fleettest.Departure
			p, total := parse(t, strings.Replace(policyOf(class), "smpp", "http", 1)), int64(0)
			_, err := RunFleet(p, dealt(t, p, 4, 1, loads...), c.delay, Options{For: span, Departures: func(d *Departure) error {
				n := d.Bytes / 100
				left, total = append(left, fleettest.Departure{Member: fmt.Sprint(d.Member), At: d.At.Sub(Epoch), Units: n}), total+n
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			used := float64(total) / (float64(c.rate) * span.Seconds()) / 0.95
			t.Logf("%d items have left, %.1f %% of the limit", len(left), 100*used)
			if used < c.least || used > 1.01 {
				t.Errorf("%.1f %% of the limit is used", 100*used)
			}
			fleettest.Sort(left)
			if err := fleettest.Gaps(left, time.Second/time.Duration(c.rate), 0); err != nil && !c.bytes {
				t.Error(err)
			}
		})
	}
}
