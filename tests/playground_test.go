package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"shaper/policy"
	"shaper/simulate"
	"shaper/tests/trial"
)

// playground makes the playground as static files, and returns their directory.
func playground(t *testing.T) string {
	t.Helper()
	tool(t, "make", "make")
	dir := filepath.Join(binDir, "playground")
	makePlayground.Do(func() { makeIn(t, "playground", "PLAYGROUND="+dir) })
	if t.Failed() {
		t.FailNow()
	}
	return dir
}

var makePlayground sync.Once

// playRequest is what the playground asks its program.
type playRequest struct {
	Policy    string   `json:"policy"`
	Loads     []string `json:"load,omitempty"`
	Trace     string   `json:"trace,omitempty"`
	TraceText string   `json:"trace_text,omitempty"`
	For       string   `json:"for"`
	Seed      uint64   `json:"seed"`
	Members   *int     `json:"members,omitempty"`
}

// playAnswer is what the program answers, as far as the test compares it.
type playAnswer struct {
	Report     json.RawMessage
	Departures string
	Problems   []struct{ Text string }
}

// The program that browsers run, as WebAssembly under Node, and what `shaper simulate` runs here give
// the same departures and the same report for random policies, and the same mistakes.
func TestPlaygroundEqualsSimulate(t *testing.T) {
	t.Parallel()
	node := tool(t, "node", "nodejs")
	count := trial.Size(60, 1050) // so that 1,000 are not refused
	random := rand.New(rand.NewPCG(18, 4))
	var requests []playRequest
	var in bytes.Buffer
	for range count {
		q := randomRequest(random)
		requests = append(requests, q)
		if err := json.NewEncoder(&in).Encode(q); err != nil {
			t.Fatal(err)
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := playground(t)
	cmd := exec.Command(node, "--stack-size=2000", filepath.Join(strings.TrimSpace(string(goroot)), "lib/wasm/wasm_exec_node.js"), filepath.Join(dir, "play.wasm"))
	cmd.Stdin, cmd.Stderr, cmd.Env = &in, os.Stderr, []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	answers := json.NewDecoder(bytes.NewReader(out))
	departures, wrong, byProgram := 0, 0, 0
	for i, q := range requests {
		var got playAnswer
		if err := answers.Decode(&got); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		want := simulated(t, q)
		if got.Departures != want.Departures || string(got.Report) != string(want.Report) || fmt.Sprint(got.Problems) != fmt.Sprint(want.Problems) {
			t.Fatalf("policy %d: %s\n%v\nthe playground answers\n%.2000s\n%.2000s\n%v\nand shaper simulate\n%.2000s\n%.2000s\n%v", i, q.Policy, q,
				got.Report, got.Departures, got.Problems, want.Report, want.Departures, want.Problems)
		}
		if len(want.Problems) > 0 {
			wrong++
			continue
		}
		departures += strings.Count(want.Departures, "\n") - 1
		if trial.Full || byProgram < 5 {
			byProgram++
			if left := leftByProgram(t, q); left != got.Departures {
				t.Fatalf("policy %d: %s\n%v\nthe playground answers\n%.2000s\nand the command\n%.2000s", i, q.Policy, q, got.Departures, left)
			}
		}
	}
	t.Logf("%d policies and workloads have %d departures; %d of them were refused; %d went through the command too", count, departures, wrong, byProgram)
	if departures < 100*count || wrong > count/20 || wrong == 0 {
		t.Errorf("the policies are not what they should be: %d departures, %d refused", departures, wrong)
	}
}

// simulated takes the steps of the command in this process.
func simulated(t *testing.T, q playRequest) (a playAnswer) {
	t.Helper()
	failed := func(err error) playAnswer {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			a.Problems = append(a.Problems, struct{ Text string }{line})
		}
		return a
	}
	w, err := simulate.Words{Loads: q.Loads, Trace: q.Trace, For: &q.For, Seed: q.Seed, Members: q.Members}.Workload()
	if err != nil {
		return failed(err)
	}
	p, _, err := policy.Parse("shaper.toml", []byte(q.Policy))
	if err != nil {
		return failed(err)
	}
	var departures strings.Builder
	write, err := simulate.WriteDepartures(&departures, w.IsFleet())
	if err != nil {
		t.Fatal(err)
	}
	report, err := w.Run(p, simulate.Options{Departures: write}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(q.TraceText)), nil
	})
	if err != nil {
		return failed(err)
	}
	if a.Report, err = json.Marshal(report); err != nil {
		t.Fatal(err)
	}
	a.Departures = departures.String()
	return a
}

