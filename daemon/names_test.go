package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shaper/fleet"
	"shaper/state"
	"shaper/stats"
)

// TestMemberNames holds that a process has the names of the last one if it has its state file, and that it knows what that has
// used of its share of a window. The second member of a window in a process has another name. Without a state file all
// are new.
func TestMemberNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var spent int64
	names := func(path string) (rate, window, second string) {
		s := &memberNames{}
		var file *state.File
		if path != "" {
			var err error
			if file, err = state.Open(path, state.Options{}); err != nil {
				t.Fatal(err)
			}
			defer func() { file.Close(nil) }()
		}
		s.set(file)
		rate, _ = s.of(0, &fleet.Class{Name: "acme"})
		window, ledger := s.of(1, &fleet.Class{Name: "acme/1m", Window: time.Minute})
		second, none := s.of(1, &fleet.Class{Name: "acme/1m", Window: time.Minute})
		for _, name := range []string{rate, window, second} {
			if number, is := strings.CutPrefix(name, s.base+"-"); !is || strings.Trim(number, "0123456789") != "" {
				t.Errorf("%s is not %s and a number", name, s.base)
			}
		}
		if none != nil || (ledger == nil) != (file == nil) {
			t.Errorf("the ledgers are %v and %v", ledger, none)
		}
		if file == nil {
			return rate, window, second
		}
		file.Start()
		if debts := ledger.Debts(); spent > 0 && (len(debts) != 1 || debts[0].Units != spent || debts[0].Key != "key") {
			t.Errorf("the debts are %v, want %d", debts, spent)
		}
		spent++
		kept := make(chan bool)
		ledger.Keep(fleet.Debt{Key: "key", Units: spent, Until: time.Now().Add(time.Hour)}, func() { kept <- true })
		<-kept
		return rate, window, second
	}
	rate, window, second := names(path)
	for range 2 {
		if again, same, other := names(path); again != rate || same != window || other == second || other == window {
			t.Errorf("the names were %s, %s and %s, and are %s, %s and %s", rate, window, second, again, same, other)
		}
	}
	rate, window, _ = names("")
	if again, other, _ := names(""); again == rate || other == window || !strings.Contains(rate, fmt.Sprintf("-%d-", os.Getpid())) {
		t.Errorf("without a state file, the names were %s and %s, and are %s and %s", rate, window, again, other)
	}
}

// TestTwinsAreTwoShapers names two processes that have the same host name and number, as in containers.
func TestTwinsAreTwoShapers(t *testing.T) {
	var twins [2]memberNames
	of := stats.SharedReading{}
	for i := range twins {
		twins[i].set(nil)
		of.Member, _ = twins[i].of(0, &fleet.Class{Name: "acme"})
		of.Peers = append(of.Peers, stats.PeerReading{Name: of.Member, Share: 0.5})
	}
	if all := shapersOf(&stats.FleetReading{Classes: []stats.SharedReading{of}}); len(all) != 2 {
		t.Errorf("two processes are %+v", all)
	}
	was := twins[0].base
	if twins[0].set(nil); twins[0].base != was {
		t.Errorf("a reload makes %s of %s", twins[0].base, was)
	}
}

// TestDebtsOutlastAPolicy starts a process whose policy lacks a class of which the last one has kept a debt. A reload brings the
// class back, in this process and in the next one: both know the debt, also if the disk has taken the name away.
func TestDebtsOutlastAPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for i, locked := range []bool{true, true, false, true} {
		if os.Remove(path + ".lock"); !locked {
			if err := os.Symlink("/dev/full", path+".lock"); err != nil {
				t.Fatal(err)
			}
		}
		file, err := state.Open(path, state.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := &memberNames{}
		s.set(file)
		file.Start()
		_, ledger := s.of(0, &fleet.Class{Name: "acme/1m", Window: time.Minute})
		switch {
		case s.stays != locked || (ledger != nil) != locked:
			t.Fatalf("process %d has the ledger %v", i, ledger)
		case i == 0:
			kept := make(chan bool)
			ledger.Keep(fleet.Debt{Key: "key", Units: 7, Until: time.Now().Add(time.Hour)}, func() { close(kept) })
			<-kept
		case locked:
			if debts := ledger.Debts(); len(debts) != 1 || debts[0].Units != 7 {
				t.Errorf("process %d knows the debts %v, want one of 7", i, debts)
			}
		}
		file.Close(nil)
	}
}
