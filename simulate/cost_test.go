package simulate

import (
	"strings"
	"testing"
	"time"
)

// A trace says what messages cost, and what their answers say.
func TestCostInATrace(t *testing.T) {
	const listener = "[listener.in]\nlisten = \"127.0.0.1:80\"\nprotocol = \"http\"\nupstream = \"10.9.9.9:80\"\nclass = \"c\"\n"
	const trace = "time,client,bytes,cost,used\n0,10.0.0.1,100,5,\n0,10.0.0.1,100,,\n0,10.0.0.1,100,9,3\n0,10.0.0.1,100,500,\n0,10.0.0.1,100,1,\n"
	for _, c := range []struct {
		keys string
		want []time.Duration // in seconds
	}{
		{"cost = { json = \"max_tokens\", default = 2, max = 20 }", []time.Duration{0, 5, 7, 16, 36}},
		{"cost = { header = \"X\", default = 2, max = 20 }\nsettle = { json = \"u\" }", []time.Duration{0, 5, 7, 10, 30}},
		{"cost = 4", []time.Duration{0, 4, 8, 12, 16}},
		{"cost = { bytes = 30 }", []time.Duration{0, 4, 8, 12, 16}},
	} {
		p := parse(t, "[class.c]\nrate = \"1 tokens/s\"\nqueue = \"100 messages\"\n"+c.keys+"\n"+listener)
		source, err := ReadTrace(p, "a.csv", strings.NewReader(trace))
		if err != nil {
			t.Fatal(err)
		}
		_, left := simulated(t, p, []Source{source}, Options{})
		if len(left) != len(c.want) {
			t.Fatalf("%s: %d messages left", c.keys, len(left))
		}
		for i, at := range c.want {
			if left[i] != at*time.Second {
				t.Errorf("%s: message %d leaves at %v, want %d s", c.keys, i, left[i], at)
			}
		}
	}
}
