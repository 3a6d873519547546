package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// FuzzParse checks that any file is either refused with errors that have positions, or can be
// compiled, printed, compared and sent as JSON.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, shipped) {
		f.Add(mustRead(f, file))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, warnings, err := Parse("f.toml", data)
		checkTOML(t, data, err == nil)
		if err != nil {
			checkErrors(t, data, err)
			return
		}
		for _, w := range warnings {
			checkPosition(t, data, w)
		}
		use(t, p)
		if again, _, err := Parse("f.toml", data); err != nil || again.Hash != p.Hash || len(Diff(p, again)) > 0 {
			t.Errorf("the second reading gives another policy: %v, %v", err, Diff(p, again))
		}
	})
}

// checkTOML compares what is accepted as TOML with go-toml's own decoder. The decoder also
// refuses dates and numbers out of range, which no key accepts.
func checkTOML(t *testing.T, data []byte, accepted bool) {
	data = withoutBOM(data)
	var all map[string]any
	err := toml.Unmarshal(data, &all)
	if accepted && err != nil {
		t.Errorf("accepted, although it is not TOML: %v", err)
	}
	r := newReport("f.toml", data)
	if parseNodes(r, data); err == nil && len(r.errs) > 0 {
		t.Errorf("refused, although it is TOML: %v", r.errs)
	}
}

func checkErrors(t *testing.T, data []byte, err error) {
	var es Errors
	if !errors.As(err, &es) || len(es) == 0 {
		t.Fatalf("refused with %v", err)
	}
	for _, e := range es {
		checkPosition(t, data, e)
	}
}

// checkPosition checks that an error points into the file, or to its end.
func checkPosition(t *testing.T, data []byte, e Error) {
	lines := bytes.Split(data, []byte("\n"))
	if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 {
		t.Errorf("the file has no position %d:%d: %v", e.Line, e.Column, e)
	}
	if e.Key == "" || e.Problem == "" || e.Allowed == "" {
		t.Errorf("%#v has no key or no problem", e)
	}
}

func use(t *testing.T, p *Policy) {
	c := Compile(p)
	for _, l := range p.Listeners {
		conn := Conn{Listener: l.Name, Source: netip.MustParseAddrPort("10.1.2.3:1234"), Port: 443}
		d, e := c.Classify(conn), c.Explain(conn, Fields{})
		if _, ok := p.Class(d.Class); !ok || e.Class != d.Class || e.Rule != d.Rule || e.ReturnClass != d.ReturnClass {
			t.Errorf("Classify returns %+v, Explain %v", d, e)
		}
	}
	if err := p.WriteTree(io.Discard); err != nil {
		t.Error(err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Policy
	if err := json.Unmarshal(data, &back); err != nil || len(Diff(p, &back)) > 0 {
		t.Errorf("JSON changes the policy: %v, %v", err, Diff(p, &back))
	}
}