// leftByProgram returns what `shaper simulate --departures` writes.
func leftByProgram(t *testing.T, q playRequest) string {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	args := []string{"-c", in("shaper.toml"), "simulate", "--for", q.For, "--seed", fmt.Sprint(q.Seed), "--departures", in("left.csv")}
	for _, load := range q.Loads {
		args = append(args, "--load", load)
	}
	if q.Trace != "" {
		args = append(args, "--trace", in(q.Trace))
	}
	if q.Members != nil {
		args = append(args, "--members", fmt.Sprint(*q.Members))
	}
	for name, text := range map[string]string{"shaper.toml": q.Policy, "trace.csv": q.TraceText} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(plain(), args...).CombinedOutput(); err != nil {
		t.Fatalf("shaper %v: %v\n%s", args, err, out)
	}
	left, err := os.ReadFile(in("left.csv"))
	if err != nil {
		t.Fatal(err)
	}
	return string(left)
}

// A browser computes in its own what the command computes: a slider moves the curve, a policy is
// simulated, and mistakes lead to their places. It works by the daemon and as static files, in the
// light and in the dark, on a telephone and with the keyboard, and loads nothing from elsewhere.
func TestPlayground(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	bin := filepath.Join(binDir, "with-playground")
	tool(t, "make", "make")
	makeIn(t, "build", "BIN="+bin)
	p := start(t, bin, fmt.Sprintf(dashboardPolicy, "192.0.2.1:1"))
	b.size(1100, 800)
	b.open("http://" + p.status().HTTP + "/play")
	b.await("six classes are drawn", `document.querySelectorAll("#charts figure").length === 6`)
	b.seesPaint()
	t.Run("sliders", func(t *testing.T) { seesSliders(b) })
	t.Run("policy", func(t *testing.T) { seesPolicy(t, b) })
	t.Run("stop", func(t *testing.T) { seesStop(b) })
	t.Run("telephone", func(t *testing.T) { seesPlaygroundOnTelephone(t, b) })
	t.Run("axe", func(t *testing.T) { seesAxeInPlayground(t, b) })
	for _, loaded := range b.eval(`performance.getEntriesByType("resource").map((r) => new URL(r.name).origin).filter((o) => o !== location.origin)`).([]any) {
		t.Errorf("the page loads something from %v", loaded)
	}

	static := httptest.NewServer(http.FileServer(http.Dir(playground(t))))
	defer static.Close()
	b.open(static.URL + "/#algorithm=token")
	b.await("the static page draws one class", `document.querySelectorAll("#charts figure").length === 1 && document.querySelector("#charts").innerText.includes("token")`)
	if all := b.complaints(); len(all) > 0 {
		t.Errorf("the page complains: %s", strings.Join(all, "\n"))
	}
}

// curveSays awaits that the first chart says something of its class.
func curveSays(b *browser, what string) {
	b.t.Helper()
	b.await("the chart says "+what, fmt.Sprintf(`document.querySelector("#charts figure")?.innerText.includes(%q)`, what))
}

// seesSliders moves a slider by the keyboard, as a mouse does, and shares what it has come to.
func seesSliders(b *browser) {
	b.eval(`location.hash = "algorithm=token"`)
	curveSays(b, "token, 10 packets/s; reached 8 packets/s; at most 19 packets in 1 s; longest wait 2.81 s")
	picture := `document.querySelector("#charts canvas").toDataURL()`
	before := b.eval(picture)
	b.eval(`document.querySelector("#in-burst").parentElement.querySelector("[type=range]").focus()`)
	for range 5 {
		b.press("ArrowRight", "ArrowRight", 39)
	}
	b.await("the number is that of the slider, and the address has it", `document.querySelector("#in-burst").value === "15" && location.hash.includes("burst=15")`)
	curveSays(b, "longest wait 2.31 s")
	if b.eval(picture) == before {
		b.t.Error("the curve has not changed")
	}
	b.await("the bucket has 15 tokens at first, and its curve is drawn", `document.querySelectorAll("#charts canvas").length === 2
		&& document.querySelectorAll("#charts [role=img]")[1].ariaLabel.startsWith("token: tokens in its bucket: first 15 packets, fewest 0 packets, last ")`)
	b.eval(`location.hash = "algorithm=leaky&rate=20&burst=3"`)
	curveSays(b, "leaky, 20 packets/s")
	b.await("leaky has no bucket", `document.querySelectorAll("#charts canvas").length === 1`)
	b.await("leaky has no burst", `document.querySelector("#in-burst").parentElement.hidden && document.querySelector("#in-rate").value === "20"`)
}

