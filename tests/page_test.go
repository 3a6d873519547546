package tests

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/daemon"
	"shaper/stats"
	"shaper/tests/trial"
	"shaper/web"
)

// figures are what a dashboard shows without a daemon: what the test says.
type figures struct {
	mu    sync.Mutex
	lists map[string]func() any // what a view shows, by its name
}

func (*figures) Hosts() []string { return nil }
func (*figures) Summary() any {
	return daemon.Summary{Version: "1.2.3", State: daemon.Draining, Started: time.Now().Add(-50*time.Hour - time.Minute), ReloadOK: true}
}
func (*figures) Classes() []web.Class {
	return []web.Class{{Name: "plain"}, {Name: "tried", Shadow: true}}
}
func (*figures) Samples() []web.Sample { return nil }

func (*figures) Class(name string) (reading any, why string, ok bool) {
	c := daemon.Class{ClassReading: new(stats.Class).Read()}
	c.Name, c.Hinted = name, map[string]uint64{stats.HintTaken: 1234, stats.HintUnclear: 0}
	if name == "tried" {
		c.Shadow = &stats.ShadowReading{WouldDelay: 5678, WouldDrop: 1, WaitP50: stats.Seconds(time.Second), WaitP99: stats.Seconds(9 * time.Second)}
	}
	return c, "it waits", true
}

func (f *figures) List(name string) any {
	f.mu.Lock()
	what := f.lists[name]
	f.mu.Unlock()
	return what()
}

// show says what a view shows from now on.
func (f *figures) show(view string, what any) { f.ask(view, func() any { return what }) }

// ask says what to ask for what a view shows from now on.
func (f *figures) ask(view string, what func() any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists[view] = what
}

// statusOf returns a status as the view "system" shows it.
func statusOf(more stats.Status) daemon.Status {
	more.Listeners = []stats.ListenerReading{}
	return daemon.Status{Status: more, Sets: []daemon.Set{}}
}

// The pages of the dashboard do what they should with figures that a daemon shows seldom.
func TestPages(t *testing.T) {
	t.Parallel()
	f := &figures{lists: map[string]func() any{}}
	f.show("system", statusOf(stats.Status{}))
	server := httptest.NewServer(web.New(f))
	defer server.Close()
	b := newBrowser(t)
	defer b.open("about:blank") // so that no stream holds up the end of the server
	t.Run("live", func(t *testing.T) { seesLive(t, b, f, server.URL) })
	t.Run("silence", func(t *testing.T) { seesSilence(t, b, f, server.URL) })
	t.Run("curves", func(t *testing.T) { seesCurvesGo(t, b, server.URL) })
	t.Run("link", func(t *testing.T) { seesLink(t, b, server.URL) })
	t.Run("numbers", func(t *testing.T) { seesNumbers(t, b, server.URL) })
	t.Run("focus", func(t *testing.T) { seesFocus(t, b, server.URL) })
	t.Run("shadow", func(t *testing.T) { seesShadow(t, b, server.URL) })
	t.Run("kernel", func(t *testing.T) { seesKernel(t, b, f, server.URL) })
}

// openAnew loads a page, also if it is open already.
func openAnew(b *browser, url string) {
	b.t.Helper()
	b.open("about:blank")
	b.open(url)
}

// seesLive shows the page something that it cannot draw. Then it does not say that what it shows is live.
func seesLive(t *testing.T, b *browser, f *figures, url string) {
	f.show("system", "nonsense")
	openAnew(b, url+"/#system")
	b.await("the page has had an event", `document.querySelector("#summary").textContent !== ""`)
	trial.Await(t, "the page complains", func() bool { return strings.Contains(strings.Join(b.complaints(), "\n"), "TypeError") })
	if got := b.eval(`document.querySelector("#connection").textContent`); got == "live" {
		t.Errorf("the page cannot draw what it got, and says %q", got)
	}
	f.show("system", statusOf(stats.Status{}))
	b.await("the page draws again", `document.querySelector("#connection").textContent === "live"`)
	if got := b.eval(`document.querySelector("#summary").textContent`).(string); !strings.HasPrefix(got, "1.2.3, draining, up 2 d 2 h, ") {
		t.Errorf("above the view stands %q", got)
	}
}

