package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"shaper/fleet/fleettest"
	"shaper/tests/trial"
)

// seenPolicy uses whatever the dashboard has a panel for.
const seenPolicy = `
[daemon]
control = "run/c.sock"
http    = "127.0.0.1:0"
drain   = "0s"
state   = "state"
[fleet.prod]
address = %q
[class.line]
rate = "10mbit"
[class.guest]
parent = "line"
rate   = "1mbit"
ceil   = "8mbit"
[class.api]
rate        = "50 messages/s"
queue       = "4 messages"
hints       = true
retry       = { max = 1 }
learn       = { floor = "5 messages/s" }
on_throttle = { pause = "20ms", max = "20ms" }
[class.model]
rate = "600 tokens/s"
cost = { header = "X-Tokens", default = 10, max = 100 }
[class.hourly]
algorithm = "fixed-window"
rate      = "1000 messages/h"
[class.dns]
rate  = "6 packets/min" # so that one waits for longer than a scrape is old
queue = "1 packets"
[class.logins]
rate     = "50 connections/s"
per      = "source"
max_keys = 1
[class.tried]
rate   = "1 messages/s"
queue  = "1 messages"
shadow = true
[class.shared]
rate   = "200 messages/s"
shared = "prod"
`

// seenListeners returns listeners for the classes of seenPolicy. Those of HTTP lead to an address.
func seenListeners(web string) (policy string) {
	for _, l := range [][4]string{
		{"guest", "tcp", "echo:", "guest"}, {"api", "http", web, "api"}, {"model", "http", web, "model"}, {"hourly", "lines", "discard:", "hourly"},
		{"tried", "lines", "discard:", "tried"}, {"shared", "lines", "discard:", "shared"}, {"dns", "udp", "discard:", "dns"},
		{"logins", "tcp", "echo:", "logins"}, {"dead", "tcp", "127.0.0.1:1", "guest"}, {"junk", "smpp", "discard:", "hourly"},
	} {
		policy += fmt.Sprintf("[listener.%s]\nlisten = \"127.0.0.1:0\"\nprotocol = %q\nupstream = %q\nclass = %q\n", l[0], l[1], l[2], l[3])
	}
	return policy
}

// A Prometheus that has the rules evaluates every expression of the dashboard against daemons with
// real traffic. Each gives data, with classic buckets and with native histograms.
func TestGrafanaShowsData(t *testing.T) {
	t.Parallel()
	tool(t, "prometheus", "prometheus")
	var asked atomic.Int64
	_, web := httpServer(t, func(w http.ResponseWriter, _ *http.Request) { // refuses every fifth, in pairs
		w.Header().Set("X-RateLimit-Limit", "2000")
		w.Header().Set("X-RateLimit-Remaining", "1000")
		w.Header().Set("X-RateLimit-Reset", "60")
		if asked.Add(1)%10 < 2 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	p := start(t, plain(), fmt.Sprintf(seenPolicy, fleettest.StartRedis(t).Addr)+seenListeners(web))
	targets := []string{p.status().HTTP}
	empty := map[string]string{ // panels without data, and why
		"Limit that was found": "learn has not found one so soon",
		"Stray datagrams":      "there is no relay of datagrams and no transparent listener",
	}
	if os.Geteuid() == 0 {
		targets = append(targets, seenKernel(t))
	} else {
		for _, title := range []string{"Sent by the kernel", "Dropped by the kernel", "Waiting in the kernel", "As the policy says"} {
			empty[title] = "the kernel needs root"
		}
	}
	classic, native := startPrometheus(t, targets), startPrometheus(t, targets, "--enable-feature=native-histograms")
	panels := readPanels(t)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 10}} // retry needs connections that stay
	t.Cleanup(client.CloseIdleConnections)
	for _, at := range []*prometheus{classic, native} {
		left := append(panels.queries, recordedQueries...)
		trial.Await(t, "every panel and every recording rule has data", func() bool {
			traffic(t, p, client)
			before := len(left)
			if left = at.without(left, empty); len(left) > 0 && len(left) < before {
				t.Logf("without data: %q: %s", left[0].title, left[0].expr)
			}
			return len(left) == 0 || t.Failed()
		})
		at.checkRules()
	}
	if native.get(`query=count(shaper_class_wait_seconds)`) == nil {
		t.Error("there is no native histogram")
	}
	for title, why := range empty {
		if !panels.titles[title] {
			t.Errorf("there is no panel %q", title)
		}
		t.Logf("no data in %q: %s", title, why)
	}
	t.Logf("%d expressions of %d panels", len(panels.queries), len(panels.titles))
}

// seenKernel runs a daemon that shapes a device of a namespace, and returns an address that leads to
// its metrics.
func seenKernel(t *testing.T) (addr string) {
	near, _ := wire(t)
	near.run("ip link set lo up")
	p := startIn(near, t, plain(), keptPolicy("2mbit"))
	to := &url.URL{Scheme: "http", Host: p.status().HTTP}
	way := httputil.NewSingleHostReverseProxy(to)
	way.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // a busy machine is late for a scrape
	way.Transport = &http.Transport{DialContext: func(_ context.Context, network, addr string) (c net.Conn, err error) {
		near.do(func() error { c, err = net.Dial(network, addr); return err })
		return c, err
	}}
	s := httptest.NewServer(way)
	t.Cleanup(s.Close)
	near.run("tc qdisc del dev wire root") // and shaper puts it back
	return s.Listener.Addr().String()
}

