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

// A class has used as much of its limit as it has charged, however many items that were. What answers
// settle counts as it is in the end.
func TestUsedIsWhatIsCharged(t *testing.T) {
	const listener = "[listener.in]\nlisten = \"127.0.0.1:80\"\nprotocol = \"http\"\nupstream = \"10.9.9.9:80\"\nclass = \"c\"\n"
	for _, c := range []struct{ class, line, more string }{
		{"rate = \"1 tokens/s\"\ncost = 4", "10.0.0.1,100,1,,", "4 tokens each"},
		{"rate = \"1 messages/s\"", "10.0.0.1,100,4,,", "4 messages in one line"},
		{"rate = \"1 tokens/s\"\ncost = { json = \"n\", default = 1, max = 20 }\nsettle = { json = \"u\" }", "10.0.0.1,100,1,9,4", "9 tokens at first, and 4 in the end"},
	} {
		p := parse(t, "[class.c]\n"+c.class+"\nqueue = \"1000 messages\"\n"+listener)
		source, err := ReadTrace(p, "a.csv", strings.NewReader("time,client,bytes,messages,cost,used\n"+strings.Repeat("0,"+c.line+"\n", 100)))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := simulated(t, p, []Source{source}, Options{For: time.Minute, Curves: true})
		class, _ := r.Class("c")
		if class.Left.Items != 15 || class.Utilisation != 1 || class.Reached.PerSecond != 1 {
			t.Errorf("%s: %d items leave, which use %v of the limit at %v/s", c.more, class.Left.Items, class.Utilisation, class.Reached.PerSecond)
		}
		course := class.Course()
		if left := course.Left[len(course.Left)-1]; left != 60 {
			t.Errorf("%s: %d units leave", c.more, left)
		}
		if waiting := course.Waiting[len(course.Waiting)-1]; waiting < 340 {
			t.Errorf("%s: %d units wait", c.more, waiting)
		}
	}
}

// An answer settles at most what the class charges at all, as in the proxy.
func TestSettleWithinMax(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"1 tokens/s\"\nqueue = \"100 messages\"\ncost = { json = \"n\", default = 2, max = 20 }\nsettle = { json = \"u\" }\n"+
		"[listener.in]\nlisten = \"127.0.0.1:80\"\nprotocol = \"http\"\nupstream = \"10.9.9.9:80\"\nclass = \"c\"\n")
	source, err := ReadTrace(p, "a.csv", strings.NewReader("time,client,bytes,used\n0,10.0.0.1,100,500\n0,10.0.0.1,100,5\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, left := simulated(t, p, []Source{source}, Options{}); left[1] != 20*time.Second {
		t.Errorf("after an answer that says 500, the next leaves at %v, want 20 s", left[1])
	}
}

// A report says that nobody answers, so that no answer says "too fast".
func TestThrottledByIsLeftOut(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"1 messages/s\"\nthrottled_by = { json = \"status\", equals = [\"1\"] }\n"+
		"[listener.in]\nlisten = \"127.0.0.1:80\"\nprotocol = \"http\"\nupstream = \"10.9.9.9:80\"\nclass = \"c\"\n")
	if notes := LeftOut(p, false); len(notes) != 1 || !strings.HasPrefix(notes[0], "class.c.throttled_by is not simulated") {
		t.Errorf("%q", notes)
	}
}

// A request costs what all its bytes do, however long it is.
func TestCostOfALongRequest(t *testing.T) {
	p := parse(t, "[class.c]\nrate = \"1 tokens/s\"\nqueue = \"100 messages\"\ncost = { bytes = 1000 }\n"+
		"[listener.in]\nlisten = \"127.0.0.1:80\"\nprotocol = \"http\"\nupstream = \"10.9.9.9:80\"\nclass = \"c\"\n")
	if _, left := simulated(t, p, loads(t, p, "rate=1 messages/s,size=1000000B,count=2"), Options{}); len(left) != 2 || left[1] != 1000*time.Second {
		t.Errorf("the request after one of 1,000,000 bytes leaves at %v", left)
	}
}