// holdTimers makes the page keep its timers of 20 seconds in a map, in which they never end by themselves.
const holdTimers = `{
	const [set, clear] = [setTimeout, clearTimeout];
	globalThis.held = new Map();
	let last = 0;
	globalThis.setTimeout = (f, ms) => (ms === 20_000 ? (held.set(--last, f), last) : set(f, ms));
	globalThis.clearTimeout = (id) => held.delete(id) || clear(id);
}`

// seesSilence lets no event come any more, on a connection that stays. Once time has gone by, the page says that its
// figures are old, and listens again.
func seesSilence(t *testing.T, b *browser, f *figures, url string) {
	defer b.runFirst(holdTimers)()
	openAnew(b, url+"/#system")
	b.await("the page is live, and has one timer", `document.querySelector("#connection").textContent === "live" && held.size === 1`)
	silent, again := make(chan struct{}), make(chan struct{})
	f.ask("system", func() any {
		close(silent)
		<-again
		return statusOf(stats.Status{PolicyHash: "0123456789ab"})
	})
	<-silent
	b.eval(`globalThis.before = performance.getEntriesByType("resource").length, [...held.values()].forEach((f) => f())`)
	said := b.eval(`document.querySelector("#connection").textContent`).(string)
	if !regexp.MustCompile(`^no connection; the figures are old since (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d$`).MatchString(said) {
		t.Errorf("after 20 seconds without an event the page says %q", said)
	}
	f.show("system", statusOf(stats.Status{PolicyHash: "0123456789ab"}))
	close(again)
	b.await("the page is live again, and has one timer", `document.querySelector("#connection").textContent === "live" && held.size === 1`)
	b.await("the silent stream has ended, so the page has listened again", `performance.getEntriesByType("resource").length === before + 1`)
}

// noteCanvases makes the page note all canvases that it makes, and keep none for that.
const noteCanvases = `{
	globalThis.canvases = [];
	const make = document.createElement.bind(document);
	document.createElement = (tag) => {
		const e = make(tag);
		if (tag === "canvas") canvases.push(new WeakRef(e));
		return e;
	};
}`

// results shows results in the playground, in turn one of two classes, with a bucket in every other one.
const results = `import("./play-result.js").then(async ({ result }) => {
	const [charts, ...rest] = ["div", "div", "ul"].map((tag) => document.createElement(tag));
	document.body.append(charts, ...rest);
	const show = result(charts, ...rest);
	const none = { items: 0, bytes: 0 };
	for (let i = 0; i < 40; i++) {
		const c = { name: ["a", "b"][(i >> 2) % 2], algorithm: "token", limit: { unit: "packets", text: "1 packets/s", per_second: 1 }, offered: none, left: none,
			dropped: {}, refused: {}, waiting: none, most_waiting: none, rate_reached: { per_second: 1 }, utilisation: 0,
			wait_p50_seconds: 0, wait_p99_seconds: 0, wait_max_seconds: 0 };
		const course = { step_seconds: 1, offered: [1, 2], left: [1, 2], waiting: [0, 0], busiest: 1, window_seconds: 1, ...(i % 2 && { level: [1, 0], level_step_seconds: 1 }) };
		show({ report: { classes: [c], notes: [], seconds: 2 }, courses: [course] });
		await new Promise(requestAnimationFrame);
	}
})`