// traffic sends something through each listener of a daemon.
func traffic(t *testing.T, p *program, client *http.Client) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 11 {
		all.Go(func() {
			answer, err := client.Get("http://" + p.addr([]string{"api", "model"}[i/10]) + "/")
			if err != nil {
				t.Error(err)
				return
			}
			answer.Body.Close()
		})
	}
	all.Wait()
	for _, name := range []string{"hourly", "tried", "shared"} {
		sendText(t, "", p.addr(name), "hello\nhello\nhello\n")
	}
	sendText(t, "", p.addr("guest"), strings.Repeat("bytes", 1000))
	sendText(t, "", p.addr("dead"), "x")
	sendText(t, "", p.addr("junk"), "this is not SMPP")
	sendText(t, "127.0.0.1", p.addr("logins"), "x")
	sendText(t, "127.0.0.2", p.addr("logins"), "x")
	send(t, p.addr("dns"), 5)
}

// write opens a connection, writes a text, and closes the connection.
func sendText(t *testing.T, from, to, text string) {
	t.Helper()
	c := dial(t, from, to)
	io.WriteString(c, text) // if it fails, the far end has closed already
	c.Close()
}

// panels is what a dashboard asks for.
type panels struct {
	titles  map[string]bool
	queries []panelQuery
}

// panelQuery is an expression of a panel. Its series have the labels that the legend names.
type panelQuery struct {
	title, expr, legend string
	table               bool
}

// recordedQueries asks for what the recording rules write.
var recordedQueries = func() (all []panelQuery) {
	for _, name := range []string{"sent:rate5m", "limit:max", "load:ratio5m", "wait_seconds:p50_5m", "wait_seconds:p99_5m", "refused:ratio15m"} {
		all = append(all, panelQuery{title: "recording rule", expr: "class:shaper_" + name})
	}
	return all
}()

// readPanels reads the dashboard, with all that a user can choose chosen.
func readPanels(t *testing.T) (all panels) {
	t.Helper()
	text, err := os.ReadFile("../metrics/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Annotations struct {
			List []struct{ Name, Expr, TextFormat string }
		}
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	chosen := strings.NewReplacer("$__rate_interval", "20s", "$instance", ".*", "$class", ".*")
	all.titles = map[string]bool{}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all.titles[p.Title] = true
			all.queries = append(all.queries, panelQuery{p.Title, chosen.Replace(q.Expr), q.LegendFormat, p.Type == "table"})
		}
	}
	return all
}

// prometheus is a server that scrapes daemons and evaluates the rules.
type prometheus struct {
	t    *testing.T
	addr string
}

// startPrometheus runs a server until the test ends.
func startPrometheus(t *testing.T, targets []string, args ...string) *prometheus {
	t.Helper()
	dir, addr := t.TempDir(), "127.0.0.1:"+freePort(t)
	rules, err := filepath.Abs("../metrics/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf(`global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }
rule_files: [%q]
scrape_configs:
  - { job_name: shaper, static_configs: [{ targets: ["%s"] }] }
`, rules, strings.Join(targets, `", "`))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("prometheus", append(args, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=error")...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	s := &prometheus{t, addr}
	trial.Await(t, "Prometheus has scraped all daemons", func() bool {
		return len(s.get("query="+url.QueryEscape(`up{job="shaper"} == 1`))) == len(targets)
	})
	return s
}

// get returns the labels of the series that a query gives; nil if there are none, or nobody answers.
func (s *prometheus) get(query string) (series []map[string]string) {
	s.t.Helper()
	path := "/api/v1/query?"
	if strings.Contains(query, "start=") {
		path = "/api/v1/query_range?"
	}
	response, err := (&http.Client{Timeout: patience}).Get("http://" + s.addr + path + query)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil // it is still starting
	}
	if answer.Status == "error" {
		s.t.Errorf("%s: %s", query, answer.Error)
	}
	for _, r := range answer.Data.Result {
		series = append(series, r.Metric)
	}
	return series
}

// without returns the queries that are left from the first one that gives no data yet, and should.
func (s *prometheus) without(queries []panelQuery, empty map[string]string) (left []panelQuery) {
	s.t.Helper()
	now := time.Now()
	for i, q := range queries {
		ask := "query=" + url.QueryEscape(q.expr)
		if !q.table {
			ask += fmt.Sprintf("&start=%d&end=%d&step=1", now.Add(-20*time.Second).Unix(), now.Unix())
		}
		series := s.get(ask)
		if len(series) == 0 && empty[q.title] == "" {
			return queries[i:]
		}
		s.checkLegend(q, series)
	}
	return nil
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// checkLegend fails the test if series lack a label that their legend names.
func (s *prometheus) checkLegend(q panelQuery, series []map[string]string) {
	s.t.Helper()
	for _, m := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
		for _, labels := range series {
			if _, ok := labels[m[1]]; !ok {
				s.t.Errorf("%q: the series %v have no label %s", q.title, labels, m[1])
			}
		}
	}
}

// checkRules fails the test unless all rules were evaluated without an error.
func (s *prometheus) checkRules() {
	s.t.Helper()
	text, _ := fetch(s.t, "http://"+s.addr+"/api/v1/rules")
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Data.Groups) == 0 {
		s.t.Fatalf("%v: %s", err, text)
	}
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				s.t.Errorf("rule %s: %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
}
