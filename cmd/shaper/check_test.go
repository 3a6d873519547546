package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// Every command that reads a policy reads its pieces.
func TestPolicyInPieces(t *testing.T) {
	t.Chdir(trial.Files(t, map[string]string{
		"shaper.toml":        "[daemon]\ninclude = \"shaper.d/*.toml\"\n",
		"shaper.d/acme.toml": "[class.acme]\nrate = \"10 packets/s\"\n[listener.web]\nlisten = \"127.0.0.1:0\"\nprotocol = \"udp\"\nupstream = \"echo:\"\nclass = \"acme\"\n",
	}))
	want(t, 0, []string{"class acme", "listener web", "include  shaper.d/*.toml"}, "check")
	want(t, 0, []string{"class acme"}, "explain", "10.0.0.1", "--policy", "shaper.toml", "--expect", "acme")
	want(t, 0, []string{"acme"}, "simulate", "--load", "listener=web,pattern=poisson,rate=1 packets/s", "--for", "10s")

	if err := os.WriteFile("shaper.d/zz.toml", []byte("[class.acme]\nrate = \"1mbti\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want(t, 65, []string{"shaper.d/zz.toml:1:2: class.acme: it is defined already, in shaper.d/acme.toml on line 1"}, "check")
	if err := os.RemoveAll("shaper.d"); err != nil {
		t.Fatal(err)
	}
	want(t, 0, []string{"warning: shaper.toml:2:11: daemon.include: no file has a section [listener.NAME] yet, so nothing is shaped"}, "check")
}

// The pieces of a policy on the standard input are beside the working directory.
func TestPiecesOfTheStandardInput(t *testing.T) {
	t.Chdir(trial.Files(t, map[string]string{"x.toml": "[class.acme]\nrate = \"1mbit\"\n[listener.web]\nlisten = \"127.0.0.1:0\"\nupstream = \"echo:\"\nclass = \"acme\"\n"}))
	var out, errs bytes.Buffer
	app := newApp(&out, &errs)
	app.Reader = strings.NewReader("[daemon]\ninclude = \"x.toml\"\n")
	if err := app.RunContext(context.Background(), []string{"shaper", "check", "-"}); err != nil || !strings.Contains(out.String(), "class acme") {
		t.Errorf("error %v\n%s%s", err, &out, &errs)
	}
}