// seesCurvesGo looks at one class after another, and at one result after another. The page does not keep the curves that
// it no longer shows; only the browser may keep the last ones for a while.
func seesCurvesGo(t *testing.T, b *browser, url string) {
	defer b.runFirst(noteCanvases)()
	openAnew(b, url+"/#class/c0")
	for i := range 20 {
		b.eval(fmt.Sprintf(`location.hash = "class/c%d"`, i))
		b.await("the class is there", fmt.Sprintf(`document.querySelector("h1").textContent === "Class c%d" && document.querySelectorAll("canvas").length === 3`, i))
	}
	b.eval(`location.hash = "system"`)
	b.await("no curve is there", `document.querySelectorAll("canvas").length === 0`)
	b.eval(results)
	b.call("HeapProfiler.collectGarbage", nil, nil)
	drawn, kept := b.eval(`canvases.length`).(float64), b.eval(`canvases.filter((c) => c.deref()).length`).(float64)
	if drawn < 80 || kept > 8 {
		t.Errorf("of %v curves the page keeps %v, though it shows 2", drawn, kept)
	}
}

// seesLink opens links to the playground that somebody has made up. What they hold is never a command of the shell, and a
// choice has one of its values.
func seesLink(t *testing.T, b *browser, url string) {
	for link, want := range map[string]string{
		"policy=x&kind=csv%3Bcurl+x%7Csh%3B": "--load 'rate=20 packets/s,pattern=poisson' \\\n  --seed '1' \\\n",
		"policy=x&kind=constructor":          "--load 'rate=20 packets/s,pattern=poisson' \\\n  --seed '1' \\\n",
		"policy=x&kind=csv":                  "--trace 'trace.csv' \\\n  --seed '1' \\\n",
		"policy=x&seed=%27%24%28x%29%27":     "--seed ''\\''$(x)'\\''' \\\n",
		"algorithm=x&pattern=y%2Cz%3D1":      "--load 'rate=200 packets/s,pattern=bursts,on=200ms,off=10000ms,start=900ms' \\\n",
	} {
		openAnew(b, url+"/play#"+link)
		b.await("the command is there", `document.querySelector("#command").textContent.startsWith("shaper -c")`)
		got := b.eval(`document.querySelector("#command").textContent`).(string)
		if !strings.Contains(got, want) {
			t.Errorf("%s becomes the command\n%s\nwhich lacks\n%s", link, got, want)
		}
		if none := b.eval(`[...document.querySelectorAll("select")].filter((s) => s.value === "").map((s) => s.id).join()`); none != "" {
			t.Errorf("%s leaves a choice without a value: %v", link, none)
		}
	}
}

// seesNumbers looks at what the playground asks for: whole numbers that JavaScript has exactly, and else the text, which
// the simulation refuses. So it never simulates another number than the command beside it names.
func seesNumbers(t *testing.T, b *browser, url string) {
	openAnew(b, url+"/play")
	for text, want := range map[string]any{
		"7": 7., "9007199254740991": 9007199254740991., "9007199254740993": "9007199254740993", "18446744073709551615": "18446744073709551615",
		"1.5": "1.5", " ": " ", "x": "x", "": 1.,
	} {
		got := b.eval(fmt.Sprintf(`import("./play-form.js").then(({ request, defaults }) => request({ ...defaults.policy, seed: %q }).seed)`, text))
		if got != want {
			t.Errorf("the seed %q is asked for as %v (%T), want %v", text, got, got, want)
		}
	}
}

// rowsChange fills a table, gives the focus to the link of a row, and changes the rows. It returns what has the focus then.
const rowsChange = `import("./table.js").then(({ table }) => {
	const columns = [{ name: "Name", text: (r) => r[0], href: (r) => "#class/" + r[0] }, { name: "Figure", text: (r) => String(r[1]), by: (r) => r[1] }];
	const t = table("Rows", columns, (r) => r[0]);
	document.body.append(t.element);
	t.update([["a", 1], ["b", 2], ["c", 3], ["d", 4]], new Date());
	if (%t) [...t.element.querySelectorAll("button")].at(-1).click();
	[...t.element.querySelectorAll("a")].find((a) => a.textContent === "c").focus();
	t.update(%s, new Date());
	const has = document.activeElement.textContent + ": " + [...t.element.querySelectorAll("a")].map((a) => a.textContent).join("");
	t.element.remove();
	return has;
})`

