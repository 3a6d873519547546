package simulate

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"shaper/policy"
)

// traced is a policy whose listeners differ by port.
const traced = `[class.a]
rate = "10 packets/s"
[class.b]
rate = "1MB/s"
[listener.dns]
listen = "127.0.0.1:53"
protocol = "udp"
upstream = "192.0.2.1:53"
class = "a"
[listener.web]
listen = ["127.0.0.1:80", "127.0.0.1:443"]
upstream = "web.example:80"
class = "b"
[listener.dnstcp]
listen = "127.0.0.1:53"
upstream = "discard:"
class = "b"
`

// arrivals reads a whole trace.
func arrivals(t testing.TB, p *policy.Policy, name, text string) ([]Arrival, error) {
	source, err := ReadTrace(p, name, strings.NewReader(text))
	var found []Arrival
	for err == nil {
		var a Arrival
		if err = source.Next(&a); err == nil {
			found = append(found, a)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return found, err
}

func TestTraces(t *testing.T) {
	p := parse(t, traced)
	client := netip.MustParseAddrPort("10.0.0.1:5000")
	want := []Arrival{
		{At: Epoch.Add(990 * time.Millisecond), Bytes: 100, Opens: true,
			Conn: policy.Conn{Listener: "web", Source: netip.MustParseAddrPort("10.0.0.1:0"), Port: 443}},
		{At: Epoch.Add(time.Hour + 1), Bytes: 0, Messages: 2, Opens: true,
			Conn: policy.Conn{Listener: "dns", Source: client, Port: 53, Destination: netip.MustParseAddrPort("192.0.2.1:53")}},
	}
	for name, text := range map[string]string{
		"a.csv": "\ufefftime,client,port,bytes,messages,listener\n0.99,10.0.0.1,443,100,,\n\n" +
			"1970-01-01T01:00:00.000000001Z,10.0.0.1:5000,,0,2,dns\n",
		"a.jsonl": `{"time": 0.99, "client": "10.0.0.1", "port": 443, "bytes": 100}` + "\n\n" +
			`{"bytes":0,"listener":"dns","messages":2,"time":"1970-01-01T02:00:00.000000001+01:00","client":"10.0.0.1:5000"}`,
	} {
		if got, err := arrivals(t, p, name, text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", name, err, got, want)
		}
	}
}

func TestTraceErrors(t *testing.T) {
	p := parse(t, traced)
	for _, c := range []struct{ name, text, want string }{
		{"a.txt", "", `a.txt: trace: ".txt" is not a format; .csv, .jsonl, .pcap or .pcapng`},
		{"a.csv", "", "a.csv:1:1: header: the file is empty; a first line like time,client,bytes"},
		{"a.csv", "time,client\n", `a.csv:1:6: header: the column "bytes" is missing; `},
		{"a.csv", "time,client,bytes,size\n", `a.csv:1:19: header: "size" is not a column; the columns are time, client, `},
		{"a.csv", "time,time,client,bytes\n", `a.csv:1:6: header: there are two columns "time"; once`},
		{"a.csv", "time,client,bytes\n1,::1\n", "a.csv:2:1: syntax: wrong number of fields; "},
		{"a.csv", "time,client,bytes\n1,\"::1\n", "a.csv:2:8: syntax: "},
		{"a.csv", "time,client,bytes\n-1,::1,1\n", `a.csv:2:1: time: "-1" is not a time; seconds like 12.5, or RFC 3339`},
		{"a.csv", "time,client,bytes\n1min30,::1,1\n", `a.csv:2:1: time: "1min30" is not a time; `},
		{"a.csv", "time,client,bytes\n,::1,1\n", `a.csv:2:1: time: "" is not a time; `},
		{"a.csv", "time,client,bytes\n1.,::1,1\n", `a.csv:2:1: time: "1." is not a time; `},
		{"a.csv", "time,client,bytes\n.5,::1,1\n", `a.csv:2:1: time: ".5" is not a time; `},
		{"a.csv", "time,client,bytes\n1.0000000001,::1,1\n", `a.csv:2:1: time: "1.0000000001" is not a time; `},
		{"a.csv", "time,client,bytes\n1e3,::1,1\n", `a.csv:2:1: time: "1e3" is not a time; `},
		{"a.csv", "time,client,bytes\n9000000000,::1,1\n", `a.csv:2:1: time: "9000000000" is not a time; `},
		{"a.csv", "time,client,bytes\n1.-5,::1,1\n", `a.csv:2:1: time: "1.-5" is not a time; `},
		{"a.csv", "time,client,bytes\n+1,::1,1\n", `a.csv:2:1: time: "+1" is not a time; `},
		{"a.csv", "time,client,bytes\n1969-01-31T12:00:00Z,::1,1\n", `a.csv:2:1: time: "1969-01-31T12:00:00Z" is too early; from 1970 on`},
		{"a.csv", "time,client,bytes,port\n2,::1,1,80\n1,::1,1,80\n", `a.csv:3:1: time: "1" is before the line above; `},
		{"a.csv", "time,client,bytes\n1,me,1\n", `a.csv:2:3: client: "me" is not a client; a client is like`},
		{"a.csv", "time,client,bytes\n1,::1,\n", "a.csv:2:7: bytes: it is missing; a whole number"},
		{"a.csv", "time,client,bytes\n1,::1,-5\n", `a.csv:2:7: bytes: "-5" is not allowed; a whole number from 0 to`},
		{"a.csv", "time,client,bytes\n1,::1,1\n", "a.csv:2:1: listener: several listeners are possible; one of: dns, web, dnstcp"},
		{"a.csv", "time,client,bytes,port\n1,::1,1,53\n", "a.csv:2:9: port: several listeners are possible; one of: dns, dnstcp"},
		{"a.csv", "time,client,bytes,port\n1,::1,1,99\n", "a.csv:2:9: port: no listener has port 99; "},
		{"a.csv", "time,client,bytes,port\n1,::1,1,99999\n", `a.csv:2:9: port: "99999" is not allowed; a whole number from 0 to 65535`},
		{"a.csv", "time,client,bytes,listener\n1,::1,1,w\n", `a.csv:2:9: listener: there is no listener "w"; listeners: dns, `},
		{"a.jsonl", "[]\n", "a.jsonl:1:1: syntax: the line is not an object; an object like"},
		{"a.jsonl", "\n{\"time\": 1\n", "a.jsonl:2:1: syntax: the line is not one whole object; "},
		{"a.jsonl", `{"time": 1} {}`, "a.jsonl:1:1: syntax: the line is not one whole object; "},
		{"a.jsonl", `{"size": 1}`, `a.jsonl:1:1: key: "size" is not a key; the keys are time, `},
		{"a.jsonl", `{"time": 1, "time": 2}`, "a.jsonl:1:1: time: the key is given twice; once"},
		{"a.jsonl", `{"time": true}`, "a.jsonl:1:1: time: true is neither a text nor a number; "},
		{"a.jsonl", `{"time": null}`, "a.jsonl:1:1: time: "},
		{"a.jsonl", strings.Repeat(" ", maxLine+1), "a.jsonl:1:1: syntax: the line is too long; 65536 bytes"},
	} {
		_, err := arrivals(t, p, c.name, c.text)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %q:\n%v, want\n%s", c.name, c.text, err, c.want)
		}
	}
}

// FuzzTrace checks that each trace is refused with positioned errors, or can be simulated and
// written out.
func FuzzTrace(f *testing.F) {
	f.Add("time,client,port,bytes,messages,listener\n0.99,10.0.0.1,443,100,,\n1,10.0.0.1:5000,,0,2,dns\n", true)
	f.Add("time,client,bytes,port\n2026-01-31T12:00:00.5Z,::1,65535,80\n2026-01-31T12:00:01Z,\"::1\",1,80\n", true)
	f.Add(`{"time": 0.99, "client": "10.0.0.1", "port": 443, "bytes": 100}`+"\n", false)
	f.Fuzz(func(t *testing.T, text string, table bool) {
		name := "f.jsonl"
		if table {
			name = "f.csv"
		}
		p := parse(t, traced)
		found, err := arrivals(t, p, name, text)
		if err != nil {
			checkErrors(t, err)
		}
		checkArrivals(t, p, found)
	})
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	var mistakes policy.Errors
	if !errors.As(err, &mistakes) || len(mistakes) != 1 || mistakes[0].Key == "" || mistakes[0].Problem == "" || mistakes[0].Allowed == "" {
		t.Errorf("the trace is refused with %#v", err)
	}
}

// checkArrivals checks that arrivals are in order and can be simulated.
func checkArrivals(t *testing.T, p *policy.Policy, found []Arrival) {
	t.Helper()
	if !slices.IsSortedFunc(found, func(a, b Arrival) int { return a.At.Compare(b.At) }) {
		t.Errorf("the arrivals are not in order: %+v", found)
	}
	for i := range found {
		found[i].Bytes = min(found[i].Bytes, 1<<20) // more pieces would take too long
	}
	simulated(t, p, []Source{all(found)}, Options{For: time.Hour, Curves: true})
}
