package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"shaper/policy"
	"shaper/tests/trial"
)

func (s Shadow) class(name string) Divergence {
	i := slices.IndexFunc(s.Classes, func(c Divergence) bool { return c.Name == name })
	if i < 0 {
		return Divergence{}
	}
	return s.Classes[i]
}

// A policy in the shadow counts what it would do, beside what the policy in force does. It delays
// nothing, and ends when it is told to.
func TestShadow(t *testing.T) {
	p := begin(t, base)
	ctx := context.Background()
	next := strings.Replace(base, `rate = "1gbit"`, `rate = "0B/s"`, 1) + "[class.new]\nrate = \"1mbit\"\n"
	open := p.dial("quick")
	started, err := p.Client.StartShadow(ctx, PolicyText{File: "next.toml", Text: next})
	if err != nil {
		t.Fatal(err)
	}
	if started.File != "next.toml" || started.Hash == "" || started.Since.IsZero() || !strings.Contains(started.By, "uid") {
		t.Errorf("started as %+v", started)
	}
	if len(started.Warnings) != 2 {
		t.Errorf("the warnings are %v; want one of a class that lets nothing pass and one of an unused class", started.Warnings)
	}
	p.pass(open)
	p.dial("quick")
	s, err := p.Client.Shadow(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if fast := s.class("fast"); fast.WouldDelay != 2 || fast.Live == nil || fast.Live.Delayed != 0 || fast.Live.Rate.Text != "1gbit" || fast.Rate.Text != "0bit" {
		t.Errorf("two sessions: in the shadow %+v, live %+v", fast, fast.Live)
	}
	if added := s.class("new"); added.Name != "new" || added.Live != nil {
		t.Errorf("a class that is only in the shadow: %+v", added)
	}
	if last, err := p.Client.StopShadow(ctx); err != nil || last.class("fast").WouldDelay != 2 {
		t.Errorf("the stop returns %+v, %v", last, err)
	}
	if after, err := p.Client.Shadow(ctx); err != nil || after.File != "" || len(after.Classes) != 0 {
		t.Errorf("after the stop there is %+v, %v", after, err)
	}
	p.wantRecord("shadow started", "+ shadow next.toml: "+started.Hash)
	p.wantRecord("shadow stopped", "- shadow next.toml: "+started.Hash)
}

// What a class did before the policy in the shadow began counts neither for it nor in the shadow.
func TestShadowCountsFromItsBeginning(t *testing.T) {
	p := begin(t, strings.Replace(base, `rate = "64KiB/s"`, "rate = \"1 connections/h\"\noverflow = \"refuse\"\nqueue = \"1 connections\"", 1))
	ctx := context.Background()
	connect := func() {
		c, err := net.Dial("tcp", p.address("echo"))
		if errors.Is(err, syscall.ECONNRESET) {
			return // the daemon refused it at once
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	for range 4 { // one departs, one waits, and the others are refused
		connect()
	}
	trial.Await(t, "two are refused", func() bool { return p.class(t, "slow").Overlimits == 3 })
	if _, err := p.Client.StartShadow(ctx, PolicyText{File: "same.toml", Text: base}); err != nil {
		t.Fatal(err)
	}
	s, err := p.Client.Shadow(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if live := s.class("slow").Live; live == nil || live.Delayed != 0 || live.Dropped != 0 {
		t.Errorf("since the shadow began, the class in force has done %+v", live)
	}
	connect()
	trial.Await(t, "one more is refused", func() bool {
		s, err := p.Client.Shadow(ctx)
		return err == nil && s.class("slow").Live.Dropped == 1
	})
}

// class returns the reading of a class.
func (p *process) class(t *testing.T, name string) Class {
	t.Helper()
	all, err := p.Classes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(c Class) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no class %q", name)
	}
	return all[i]
}

// If several callers start and stop policies in the shadow at once, each gets the answer to his
// own request.
func TestShadowAnswersWhoAsked(t *testing.T) {
	p := begin(t, base)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			file := fmt.Sprintf("%d.toml", n)
			for range 20 {
				if s, err := p.Client.StartShadow(t.Context(), PolicyText{File: file, Text: base}); err != nil || s.File != file {
					t.Errorf("the start of %s answers %q, %v", file, s.File, err)
				}
				if s, err := p.Client.StopShadow(t.Context()); err == nil && s.File == "" {
					t.Error("a stop that succeeds answers no policy")
				}
			}
		})
	}
	wg.Wait()
}

// Notes say what the numbers of a policy in the shadow omit.
func TestShadowNotes(t *testing.T) {
	p := begin(t, ruledText("http", "1000 messages/s", "[daemon]\ncontrol = \"c.sock\"\nhttp = \"127.0.0.1:0\"\n"))
	text := ruledText("smpp", "1000 messages/s", "[listener.new]\nlisten = \"127.0.0.1:0\"\nupstream = \"discard:\"\nclass = \"tcp\"\n[class.tcp]\nrate = \"1mbit\"\n")
	s, err := p.Client.StartShadow(t.Context(), PolicyText{File: "next.toml", Text: text})
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(s.Notes, "\n")
	for _, want := range []string{`listener "l" is in force with protocol "http", not "smpp", and gets no copies`, `listener "new" is not in force and gets no copies`} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes are %q, want %q among them", notes, want)
		}
	}
	same, err := p.Client.StartShadow(t.Context(), PolicyText{File: "same.toml", Text: ruledText("http", "1 messages/s", "")})
	if err != nil || len(same.Notes) != 0 {
		t.Errorf("a policy with the same listeners has the notes %q, %v", same.Notes, err)
	}
}

// A policy in the shadow may come in pieces.
func TestShadowOfPieces(t *testing.T) {
	p := begin(t, base)
	s, err := p.Client.StartShadow(t.Context(), PolicyText{File: "next.toml", Text: base,
		Pieces: []policy.File{{Name: "piece.toml", Text: "[class.piece]\nrate = \"1mbit\"\n"}}})
	if err != nil || s.class("piece").Rate.Text != "1mbit" {
		t.Errorf("error %v, shadow %+v", err, s)
	}
}
