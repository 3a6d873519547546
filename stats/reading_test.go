package stats

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func busyClass() *Class {
	var c Class
	c.Sent[Upstream].Bytes.Add(1500)
	c.Sent[Upstream].Packets.Add(1)
	c.Sent[Downstream].Connections.Add(2)
	c.Dropped[QueueFull].Add(100)
	c.Dropped[QueueFull].Add(40)
	c.Refused[MaxWait].Add(7)
	c.Overlimits.Add(3)
	c.Wait.Observe(0)
	c.Wait.Observe(time.Second)
	return &c
}

// busyReading returns the reading of a busy class in which one item waits.
func busyReading() ClassReading {
	r := busyClass().Read()
	r.BacklogBytes, r.BacklogItems = 64, 1
	return r
}

func TestClassRead(t *testing.T) {
	r := busyClass().Read()
	if r.Sent[Upstream] != (VolumeReading{Bytes: 1500, Packets: 1}) || r.Sent[Downstream] != (VolumeReading{Connections: 2}) {
		t.Errorf("sent %+v", r.Sent)
	}
	if r.Dropped[QueueFull] != (LossReading{2, 140}) || r.Refused[MaxWait] != (LossReading{1, 7}) {
		t.Errorf("dropped %+v, refused %+v", r.Dropped, r.Refused)
	}
	if r.Overlimits != 3 {
		t.Errorf("read %+v", r)
	}
	if r.WaitP50 != 0 || r.WaitP99 != Seconds(time.Second) || r.Wait.Count != 2 {
		t.Errorf("p50 is %v and p99 %v of %d waits", r.WaitP50, r.WaitP99, r.Wait.Count)
	}
	if len(r.Dropped) != int(reasons) || len(r.Refused) != int(reasons) {
		t.Errorf("a reason is missing: dropped %v, refused %v", r.Dropped, r.Refused)
	}
}

