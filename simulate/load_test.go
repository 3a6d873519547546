package simulate

import (
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// firsts returns when the first n items of a load are sent.
func firsts(t *testing.T, text string, n int) (at []time.Duration) {
	t.Helper()
	p := parse(t, "[class.a]\nrate = \"1 packets/s\"\n"+udp("in", "a"))
	source := loads(t, p, text)[0]
	for range n {
		var a Arrival
		if err := source.Next(&a); err == io.EOF {
			return at
		} else if err != nil {
			t.Fatal(err)
		}
		at = append(at, a.At.Sub(Epoch))
	}
	return at
}

func TestPatterns(t *testing.T) {
	const ms = time.Millisecond
	for text, want := range map[string][]time.Duration{
		"rate=100 packets/s":                                   {0, 10 * ms, 20 * ms, 30 * ms},
		"rate=1MB/s,size=1000B":                                {0, ms, 2 * ms},
		"rate=3 packets/s":                                     {0, 333_333_334, 666_666_667, time.Second},
		"rate=1 packets/min":                                   {0, time.Minute},
		"rate=1 packets/s,count=2":                             {0, time.Second},
		"rate=1 packets/s,start=7ms":                           {7 * ms, 1007 * ms},
		"rate=100 packets/s,pattern=bursts,on=20ms,off=80ms":   {0, 10 * ms, 100 * ms, 110 * ms, 200 * ms},
		"rate=3 packets/s,pattern=seconds,start=900ms,count=5": {900 * ms, 900 * ms, 900 * ms, 1900 * ms, 1900 * ms},
	} {
		n := len(want)
		if strings.Contains(text, "count") {
			n++
		}
		if got := firsts(t, text, n); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// The gaps of a Poisson process have the mean of its rate, and a deviation of the same size.
func TestPoisson(t *testing.T) {
	const n = 100_000
	at := firsts(t, "rate=1000 packets/s,pattern=poisson", n+1)
	var squares float64
	for i := range n {
		gap := (at[i+1]-at[i]).Seconds()*1000 - 1
		squares += gap * gap
	}
	mean, deviation := (at[n]-at[0]).Seconds()*1000/n, math.Sqrt(squares/n)
	if math.Abs(mean-1) > 0.02 || math.Abs(deviation-1) > 0.02 {
		t.Errorf("gaps of %v ms with a deviation of %v ms, want 1 and 1", mean, deviation)
	}
}

// The longest times that can be written do not overflow.
func TestLoadsEnd(t *testing.T) {
	for _, text := range []string{
		"rate=1 packets/8784h,start=2500000h", "rate=1B/s,size=4000GB",
		"rate=1 packets/s,pattern=bursts,on=1s,off=2500000h",
	} {
		at := firsts(t, text, 1000)
		if !slices.IsSorted(at) || at[0] < 0 {
			t.Errorf("%s: %v", text, at[:min(len(at), 5)])
		}
	}
}

func TestLoadErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  `"" is not KEY=VALUE; a load is like`,
		"pattern=poisson":                   `the rate is missing; a load is like`,
		"rate=5":                            `rate: "5" is not a rate: `,
		"rate=0 packets/s":                  `rate: "0 packets/s" sends nothing; a rate above 0`,
		"rate=1 pkt/s,rate=2 pkt/s":         "rate is given twice; ",
		"rate=1 pkt/s,colour=red":           `"colour" is not a key of a load; the keys are listener, source, `,
		"rate=1 pkt/s,pattern=saw":          `pattern: "saw" is not a pattern; it is constant, `,
		"rate=1 pkt/s,source=me":            `source: "me" is not a client; a client is like`,
		"rate=1 pkt/s,port=0":               `port: "0" is not a port; `,
		"rate=1 pkt/s,count=0":              `count: "0" is not a count; `,
		"rate=1 pkt/s,on=1s":                "on and off are for bursts; ",
		"rate=1 pkt/s,pattern=bursts,on=1s": "bursts have no length; ",
		"rate=1mbit,size=0B":                `size: items of 0B never make up "1mbit"; `,
		"rate=1 pkt/min,pattern=seconds":    `rate: "1 packets/min" is less than one item a second; `,
		"rate=10GB/s,size=1B":               "is more than one item in a nanosecond; ",
	} {
		if _, err := ParseLoad(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	p := parse(t, "[class.a]\nrate = \"1 packets/s\"\n"+udp("in", "a"))
	if _, err := Sources(p, []Load{{Listener: "out"}}, 1); err == nil || err.Error() != `there is no listener "out"; listeners: in` {
		t.Error(err)
	}
}
