package simulate

import (
	"math"
	"testing"
	"time"

	"shaper/policy"
)

// The level of a token bucket is what its algorithm promises: it begins full, sinks with each departure,
// and fills at the rate until it is full again. Other algorithms have none.
func TestLevel(t *testing.T) {
	p, _, err := policy.Parse("shaper.toml", []byte(bucketsPolicy))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"token", "gcra"} {
		r, err := Run(p, loads(t, p, "listener="+name+",rate=200 packets/s,pattern=bursts,on=40ms,off=10s,start=500ms"), Options{For: 5 * time.Second, Curves: true})
		if err != nil {
			t.Fatal(err)
		}
		c, _ := r.Class(name)
		course := c.Course()
		if n := len(course.Level); n < maxSteps/2 || n > maxSteps || course.Level[0] != 10 {
			t.Fatalf("%s: %d steps, the first at %v", name, n, course.Level[0])
		}
		// Eight packets leave in the first 40 ms of the burst; four more tokens a second come back.
		for i, got := range course.Level {
			after := time.Duration(i) * time.Duration(course.LevelStep)
			least, most := 10., 10.
			if since := (after - 500*time.Millisecond).Seconds(); since > 0 {
				sent := min(8, math.Ceil(since*200))
				least, most = max(0, 10-sent-1), min(10, 10-sent+4*since+1e-6)
				if since > 0.05 {
					least = most - 0.2
				}
			}
			if got < least || got > most {
				t.Fatalf("%s: the level %v after the start is %v, want %v to %v", name, after, got, least, most)
			}
		}
	}
	r, err := Run(p, loads(t, p, "listener=leaky,rate=20 packets/s"), Options{For: time.Second, Curves: true})
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := r.Class("leaky"); c.Course().Level != nil || len(c.Course().Left) == 0 {
		t.Errorf("leaky: %+v", c.Course())
	}
}

const bucketsPolicy = `
[class.token]
algorithm = "token"
rate = "4 packets/s"
burst = "10 packets"
[class.gcra]
algorithm = "gcra"
rate = "4 packets/s"
burst = "10 packets"
[class.leaky]
rate = "4 packets/s"
[listener.token]
listen = "127.0.0.1:9901"
protocol = "udp"
upstream = "discard:"
class = "token"
[listener.gcra]
listen = "127.0.0.1:9902"
protocol = "udp"
upstream = "discard:"
class = "gcra"
[listener.leaky]
listen = "127.0.0.1:9903"
protocol = "udp"
upstream = "discard:"
class = "leaky"
`
