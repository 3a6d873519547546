package daemon

import (
	"slices"
	"testing"

	"shaper/stats"
)

// A process with several budgets is one shaper, as silent as any of its members and as old as the oldest.
func TestShapersOf(t *testing.T) {
	f := stats.FleetReading{Classes: []stats.SharedReading{
		{Member: "sms1-x-1", Shortest: 50, Longest: 250, Peers: []stats.PeerReading{
			{Name: "sms1-x-1", Share: 0.5, Age: 100, Seen: 2, Deadline: 50},
			{Name: "sms2-y-1", Share: 0.25, Age: 90, Seen: 8, Silent: true, Deadline: 250},
			{Name: "", Share: 0.25, Seen: 50, Silent: true},
		}},
		{Member: "sms1-x-2", Peers: []stats.PeerReading{
			{Name: "alone", Share: 0.2, Age: 5, Seen: 1},
			{Name: "sms1-x-2", Share: 0.4, Age: 120, Seen: 3, Deadline: 50},
			{Name: "sms2-y-2", Share: 0.4, Age: 95, Seen: 7, Deadline: 250},
		}},
	}}
	want := []stats.ShaperReading{
		{Name: "alone", Age: 5, Seen: 1, Budgets: 1, Share: 0.2, State: stats.Here},
		{Name: "sms1-x", Age: 120, Seen: 2, Budgets: 2, Share: 0.4, Deadline: 50, State: stats.ThisOne},
		{Name: "sms2-y", Age: 95, Seen: 7, Budgets: 2, Share: 0.25, Deadline: 250, State: stats.Silent},
		{Name: "", Seen: 50, Budgets: 1, Share: 0.25, State: stats.HeldBack},
	}
	if got := shapersOf(&f); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := shapersOf(&stats.FleetReading{Classes: []stats.SharedReading{{Member: "a-1"}}}); got != nil {
		t.Errorf("without answers of the store: %+v", got)
	}
}
