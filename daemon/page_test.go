package daemon

import (
	"bufio"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"shaper/policy"
	"shaper/shaper"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/unit"
	"shaper/web"
)

// look returns the first event of a view of the dashboard, and what follows.
func (p *process) look(view string) (text string, rest *bufio.Reader) {
	p.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + p.status().HTTP + "/events/" + view)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { answer.Body.Close() })
	rest = bufio.NewReader(answer.Body)
	if text, err = rest.ReadString('\n'); err != nil {
		p.t.Fatalf("%s, %v", answer.Status, err)
	}
	return text, rest
}

func (p *process) status() Status {
	p.t.Helper()
	s, err := p.Client.Status(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// awaitSample waits until the dashboard has taken its first sample of the classes.
func (p *process) awaitSample(class string) {
	p.t.Helper()
	trial.Await(p.t, "a sample is taken", func() bool {
		first, err := firstOf[ClassView](p, "class/"+class)
		return err == nil && len(first.View.Curves.Times) == 1
	})
}

func TestDashboardShowsAll(t *testing.T) {
	p := begin(t, base)
	p.awaitSample("slow")
	for view, says := range map[string][]string{
		"classes":    {`"version":"test"`, `"state":"running"`, `"total":3`, `"name":"slow","rate":"64KiB/s"`},
		"class/slow": {`"name":"slow"`, `"why":"class slow: nothing waits, and an item that comes now leaves at once`, `"curves":{"unit":"bytes","times":[`},
		"class/none": {`"class":null`},
		"sessions":   {`"total":0,"rows":[]`},
		"upstreams":  {`"upstream":"echo:"`},
		"fleet":      {`"rows":[]`},
		"system":     {`"listeners":[{"name":"echo"`, `"policy_hash":`},
		"changes":    {`"what":"start"`},
	} {
		text, _ := p.look(view)
		for _, s := range says {
			if !strings.Contains(text, s) {
				t.Errorf("%s does not say %s: %s", view, s, text)
			}
		}
	}
}

// Of a policy without a listener, as that of a fresh package, each view has lists that the page can read.
func TestDashboardOfNothing(t *testing.T) {
	p := begin(t, base[:strings.Index(base, "[class.slow]")]+"include = \"none/*.toml\"\n")
	for view, says := range map[string]string{
		"classes": `"classes":[]`, "sessions": `"rows":[]`, "upstreams": `"rows":[]`, "fleet": `"rows":[]`, "system": `"listeners":[]`,
	} {
		if text, _ := p.look(view); !strings.Contains(text, says) {
			t.Errorf("%s does not say %s: %s", view, says, text)
		}
	}
}

// A class in the shadow delays nothing. The tree says so, and the class says what it would do.
func TestDashboardTellsOfShadow(t *testing.T) {
	p := begin(t, strings.Replace(base, "rate = \"64KiB/s\"\n", "rate = \"64KiB/s\"\nshadow = true\n", 1))
	if text, _ := p.look("classes"); strings.Count(text, `"shadow":true`) != 1 || !strings.Contains(text, `"name":"slow","rate":"64KiB/s","shadow":true`) {
		t.Errorf("of the classes it says %s", text)
	}
	if text, _ := p.look("class/slow"); !strings.Contains(text, `"shadow":{"would_delay":0,"would_drop":0,`) {
		t.Errorf("of the class it says %s", text)
	}
}

// What leads to a secret is not public, since it may be the secret itself.
func TestPathsOfSecretsAreNotPublic(t *testing.T) {
	for _, key := range []string{"username", "password_file", "sentinel_username", "sentinel_password_file", "tls"} {
		if isPublic(policy.Change{What: "fleet", Name: "f", Key: key}) {
			t.Errorf("%s is public", key)
		}
	}
	if !isPublic(policy.Change{What: "fleet", Name: "f", Key: "sentinel"}) {
		t.Error("sentinel is not public")
	}
}

// Whoever reaches daemon.http sees the dashboard. So it leaves out what rules look for, which may
// be the key of a client, names of files, and what is wrong with a policy, which quotes both.
func TestDashboardTellsNoSecret(t *testing.T) {
	p := begin(t, base)
	const more = `
[listener.web]
listen = "127.0.0.1:0"
protocol = "http"
upstream = "echo:"
class = "fast"
[[rule]]
"header:X-Api-Key" = "s3cret"
class = "fast"
[fleet.f]
address = "127.0.0.1:1"
password_file = "s3cret-file"
`
	p.write(base + more)
	p.Client.Reload(t.Context(), 0) // it fails: there is no such file
	p.write(strings.Replace(base+more[:strings.Index(more, "[fleet")], `"64KiB/s"`, `"63KiB/s"`, 1))
	if _, err := p.Client.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	p.write(base + "[class.\ns3cret")
	if _, err := p.Client.Reload(t.Context(), 0); err == nil {
		t.Fatal("a policy with a mistake came into force")
	}
	for _, view := range []string{"classes", "system", "changes"} {
		text, _ := p.look(view)
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s tells a secret: %s", view, text)
		}
		if view == "changes" && (!strings.Contains(text, `"new":"63KiB/s"`) || !strings.Contains(text, `"what":"rule"`) || !strings.Contains(text, "shaper history says why")) {
			t.Errorf("%s tells too little: %s", view, text)
		}
	}
}

// The names by which a browser may ask change with a reload. Metrics and health answer by any name.
func TestHostsOfDashboard(t *testing.T) {
	p := begin(t, base)
	status := func(path, host string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.status().HTTP+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if got := status("/", "shaper.example.com"); got != http.StatusMisdirectedRequest {
		t.Errorf("by a name that nobody has told: %d", got)
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		if got := status(path, "shaper.example.com"); got != http.StatusOK {
			t.Errorf("%s by another name: %d", path, got)
		}
	}
	p.edit(`http = "127.0.0.1:0"`, `http = "127.0.0.1:0"`+"\nhttp_hosts = \"Shaper.example.com\"")
	if _, err := p.Client.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := status("/", "shaper.example.com:9780"); got != http.StatusOK {
		t.Errorf("by a name of http_hosts: %d", got)
	}
}

// If daemon.http is off, nothing samples the classes. To turn it off ends the streams.
func TestDashboardOff(t *testing.T) {
	p := begin(t, base)
	samples := func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "web.(*Dashboard).Run")
	}
	_, rest := p.look("classes")
	if !samples() {
		t.Error("nothing samples the classes")
	}
	p.edit(`http = "127.0.0.1:0"`, `http = ""`)
	if _, err := p.Client.Reload(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, rest); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(patience); samples(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it goes on to sample the classes")
		}
	}
}

// A sample has what the row of the class has, and takes no memory but its own.
func TestSamples(t *testing.T) {
	conf := policy.DefaultClass("a")
	conf.Rate = unit.BytesPerSecond(1000)
	live := []*shaper.Class{shaper.NewClass(time.Now(), conf)}
	counters := live[0].Stats
	counters.Sent[stats.Upstream].Bytes.Add(500)
	counters.Sent[stats.Downstream].Bytes.Add(30)
	counters.Dropped[stats.MaxWait].AddItems(4, 1)
	counters.Refused[stats.QueueFull].AddItems(3, 1)
	live[0].Enter(time.Now(), &shaper.Item{Cost: shaper.Cost{Bytes: 5000, Packets: 1}})
	live[0].Enter(time.Now(), &shaper.Item{Cost: shaper.Cost{Bytes: 5000, Packets: 1}})
	if got, want := samplesOf(live)[0], (web.Sample{Name: "a", Unit: "bytes", Sent: 530, Lost: 7, Items: 1}); got != want {
		t.Errorf("the sample is %+v, want %+v", got, want)
	}
	if n := testing.AllocsPerRun(100, func() { samplesOf(live) }); n > 1 {
		t.Errorf("a sample takes %v allocations", n)
	}
}
