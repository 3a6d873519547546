package web

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"
)

var start = time.Unix(1_800_000_000, 0)

// at returns the time of sample i.
func at(i int) time.Time { return start.Add(time.Duration(i) * step) }

func otp(sent uint64, items int64, dropped, refused uint64) []Sample {
	return []Sample{{Name: "otp", Unit: "messages", Sent: sent, Items: items, Lost: dropped + refused}}
}

func wantJSON(t *testing.T, what string, got any, want string) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil || string(text) != want {
		t.Errorf("%s: %s, %v; want %s", what, text, err, want)
	}
}

func TestHistory(t *testing.T) {
	h := newHistory()
	h.add(at(0), otp(1000, 5, 0, 7))
	h.add(at(1), otp(1030, 2, 0, 7))
	h.add(at(3), otp(1130, 0, 30, 17)) // late: 20 s
	got := h.read("otp")
	wantJSON(t, "times", got.Times, "[1800000000,1800000010,1800000030]")
	wantJSON(t, "sent per second", got.Sent, "[null,3,5]")
	wantJSON(t, "waiting", got.Waiting, "[null,2,0]")
	wantJSON(t, "lost per second", got.Lost, "[null,0,2]")
	if got.Unit != "messages" {
		t.Errorf("the unit is %q", got.Unit)
	}
	wantJSON(t, "a class that is not there", h.read("none").Times, "null")
}

// The oldest sample goes when the 361st comes.
func TestHistoryIsAnHour(t *testing.T) {
	h := newHistory()
	for i := range samples + 2 {
		h.add(at(i), otp(uint64(10*i*i), int64(i), 0, 0))
	}
	got := h.read("otp")
	if n := len(got.Times); n != samples || got.Times[0] != at(2).Unix() || got.Times[n-1] != at(samples+1).Unix() {
		t.Fatalf("%d samples from %d to %d", n, got.Times[0], got.Times[n-1])
	}
	if got.Times[samples-1]-got.Times[0] != 3590 {
		t.Errorf("they span %d s", got.Times[samples-1]-got.Times[0])
	}
	for i, v := range got.Waiting {
		if int(v) != i+2 || int(got.Sent[i]) != 2*(i+2)-1 {
			t.Fatalf("sample %d: waiting %v, sent %v", i, v, got.Sent[i])
		}
	}
}

// A class that comes again, or counts something else, does not go on with what another has counted.
func TestHistoryOfAnotherClass(t *testing.T) {
	for name, next := range map[string][]Sample{
		"fewer sent":   otp(10, 1, 5, 5),
		"fewer lost":   otp(200, 1, 0, 0),
		"another unit": {{Name: "otp", Unit: "bytes", Sent: 5000, Lost: 10}},
	} {
		h := newHistory()
		h.add(at(0), otp(100, 9, 5, 5))
		h.add(at(1), otp(110, 9, 5, 5))
		h.add(at(2), next)
		h.add(at(3), next)
		got := h.read("otp")
		wantJSON(t, name, got.Sent, "[null,null,null,0]")
	}
	h := newHistory()
	h.add(at(0), otp(100, 9, 0, 0))
	h.add(at(1), nil)
	if len(h.past) != 0 {
		t.Error("it remembers a class that is gone")
	}
}

// A class in which nothing happens has no curves, and zeros all the same.
func TestIdleClassTakesNoMemory(t *testing.T) {
	h := newHistory()
	for i := range samples {
		h.add(at(i), otp(7, 0, 1, 1))
	}
	got := h.read("otp")
	if h.curves != 0 || len(got.Sent) != samples || got.Sent[1] != 0 {
		t.Errorf("%d classes have curves; it has %d samples", h.curves, len(got.Sent))
	}
	wantJSON(t, "the first sample", got.Sent[0], "null")
	h.add(at(samples), otp(17, 0, 1, 1))
	if got := h.read("otp"); h.curves != 1 || got.Sent[samples-1] != 1 || got.Sent[samples-2] != 0 {
		t.Errorf("after it has sent: %d curves, %v", h.curves, got.Sent[samples-2:])
	}
	for i := range samples {
		h.add(at(samples+1+i), otp(17, 0, 1, 1))
	}
	if h.curves != 0 || h.read("otp").Sent[0] != 0 {
		t.Errorf("an hour later: %d curves", h.curves)
	}
}

// crowd returns n classes in which something waits.
func crowd(n int, items int64) (all []Sample) {
	for i := range n {
		all = append(all, Sample{Name: fmt.Sprintf("class-%04d", i), Unit: "messages", Items: items})
	}
	return all
}

// Beyond mostCurves a class has none, and the history says that it knows nothing.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory()
	all := crowd(mostCurves+10, 3)
	for i := range 3 {
		h.add(at(i), all)
	}
	none := 0
	for _, c := range all {
		if got := h.read(c.Name); got.Waiting[2] != 3 {
			wantJSON(t, c.Name, got.Waiting, "[null,null,null]")
			none++
		}
	}
	if h.curves != mostCurves || none != 10 {
		t.Errorf("%d classes have curves, %d have not", h.curves, none)
	}
	h.add(at(3), all[:mostCurves/2])
	if h.curves > mostCurves/2 {
		t.Errorf("%d classes have curves, of %d", h.curves, mostCurves/2)
	}
}

func TestMemoryOfHistory(t *testing.T) {
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	all, h := crowd(1000, 3), newHistory()
	before := inUse()
	for i := range 3 {
		h.add(at(i), all)
	}
	took := inUse() - before
	runtime.KeepAlive(h)
	t.Logf("1,000 busy classes take %.2f MiB", float64(took)/(1<<20))
	if took > 6<<20 {
		t.Errorf("1,000 classes take %d bytes", took)
	}
}