// enter returns a script that enters a text into a field.
func enter(field, text string) string {
	return fmt.Sprintf(`{ const f = document.querySelector("#in-%s"); f.value = %q; f.dispatchEvent(new Event("input")); }`, field, text)
}

// seesPolicy gives the page a policy. The table has the figures of the command.
func seesPolicy(t *testing.T, b *browser) {
	b.eval(`[...document.querySelectorAll("form button")].find((b) => b.textContent.startsWith("Go on")).click()`)
	b.await("the fields say the same", `document.querySelector("h1").textContent === "A policy" && document.querySelector("#in-policy").value.includes("[class.leaky]")`)
	curveSays(b, "leaky, 20 packets/s")
	policy := strings.Replace(fmt.Sprintf(dashboardPolicy, "192.0.2.1:1"), "127.0.0.1:0", "127.0.0.1:7000", 1)
	b.eval(enter("workload", "rate=20 messages/min") + enter("for", "2h") + enter("policy", policy))
	b.await("bulk has left two messages", `[...document.querySelectorAll("#figures tbody tr")].some((r) => r.innerText.replace(/\s+/g, " ").startsWith("bulk 1 messages/h 877 2 "))`)
	b.await("the command is there", `document.querySelector("#command").textContent.includes("--load 'rate=20 messages/min' \\\n  --for '2h'")`)
	b.eval(enter("policy", strings.Replace(policy, "20 messages/s", "fast", 1)))
	b.await("the mistake is there", `document.querySelector("#problems").innerText.startsWith("shaper.toml:3:8: class.aggregator.rate: \"fast\" is not a rate")`)
	b.eval(`document.querySelector("#problems button").click()`)
	if got := b.eval(`document.activeElement.id + " " + document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)`); got != `in-policy "fast"` {
		t.Errorf("the mistake leads to %v", got)
	}
	b.eval(enter("policy", policy) + enter("workload", "rate=20"))
	b.await("the load is wrong", `document.querySelector("#problems").innerText.startsWith("--load: rate: \"20\" is not a rate")`)
	b.eval(enter("workload", "rate=1 messages/s"))
	b.await("nothing is wrong", `document.querySelector("#problems").hidden`)
}

// seesStop stops a simulation of 400,000 messages before it can end, and the page goes on.
func seesStop(b *browser) {
	before := b.eval(`document.querySelector("#in-workload").value`)
	b.eval(enter("for", "400s") + enter("workload", "rate=1000 messages/s") + `document.querySelector("#stop").click()`)
	b.await("it has stopped", `document.querySelector("#status").textContent === "stopped"`)
	b.eval(enter("workload", before.(string)))
	b.await("the page computes again", `document.querySelector("#status").textContent.includes("computed in") && document.querySelector("#stop").hidden`)
}

// playgroundPages are what a person may see, and what shows that it is there.
var playgroundPages = map[string]string{
	"":                     `document.querySelectorAll("#charts figure").length === 6`,
	"policy":               `document.querySelector("#in-policy") && document.querySelectorAll("#charts figure").length === 6`,
	"policy=[class.a]%0Ab": `document.querySelectorAll("#problems button").length > 0`,
}

func seesPlaygroundOnTelephone(t *testing.T, b *browser) {
	b.size(360, 740)
	for page, there := range playgroundPages {
		b.eval(fmt.Sprintf(`location.hash = %q`, page))
		b.await("the page is there", there)
		if wide := b.eval(`document.documentElement.scrollWidth`); wide.(float64) > 360 {
			t.Errorf("#%s is %v pixels wide on a screen of 360", page, wide)
		}
	}
	b.size(1100, 800)
}

func seesAxeInPlayground(t *testing.T, b *browser) {
	look := inAllLooks(t, b)
	for page, there := range playgroundPages {
		b.eval(fmt.Sprintf(`location.hash = %q`, page))
		b.await("the page is there", there)
		b.eval(`document.querySelector("details").open = true`)
		look("#" + page)
	}
}
