package client

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A request costs what the proxy would charge it: by the nearest cost on its path in each unit.
func TestTransportCharges(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		classes string
		want    []time.Duration // when requests leave of class api
	}{
		{"nothing", "[class.api]\nrate = '10 messages/s'", []time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		{"an integer", "[class.api]\nrate = '30 messages/s'\ncost = 3", []time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		{"of the class above", "[class.all]\nrate = '30 messages/s'\ncost = 3\n[class.api]\nparent = 'all'\nrate = '30 messages/s'", []time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
		{"a field", "[class.api]\nrate = '10 messages/s'\ncost = { header = 'x-cost', default = 2 }", []time.Duration{0, 200 * ms, 500 * ms, 700 * ms}},
		{"bytes", "[class.api]\nrate = '10 messages/s'\ncost = { bytes = 4, default = 5 }", []time.Duration{0, 100 * ms, 400 * ms, 900 * ms}},
		{"tokens", "[class.api]\nrate = '10 tokens/s'\ncost = { header = 'X-Cost' }", []time.Duration{0, 100 * ms, 400 * ms, 500 * ms}},
		{"tokens above", "[class.all]\nrate = '10 tokens/s'\ncost = 2\n[class.api]\nparent = 'all'\nrate = '30 messages/s'", []time.Duration{0, 200 * ms, 400 * ms, 600 * ms}},
		{"tokens below", "[class.all]\nrate = '10 messages/s'\ncost = 2\n[class.api]\nparent = 'all'\nrate = '1000 tokens/s'\ncost = 5", []time.Duration{0, 200 * ms, 400 * ms, 600 * ms}},
		{"a body above that nobody reads", "[class.all]\nrate = '30 messages/s'\ncost = { json = 'n' }\n[class.api]\nparent = 'all'\nrate = '30 messages/s'\ncost = 3", []time.Duration{0, 100 * ms, 200 * ms, 300 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := load(t, tt.classes+"\n")
				defer p.Close()
				transport, err := p.Transport("api")
				if err != nil {
					t.Fatal(err)
				}
				base := record(ok)
				transport.Base = base
				for _, req := range requests(t) {
					if _, err := transport.RoundTrip(req); err != nil {
						t.Fatal(err)
					}
				}
				base.want(t, tt.want...)
			})
		})
	}
}

// requests returns a request that says nothing of its cost, one that says "2.5" and has a body of 9
// bytes, one with a body of unknown length, and one without a body.
func requests(t *testing.T) (all []*http.Request) {
	t.Helper()
	for _, body := range []io.Reader{nil, strings.NewReader("nine byte"), io.MultiReader(strings.NewReader("unknown")), nil} {
		req, err := http.NewRequest("POST", "http://api.example/", body)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, req)
	}
	all[1].Header["x-COST"] = []string{"2.5"} // rounded up
	return all
}

// A class is an error if it, or a class above it, would charge requests by what a Transport does not
// read.
func TestTransportCannotCharge(t *testing.T) {
	for classes, want := range map[string]string{
		"[class.api]\nrate = '30 messages/s'\ncost = { json = 'n' }":                                                                         `"api" reads in the body of a request what it costs, and a Transport does not`,
		"[class.all]\nrate = '30 tokens/s'\ncost = { json = 'n' }\n[class.api]\nparent = 'all'\nrate = '30 messages/s'":                      `"all" reads in the body of a request what it costs`,
		"[class.api]\nrate = '30 messages/s'\ncost = { segments = true }":                                                                    `"api" counts the parts of an SMS, and a request has none`,
		"[class.api]\nrate = '30 messages/s'\nsettle = { header = 'X-Used' }":                                                                `"api" has settle, and a Transport does not read what an answer says of the cost`,
		"[class.all]\nrate = '30 messages/s'\nthrottled_by = { json = 's', equals = 1 }\n[class.api]\nparent = 'all'\nrate = '1 messages/s'": `"all" has throttled_by, and a Transport knows "too fast" by the status alone`,
		"[class.all]\nrate = '1mbit'\n[class.api]\nparent = 'all'\nrate = '30 messages/s'":                                                   `"all" counts bytes, and a request is a message: it would never limit`,
		"[class.all]\nrate = '30 messages/s'\n[class.api]\nparent = 'all'\nrate = '1mbit'":                                                   `"api" counts bytes, and a request is a message: it would never limit`,
		"[class.api]\nrate = '30 tokens/s'":                                                                                                  `"api" counts tokens, and nothing says how many a request costs`,
	} {
		p, _ := load(t, classes+"\n")
		if _, err := p.Transport("api"); !strings.Contains(text(err), want) {
			t.Errorf("%s\ngives %v, want %s", classes, err, want)
		}
	}
}
