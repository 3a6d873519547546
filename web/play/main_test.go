package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"shaper/stats"
)

const tokens = `
[class.all]
rate = "1000 packets/s"
[class.it]
parent    = "all"
algorithm = "token"
rate      = "10 packets/s"
burst     = "10 packets"
[listener.in]
listen   = "127.0.0.1:53"
protocol = "udp"
upstream = "discard:"
class    = "it"
`

// ask sends requests, and returns the answers.
func ask(t *testing.T, requests ...string) (all []answer) {
	t.Helper()
	var out strings.Builder
	if err := serve(strings.NewReader(strings.Join(requests, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	if len(all) != len(requests) {
		t.Fatalf("%d requests have %d answers", len(requests), len(all))
	}
	return all
}

// asking returns a request in JSON: a policy, and more fields.
func asking(policy, more string) string {
	text, _ := json.Marshal(policy)
	return fmt.Sprintf(`{"policy": %s, %s}`, text, more)
}

// The answer has the report, the course of each class, and the busiest window.
func TestAnswer(t *testing.T) {
	a := ask(t, asking(tokens, `"load": ["rate=200 packets/s,pattern=bursts,on=200ms,off=10s,start=900ms"], "for": "5s", "seed": 1`))[0]
	if len(a.Problems) > 0 || len(a.Report.Classes) != 2 || a.Report.Classes[1].Left.Items != 40 || a.Report.Period != stats.Seconds(5*time.Second) {
		t.Fatalf("%+v", a)
	}
	if lines := strings.Split(a.Departures, "\n"); len(lines) != 42 || lines[1] != "0.900000000,0.000000000,it,127.0.0.1,1200" {
		t.Errorf("the departures are\n%s", a.Departures)
	}
	for i, want := range []uint64{19, 19} { // a burst of 10, and 9 more before a second is over
		c := a.Courses[i]
		if c.Busiest != want || c.Window != stats.Seconds(time.Second) || c.Left[len(c.Left)-1] != 40 || c.Offered[len(c.Offered)-1] != 40 || c.Waiting[len(c.Waiting)-1] != 1 {
			t.Errorf("class %d: busiest %d in %v, and ends with %d offered, %d left, %d waiting", i, c.Busiest, time.Duration(c.Window),
				c.Offered[len(c.Offered)-1], c.Left[len(c.Left)-1], c.Waiting[len(c.Waiting)-1])
		}
	}
}

// The busiest window counts as the class does: what all of it costs, if all of it left within one window.
func TestBusiestCounts(t *testing.T) {
	const of = `
[class.all]
rate = "%s/min"
[class.it]
parent = "all"
algorithm = "fixed-window"
rate = "%[1]s/min"
%s
[listener.in]
listen = "127.0.0.1:53"
protocol = "%s"
upstream = "192.0.2.1:1"
class = "it"
`
	for _, c := range []struct {
		limit, more, protocol, load string
		least                       uint64 // more than the items
	}{
		{"100000 tokens", "cost = 100", "http", "1 messages/s", 3000},
		{"100000 messages", "cost = 7", "http", "1 messages/s", 210},
		{"100000 messages", "", "http", "1 messages/s", 30},
		{"100000 connections", "", "tcp", "1 connections/s", 30},
		{"100000 packets", "", "udp", "1 packets/s", 30},
		{"100000kB", "", "udp", "1 packets/s", 30 * 1200},
	} {
		a := ask(t, asking(fmt.Sprintf(of, c.limit, c.more, c.protocol), fmt.Sprintf(`"load": ["rate=%s"], "for": "30s"`, c.load)))[0]
		if len(a.Problems) > 0 {
			t.Errorf("%s: %v", c.limit, a.Problems)
			continue
		}
		for i, of := range a.Courses {
			if left := uint64(of.Left[len(of.Left)-1]); of.Busiest != left || left < c.least {
				t.Errorf("%s %s, class %d: the busiest window has %d, all that left is %d, want at least %d", c.limit, c.more, i, of.Busiest, left, c.least)
			}
		}
	}
}

// A trace comes with the request.
func TestTrace(t *testing.T) {
	a := ask(t, asking(tokens, `"trace": "trace.csv", "trace_text": "time,client,bytes\n1,10.0.0.1,5\n1,10.0.0.1,5\n"`))[0]
	if len(a.Problems) > 0 || a.Report.Classes[1].Left.Items != 2 {
		t.Errorf("%+v", a)
	}
}

// Mistakes read as those of the command, with their positions, and the next request is answered.
func TestProblems(t *testing.T) {
	load := `"load": ["rate=1 packets/s"]`
	for _, test := range []struct{ request, want string }{
		{asking("[class.a]\nrate = \"fast\"\nburst = 3\n", load), `2:8 shaper.toml:2:8: class.a.rate: "fast"`},
		{asking("[daemon]\ninclude = \"none/missing.toml\"\n"+tokens, load), "without include"},
		{asking(tokens, `"load": ["rate=5"]`), `0:0 --load: rate: "5" is not a rate`},
		{asking(tokens, `"load": ["rate=5 packets/s,listener=out"]`), `0:0 --load: there is no listener "out"`},
		{asking(tokens, load+`, "seed": 1.5`), "0:0 --seed: this is not a whole number from 0 to 9007199254740991, the largest that the playground takes"},
		{asking(tokens, load+`, "seed": "9007199254740993"`), "0:0 --seed: this is not a whole number from 0"},
		{asking(tokens, load+`, "members": "four"`), "0:0 --members: this is not a whole number from 0"},
		{asking(tokens, load+`, "members": 0`), "0:0 --members: 0 is not allowed"},
		{asking(tokens, `"seed": 1`), "a workload is either --trace, or one --load"},
		{asking(tokens, load+`, "for": "0s"`), "--for: 0s leaves no time"},
		{asking(tokens, `"trace": "trace.csv", "trace_text": "time,client,bytes\n1,x,5\n"`), `2:3 trace.csv:2:3: `},
		{asking(tokens, `"load": ["rate=100000 packets/s"], "for": "1h"`), "more than 500000 steps"},
	} {
		all := ask(t, test.request, asking(tokens, load))
		got := ""
		for _, p := range all[0].Problems {
			got += fmt.Sprintf("%d:%d %s\n", p.Line, p.Column, p.Text)
		}
		if !strings.Contains(got, test.want) || all[0].Report != nil {
			t.Errorf("%s\n got: %s\nwant: %s", test.request, got, test.want)
		}
		if len(all[1].Problems) > 0 {
			t.Errorf("the next request has %v", all[1].Problems)
		}
	}
}
