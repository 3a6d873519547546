package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"shaper/policy"
)

// The history has each change: when, who, what, before and after.
func TestHistory(t *testing.T) {
	keep(t, func(b *bench) {
		first := b.view.Load().policy.Hash
		b.mustSet(time.Minute, "rate", "1mbit")
		if _, err := b.set(operator, "slow", map[string]string{"rate": "1"}, 0); err == nil {
			t.Fatal("a bad rate is accepted")
		}
		time.Sleep(2 * time.Minute)
		b.file("2mbit")
		second := b.mustReload(time.Minute).Hash
		time.Sleep(2 * time.Minute)
		b.file("many bits")
		if _, err := b.reload(bySignal, 0); err == nil {
			t.Fatal("a bad file is accepted")
		}
		var got []string
		for i, r := range b.history.read() {
			line := fmt.Sprintf("%s by %s: %s -> %s", r.What, r.By, r.Before, r.After)
			for _, c := range r.Changes {
				line += ", " + c.String()
			}
			if r.Number != i+1 || r.Time.IsZero() || (r.Error != "") != strings.HasSuffix(r.What, "rejected") || r.Until.IsZero() != (r.What != "set") {
				t.Errorf("%+v", r)
			}
			got = append(got, line)
			if logged := fmt.Sprintf("number=%d hash_before=%s hash_after=%s\n", r.Number, r.Before, r.After); r.What != "start" && strings.Count(b.logged.String(), logged) != 1 {
				t.Errorf("the log has not one line with %q\n%s", logged, b.logged.String())
			}
		}
		want := []string{
			"start by start:  -> " + first,
			"set by uid=7 pid=8: " + first + " -> " + first + ", ~ class slow: rate 64KiB/s -> 1mbit",
			"set rejected by uid=7 pid=8: " + first + " -> " + first,
			"set ended by timer: " + first + " -> " + first + ", ~ class slow: rate 1mbit -> 64KiB/s",
			"reload by uid=7 pid=8: " + first + " -> " + second + ", ~ class slow: rate 64KiB/s -> 2mbit",
			"rollback by timer: " + second + " -> " + first + ", ~ class slow: rate 2mbit -> 64KiB/s",
			"reload rejected by signal: " + first + " -> " + first,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// wantRecord awaits one record of what somebody has done, in the history and in the log.
func (p *process) wantRecord(what string, changes ...string) {
	p.t.Helper()
	all, err := p.History(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	me := fmt.Sprintf("uid=%d pid=%d", os.Getuid(), os.Getpid())
	all = slices.DeleteFunc(all, func(r Record) bool { return r.What != what })
	var got []string
	for _, r := range all {
		for _, c := range r.Changes {
			got = append(got, c.String())
		}
		if r.By != me || r.Before == "" || r.Before != r.After {
			p.t.Errorf("%+v", r)
		}
	}
	if len(all) != 1 || !slices.Equal(got, changes) {
		p.t.Errorf("%s: %d records with %q, want one with %q", what, len(all), got, changes)
		return
	}
	wantLines(p.t, p.log.String(), fmt.Sprintf("msg=%q by=%q changes=%d number=%d", what, me, len(changes), all[0].Number))
}

// A policy in the shadow that replaces another is one record with both.
func TestHistoryOfShadows(t *testing.T) {
	p := begin(t, base)
	var hashes []string
	for _, name := range []string{"a.toml", "b.toml"} {
		s, err := p.StartShadow(t.Context(), PolicyText{File: name, Text: base + "# " + name + "\n"})
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, s.Hash)
	}
	all, err := p.History(t.Context())
	if err != nil || len(all) != 3 || len(all[2].Changes) != 2 || all[2].Changes[0].Old != hashes[0] || all[2].Changes[1].New != hashes[1] {
		t.Errorf("%v, %+v", err, all)
	}
}

// A command that has changed the kernel tells the history. Anything else is refused.
func TestHistoryTakesNotes(t *testing.T) {
	p := begin(t, base)
	made := policy.Change{Op: "+", What: "tc", Name: "eth0", New: "policy 12ab, 3 of the kernel's objects changed"}
	if err := p.Note(t.Context(), Noted{What: "tc apply", Changes: []policy.Change{made}}); err != nil {
		t.Fatal(err)
	}
	p.wantRecord("tc apply", made.String())
	forged := policy.Change{Op: "~", What: "class", Name: "slow", Key: "rate", Old: "1mbit", New: "2mbit"}
	for _, bad := range []Noted{{What: "reload", Changes: []policy.Change{made}}, {What: "tc apply"}, {What: "tc apply", Changes: []policy.Change{made, forged}}} {
		if err := p.Note(t.Context(), bad); CodeOf(err) != CodeUsage {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Whatever a caller says, a record has short texts.
func TestHistoryOfLongTexts(t *testing.T) {
	long := strings.Repeat("ä", longestValue)
	var h history
	h.add(Record{Changes: []policy.Change{{Op: long, What: long, Name: "x" + long, Key: long, Old: long, New: long}}})
	c := h.read()[0].Changes[0]
	for _, text := range []string{c.Op, c.What, c.Name, c.Key, c.Old, c.New} {
		if len(text) > longestValue+len("…") || !utf8.ValidString(text) {
			t.Errorf("the record has %d bytes: %q", len(text), text)
		}
	}
}

// A stop is a change too: the history has it while open sessions go on.
func TestHistoryOfAStop(t *testing.T) {
	keep(t, func(b *bench) {
		if drain := b.stop(bySignal, "why", "terminated"); drain != time.Minute {
			t.Errorf("sessions may go on for %v", drain)
		}
		all := b.history.read()
		last := all[len(all)-1]
		if last.What != "stopping" || last.By != "signal" || len(last.Changes) != 1 || last.Changes[0].String() != "~ daemon: state running -> draining" {
			t.Errorf("%+v", last)
		}
		wantLines(t, b.logged.String(), "msg=stopping by=signal changes=1 why=terminated drain=1m0s number=2 ")
	})
}

// However much changes, and however long the values are, a history is bounded.
func TestHistoryIsBounded(t *testing.T) {
	var h history
	most := strings.Repeat("x…", 10_000)
	long := policy.Change{Op: most, What: most, Name: most, Key: most, Old: most, New: most}
	changes := make([]policy.Change, mostLogged+7)
	for i := range changes {
		changes[i] = long
	}
	for range mostRecords + 3 {
		h.add(Record{What: "set", Changes: changes})
	}
	all := h.read()
	if len(all) != mostRecords || all[0].Number != 4 || all[0].More != 7 || len(all[0].Changes) != mostLogged {
		t.Errorf("%d records, the first is %d with %d changes and %d more", len(all), all[0].Number, len(all[0].Changes), all[0].More)
	}
	kept := all[0].Changes[0]
	for _, text := range []string{kept.Op, kept.What, kept.Name, kept.Key, kept.Old, kept.New} {
		if len(text) > longestValue+len("…") || !utf8.ValidString(text) {
			t.Errorf("a text of a change is %q", text)
		}
	}
	if r := h.add(Record{What: "set rejected", Error: most}); len(r.Error) > longestError+len("…") || changes[0].Old != long.Old {
		t.Errorf("an error has %d bytes, and the change itself %d", len(r.Error), len(changes[0].Old))
	}
}

// However often a program notes something, tries something that is rejected, closes sessions or changes the
// kernel, and however many schedules there are, the changes of the policy stay in the history.
func TestHistoryKeepsChanges(t *testing.T) {
	const changes = mostRecords - mostMinor
	for _, minor := range []Record{{What: "tc apply"}, {What: "nft clear"}, {What: kernelCorrected}, {What: "shadow started"}, {What: sessionClosed}, {What: scheduleApplied},
		{What: "set rejected", Error: "no"}, {What: "reload rejected", Error: "no"}} {
		var h history
		for range changes {
			h.add(Record{What: "set"})
			h.add(minor)
		}
		for range mostRecords {
			h.add(minor)
		}
		all := h.read()
		if len(all) != mostRecords || all[0].What != "set" || all[0].Number != 1 || all[changes-1].What != "set" || all[mostRecords-1].Number != 2*changes+mostRecords {
			t.Errorf("after many %q there are %d records, the first is %+v", minor.What, len(all), all[0])
		}
	}
}

// What the daemon corrects in the kernel is a record with the device.
func TestHistoryOfTheKernel(t *testing.T) {
	keep(t, func(b *bench) {
		b.noteCorrected(map[string]int{"eth1": 1, "eth0": 3})
		all := b.history.read()
		last := all[len(all)-1]
		want := []policy.Change{
			{Op: "~", What: "tc", Name: "eth0", Key: "kernel", Old: "differs in 3 of its objects", New: "as the policy says"},
			{Op: "~", What: "tc", Name: "eth1", Key: "kernel", Old: "differs in 1 of its objects", New: "as the policy says"},
		}
		if diff := cmp.Diff(want, last.Changes); last.What != "kernel corrected" || last.By != "watch" || diff != "" {
			t.Errorf("%+v (-want +got):\n%s", last, diff)
		}
		wantLines(t, b.logged.String(), `msg="kernel corrected" by=watch changes=2 number=2 `)
	})
}

// diff says what a reload would change, as if the policy were in the place of the policy file.
func TestDiff(t *testing.T) {
	p := begin(t, base)
	ctx := context.Background()
	same, err := p.Client.Diff(ctx, PolicyText{File: "elsewhere/next.toml", Text: base})
	if err != nil || len(same.Changes) != 0 || same.InForce != same.Hash {
		t.Errorf("the same policy: %+v, %v", same, err)
	}
	if _, err := p.Client.Set(ctx, "slow", map[string]string{"rate": "1mbit"}, 0); err != nil {
		t.Fatal(err)
	}
	next := PolicyText{File: "next.toml", Text: strings.Replace(base, "1gbit", "2gbit", 1), Pieces: []policy.File{{Name: "a.toml", Text: "[class.piece]\nrate = \"1mbit\"\n"}}}
	done, err := p.Client.Diff(ctx, next)
	var changes []string
	for _, c := range done.Changes {
		changes = append(changes, c.String())
	}
	if want := []string{"~ class slow: rate 1mbit -> 64KiB/s", "~ class fast: rate 1gbit -> 2gbit", "+ class piece: rate 1mbit"}; err != nil || cmp.Diff(want, changes) != "" || len(done.Warnings) != 1 {
		t.Errorf("error %v, %+v\n%s", err, done, cmp.Diff(want, changes))
	}
	if rate := p.rate("fast"); rate != "1gbit" {
		t.Errorf("diff has changed the rate to %s", rate)
	}
	next.Text = "[class.x]\nrate = 1\n"
	if _, err := p.Client.Diff(ctx, next); err == nil || !strings.HasPrefix(err.Error(), "next.toml:1:1: listener: there is none") {
		t.Errorf("mistakes are %v", err)
	}
	if _, err := p.Client.Diff(ctx, PolicyText{Text: base}); CodeOf(err) != CodeUsage {
		t.Errorf("without a name: %v", err)
	}
}

// diff looks at no file, so it cannot know whether the path of a secret is one, or the secret itself.
func TestDiffHidesSecrets(t *testing.T) {
	p := begin(t, base)
	dir := filepath.Dir(p.path)
	writePair(t, dir, "a", time.Now().Add(time.Hour))
	served := secureBase(`tls = { cert = "a.pem", key = "a.key" }`)
	p.write(served)
	if _, err := p.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	const fleet, entry = "[fleet.f]\naddress = \"127.0.0.1:1\"\n", "[listener.entry]\nlisten = \"127.0.0.1:0\"\nmode = \"connect\"\nallow = \"*:443\"\nclass = \"fast\"\n"
	for text, want := range map[string]string{
		strings.Replace(served, "a.key", "hunter2", 1):                                 "~ listener quick: tls { cert = \"DIR/a.pem\", key = \"DIR/a.key\" } -> { cert = \"DIR/a.pem\", key = \"(not shown)\" }",
		strings.Replace(served, "a.key", "/etc/a.key", 1):                              "~ listener quick: tls { cert = \"DIR/a.pem\", key = \"DIR/a.key\" } -> { cert = \"DIR/a.pem\", key = \"/etc/a.key\" }",
		strings.Replace(served, `key = "a.key"`, `key = "a.key", client_ca = "b"`, 1):  "~ listener quick: tls { cert = \"DIR/a.pem\", key = \"DIR/a.key\" } -> { cert = \"DIR/a.pem\", key = \"DIR/a.key\", client_ca = \"DIR/b\" }",
		served + fleet + "password_file = \"hunter2/hunter2\"\n":                       "+ fleet f: address 127.0.0.1:1, password_file (not shown)",
		served + fleet + "sentinel = \"main\"\nsentinel_password_file = \"hunter2\"\n": "+ fleet f: address 127.0.0.1:1, sentinel main, sentinel_password_file (not shown)",
		served + fleet + "tls = { cert = \"a.pem\", key = \"hunter2\" }\n":             "+ fleet f: address 127.0.0.1:1, tls { cert = \"DIR/a.pem\", key = \"(not shown)\" }",
		served + entry + "users = \"hunter2\"\n":                                       "users (not shown)",
	} {
		done, err := p.Client.Diff(t.Context(), PolicyText{File: "next.toml", Text: text})
		if err != nil || len(done.Changes) != 1 {
			t.Fatalf("error %v, %+v", err, done)
		}
		if got := done.Changes[0].String(); strings.Contains(got, "hunter2") || !strings.Contains(got, strings.ReplaceAll(want, "DIR", dir)) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