// seesFocus lets rows of a table come, go and change their places. The row that has the focus keeps it.
func seesFocus(t *testing.T, b *browser, url string) {
	openAnew(b, url+"/#system")
	for _, c := range []struct {
		sorted     bool // the largest figures come first
		then, want string
	}{
		{false, `[["b", 2], ["c", 3], ["d", 4]]`, "c: bcd"},
		{false, `[["c", 3]]`, "c: c"},
		{false, `[["0", 0], ["a", 1], ["b", 2], ["b2", 2], ["c", 3], ["d", 4]]`, "c: 0abb2cd"},
		{false, `[["d", 4], ["c", 3], ["b", 2], ["a", 1]]`, "c: dcba"},
		{true, `[["a", 1], ["b", 2], ["c", 3], ["d", 4]]`, "c: dcba"},
		{true, `[["a", 1], ["b", 2], ["c", 9], ["d", 4]]`, "c: cdba"},
		{true, `[["a", 1], ["b", 2], ["c", 0], ["d", 4]]`, "c: dbac"},
	} {
		if got := b.eval(fmt.Sprintf(rowsChange, c.sorted, c.then)); got != c.want {
			t.Errorf("sorted %t, then %s: the focus and the rows are %q, want %q", c.sorted, c.then, got, c.want)
		}
	}
}

// seesShadow looks at classes of which one is in the shadow. The page says so, and what it would do, as `shaper classes` does.
func seesShadow(t *testing.T, b *browser, url string) {
	openAnew(b, url+"/#classes")
	b.await("the classes are there", `document.querySelectorAll("tbody tr").length === 2`)
	if got := b.eval(`[...document.querySelectorAll("tbody th")].map((c) => c.innerText.replace(/\s+/g, " ").trim()).join(", ")`); got != "plain, tried in the shadow: delays nothing" {
		t.Errorf("the classes are %q", got)
	}
	for name, want := range map[string]string{
		"tried": "in the shadow delays nothing, drops nothing, would delay 5,678 items, would drop 1 item, would wait p50 1 s, would wait p99 9 s, hints, taken 1,234",
		"plain": "hints, taken 1,234",
	} {
		b.eval(fmt.Sprintf(`location.hash = "class/%s"`, name))
		b.await("the class is there", fmt.Sprintf(`document.querySelector("h1").textContent === "Class %s" && !!document.querySelector("dl div")`, name))
		facts := `[...document.querySelectorAll("dl div")].map((d) => d.querySelector("dt").textContent + " " + d.querySelector("dd").textContent)`
		if got := b.eval(facts + `.filter((f) => /^(in the shadow|would|hints)/.test(f)).join(", ")`); got != want {
			t.Errorf("of class %s it says %q, want %q", name, got, want)
		}
	}
}

// seesKernel reads what the page says of the kernel, which is not what the policy has if that is why nothing is shaped.
func seesKernel(t *testing.T, b *browser, f *figures, url string) {
	openAnew(b, url+"/#system")
	for _, c := range []struct {
		is   stats.Status
		says string
	}{
		{stats.Status{}, "The policy has no device: the kernel shapes nothing."},
		{stats.Status{Kept: &stats.KeptReading{Error: "not permitted"}}, "The kernel differs from the policy: not permitted."},
		{stats.Status{Kept: &stats.KeptReading{}}, "The kernel is as the policy says. No device of the policy is there."},
		{stats.Status{Kept: &stats.KeptReading{Corrected: 1200}, Kernel: []stats.ClassReading{new(stats.Class).Read()}},
			"The kernel is as the policy says. shaper has put 1,200 objects right since the start."},
	} {
		f.show("system", statusOf(c.is))
		b.await("the page says: "+c.says, fmt.Sprintf(`[...document.querySelectorAll("main p")].some((p) => p.innerText === %q)`, c.says))
		if got, want := b.eval(`[...document.querySelectorAll("main .wide")].at(-1).hidden`), len(c.is.Kernel) == 0; got != want {
			t.Errorf("%s: the table of the kernel is hidden: %v, want %v", c.says, got, want)
		}
	}
}