// Scripts and the dashboard read this JSON, so it must not change.
func TestClassJSON(t *testing.T) {
	r := busyReading()
	r.Name, r.Parent, r.Algorithm, r.Burst, r.Weight = "acme", "uplink", "leaky", "", 1
	r.Ceil = &RateReading{"60 messages/s", 60, "messages"}
	r.Rate = RateReading{"30 messages/s", 30, "messages"}
	r.Drain, r.Oldest = Seconds(1500*time.Millisecond), Seconds(17*time.Hour+30*time.Minute)
	zero := `{"items":0,"bytes":0}`
	losses := func(reason, loss string) string {
		s := `{"closed":Z,"max_wait":Z,"no_session":Z,"queue_full":Z,"reset":Z,"stopped":Z,"timeout":Z}`
		return strings.ReplaceAll(strings.Replace(s, `"`+reason+`":Z`, `"`+reason+`":`+loss, 1), "Z", zero)
	}
	want := `{"name":"acme","parent":"uplink","algorithm":"leaky",` +
		`"rate":{"text":"30 messages/s","per_second":30,"unit":"messages"},` +
		`"ceil":{"text":"60 messages/s","per_second":60,"unit":"messages"},"priority":0,"weight":1,"sessions":0,"time_to_drain_seconds":1.5,` +
		`"sent":{"downstream":{"bytes":0,"packets":0,"messages":0,"connections":2},` +
		`"upstream":{"bytes":1500,"packets":1,"messages":0,"connections":0}},` +
		`"dropped":` + losses("queue_full", `{"items":2,"bytes":140}`) + `,` +
		`"refused":` + losses("max_wait", `{"items":1,"bytes":7}`) + `,` +
		`"overlimits":3,"backlog_bytes":64,"backlog_items":1,"oldest":63000,"wait_p50_seconds":0,"wait_p99_seconds":1}`
	if got := encode(t, r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestListenerJSON(t *testing.T) {
	var l Listener
	l.Open.Add(2)
	l.Ended[Drained].Add(1)
	l.AcceptErrors.Add(4)
	l.SpliceRefused.Add(5)
	l.Sent[Downstream].Bytes.Add(705)
	r := l.Read()
	r.Name, r.Protocol, r.Addresses = "web", "tcp", []string{"127.0.0.1:7007"}
	want := `{"name":"web","protocol":"tcp","addresses":["127.0.0.1:7007"],"open":2,` +
		`"sent":{"downstream":{"bytes":705,"packets":0,"messages":0,"connections":0},"upstream":{"bytes":0,"packets":0,"messages":0,"connections":0}},` +
		`"ended":{"aborted":0,"bad_proxy":0,"closed":0,"denied":0,"dial_failed":0,"drained":1,"max_age":0,"ok":0,"panic":0,"refused":0,"reset":0,"timeout":0,"tls_failed":0,"unframed":0},` +
		`"accept_errors":4,"splice_refused":5}`
	if got := encode(t, r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The command line reads what the daemon writes.
func TestStatusRoundTrip(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := Status{
		Version: "1.0", Started: start, Policy: "/etc/shaper/shaper.toml", PolicyHash: "ab12",
		Reload:    ReloadReading{Time: start, Succeeded: start, Error: "no"},
		Classes:   []ClassReading{busyClass().Read()},
		Listeners: []ListenerReading{new(Listener).Read()},
	}
	want.Totals = Total(1, 64, new(Lost), Carried{})
	want.Classes[0].Drain = Never
	want.Classes[0].Wait = HistogramReading{} // JSON leaves it out
	var got Status
	if err := json.Unmarshal([]byte(encode(t, want)), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestSeconds(t *testing.T) {
	for _, c := range []struct {
		d    Seconds
		want string
	}{
		{0, "0"},
		{Seconds(250 * time.Microsecond), "0.00025"},
		{Seconds(time.Nanosecond), "1e-9"},
		{Seconds(90 * time.Minute), "5400"},
		{Never, "null"},
		{-Seconds(time.Second), "-1"},
	} {
		text := encode(t, c.d)
		var back Seconds
		if err := json.Unmarshal([]byte(text), &back); text != c.want || err != nil || back != c.d {
			t.Errorf("%d prints as %s, which reads as %d, %v; want %s", c.d, text, back, err, c.want)
		}
	}
	var s Seconds
	if err := json.Unmarshal([]byte("1e300"), &s); err != nil || s != math.MaxInt64 {
		t.Errorf("1e300 reads as %d, %v", s, err)
	}
	if err := json.Unmarshal([]byte(`"1s"`), &s); err == nil {
		t.Error("a string is accepted as seconds")
	}
}

func TestLabels(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reasons() {
		var back Reason
		text, _ := r.MarshalText()
		if err := back.UnmarshalText(text); err != nil || back != r || r.String() == "" || seen["reason "+r.String()] {
			t.Errorf("reason %d prints as %q, which reads as %d, %v", r, text, back, err)
		}
		seen["reason "+r.String()] = true
	}
	for r := range Results() {
		var back Result
		text, _ := r.MarshalText()
		if err := back.UnmarshalText(text); err != nil || back != r || r.String() == "" || seen["result "+r.String()] {
			t.Errorf("result %d prints as %q, which reads as %d, %v", r, text, back, err)
		}
		seen["result "+r.String()] = true
	}
	var d Direction
	if err := d.UnmarshalText([]byte("sideways")); err == nil || err.Error() != `stats: "sideways" is not a direction` {
		t.Errorf("got %v", err)
	}
}

func TestTotal(t *testing.T) {
	var l, gone Listener
	l.Sent[Upstream].Add(VolumeReading{Bytes: 3000, Packets: 2})
	l.Sent[Downstream].Add(VolumeReading{Bytes: 705, Connections: 4})
	l.Open.Add(3)
	l.Ended[OK].Add(5)
	gone.Ended[ResetByPeer].Add(1)
	gone.Sent[Upstream].Add(VolumeReading{Bytes: 7})
	var carried Carried
	carried.Add(&l)
	carried.Add(&gone)
	var lost Lost
	lost.Dropped.AddItems(4, 280)
	lost.Refused.AddItems(2, 14)
	got := Total(2, 128, &lost, carried)
	want := Totals{
		Sessions: 3, Ended: 6,
		Sent:    map[Direction]VolumeReading{Upstream: {Bytes: 3007, Packets: 2}, Downstream: {Bytes: 705, Connections: 4}},
		Dropped: LossReading{4, 280}, Refused: LossReading{2, 14},
		BacklogBytes: 128, BacklogItems: 2,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
