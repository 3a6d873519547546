package tests

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"shaper/tests/trial"
)

// dashboardPolicy has a class in which all but the first message waits for an hour.
const dashboardPolicy = `
[class.aggregator]
rate = "20 messages/s"
[class.otp]
parent = "aggregator"
rate = "10 messages/s"
[class.bulk]
parent = "aggregator"
rate = "1 messages/h"
[class.idle]
rate = "1mbit"
[listener.bulk]
listen = "127.0.0.1:0"
protocol = "lines"
upstream = %q
class = "bulk"
`

// startWaiting starts a daemon with dashboardPolicy, in which 49 messages wait. It returns its upstream, too.
func startWaiting(t *testing.T) (p *program, upstream string) {
	t.Helper()
	upstream = serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	p = start(t, plain(), fmt.Sprintf(dashboardPolicy, upstream))
	if _, err := io.WriteString(dial(t, "", p.addr("bulk")), strings.Repeat("hello\n", 50)); err != nil {
		t.Fatal(err)
	}
	trial.Await(t, "49 messages wait", func() bool { return p.class("bulk").Backlog == 49 })
	return p, upstream
}

// A browser shows in one click why a class waits, and its last hour. All views work without a
// mistake, in the light and in the dark, on a telephone, and with the keyboard.
func TestDashboard(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p, upstream := startWaiting(t)
	b.size(1100, 800)
	b.open("http://" + p.status().HTTP + "/")
	b.seesPaint()

	b.await("the class that waits says what for", `document.querySelector("main tbody")?.innerText.includes("waits for 1 messages/h until ")`)
	b.eval(`[...document.querySelectorAll("th button")].find((head) => head.textContent === "Oldest").click()`)
	b.await("a click on the head sorts by what has waited longest", `(() => {
		const head = document.querySelector('th[aria-sort="descending"]');
		const shown = [...document.querySelectorAll("main tbody tr")].map((row) => row.cells[head.cellIndex].innerText);
		return head.textContent === "Oldest" && shown.slice(0, 2).every((text) => /^[\d.]+ m?s$/.test(text)) && shown.slice(2).join() === "–,–";
	})()`)
	b.await("a class is empty when those beneath it are", `(() => {
		const [bulk, aggregator] = ["bulk", "aggregator"].map((name) => document.querySelector('a[href="#class/' + name + '"]').closest("tr"));
		const at = [...document.querySelectorAll("th button")].findIndex((head) => head.textContent === "Empty in");
		return /^2 d( \d+ h)?$/.test(bulk.cells[at].innerText) && aggregator.cells[at].innerText === bulk.cells[at].innerText;
	})()`)
	b.eval(`document.querySelector('a[href="#class/bulk"]').click()`)
	b.await("one click later it says why", `document.querySelector(".why")?.textContent.includes("waiting items: 49; the next leaves at")`)
	want := strings.TrimSpace(strings.SplitN(p.must("why", "bulk"), "\n", 3)[1])
	if got := b.eval(`document.querySelector(".why li:nth-child(2)").textContent`); got != want {
		t.Errorf("the page says %q, shaper why says %q", got, want)
	}
	b.await("and for how long the oldest message has waited", `/oldest waits for\s*\d+(\.\d+)? s/.test(document.querySelector("main").innerText)`)
	b.await("the curves are drawn, and the second one is at 49", `document.querySelectorAll("canvas").length === 3
		&& document.querySelectorAll("[role=img]")[1].ariaLabel.includes("last 49 at")`)
	p.must("set", "otp", "rate=5 messages/s")
	for view, says := range map[string]string{
		"classes": "bulk", "sessions": "127.0.0.1", "upstreams": upstream, "fleet": "this process has all budgets", "system": "lines", "changes": "5 messages/s",
	} {
		b.eval(fmt.Sprintf(`location.hash = %q`, view))
		b.await(view+" is shown", fmt.Sprintf(`document.querySelector("main").innerText.includes(%q) && document.querySelector("#connection").textContent === "live"`, says))
	}
	t.Run("keyboard", func(t *testing.T) { seesKeyboard(t, b) })
	t.Run("telephone", func(t *testing.T) { seesTelephone(t, b) })
	t.Run("axe", func(t *testing.T) { seesAxe(t, b) })
	t.Run("move", func(t *testing.T) { seesCurvesMove(t, b, upstream) })
	b.open("http://" + p.status().HTTP + "/")
	b.await("the page is live again", `document.querySelector("#connection")?.textContent === "live"`)
	if all := b.complaints(); len(all) > 0 {
		t.Errorf("the page complains: %s", strings.Join(all, "\n"))
	}
	p.stop()
	b.await("the page says that the daemon has gone", `document.querySelector("#connection").textContent.includes("no connection")`)
}

// seesKeyboard filters the classes and opens one with keys alone.
func seesKeyboard(t *testing.T, b *browser) {
	b.eval(`location.hash = "classes"`)
	b.await("the classes are there", `document.querySelectorAll("main tbody tr").length === 4`)
	b.press("/", "Slash", 191)
	b.call("Input.insertText", map[string]any{"text": "ot"}, nil)
	b.await("only otp is left", `document.querySelectorAll("main tbody tr").length === 1`)
	for range 40 {
		if b.eval(`document.activeElement.textContent`) == "otp" {
			break
		}
		b.press("Tab", "Tab", 9)
	}
	b.eval(`document.activeElement.click()`)
	b.await("otp is shown, and its title has the focus", `document.activeElement.textContent === "Class otp"`)
}

// seesTelephone looks at each view on a narrow screen: nothing may be wider than it, no table either.
func seesTelephone(t *testing.T, b *browser) {
	b.size(360, 740)
	for _, view := range []string{"classes", "class/bulk", "sessions", "upstreams", "system", "changes"} {
		b.eval(fmt.Sprintf(`location.hash = %q`, view))
		b.await(view+" is live", `document.querySelector("main tbody tr, main dl div") !== null`)
		if cut := b.eval(`[...document.querySelectorAll(".wide")].filter((w) => w.scrollWidth > w.clientWidth).map((w) => w.ariaLabel).join()`); cut != "" {
			t.Errorf("%s: on a screen of 360 pixels, a part of this table is out of sight: %v", view, cut)
		}
		if wide := b.eval(`document.documentElement.scrollWidth`); wide.(float64) > 360 {
			t.Errorf("%s is %v pixels wide on a screen of 360", view, wide)
		}
	}
	b.size(1100, 800)
}

// notePlots makes the page keep its plots in a list.
const notePlots = `{
	globalThis.drawn = [];
	let uPlot;
	Object.defineProperty(globalThis, "uPlot", {
		get: () => uPlot,
		set: (made) => uPlot = new Proxy(made, { construct: (of, args) => (drawn.push(new of(...args)), drawn.at(-1)) }),
	});
}`

// curveNow is what the page shows of the waiting items of a class: how many points the curve has, how many items wait
// now, and its picture.
const curveNow = `({ points: drawn[1].data[0].length, waiting: drawn[1].data[1].at(-1), picture: drawn[1].ctx.canvas.toDataURL() })`

// seesCurvesMove looks at a class through which traffic flows. Its curve goes down with the queue from one event to the
// next, and has a further point after the next sample, ten seconds later at most.
func seesCurvesMove(t *testing.T, b *browser, upstream string) {
	defer b.runFirst(notePlots)()
	p := start(t, plain(), fmt.Sprintf(flowPolicy, upstream))
	p.offer("flow", 2000)
	trial.Await(t, "messages wait", func() bool { return p.class("flow").Backlog > 0 })
	b.open("http://" + p.status().HTTP + "/#class/flow")
	b.await("the curve is drawn", `drawn[1]?.data[1].at(-1) > 0`)
	b.eval(`globalThis.first = ` + curveNow)
	b.await("the curve goes down with the queue", `((now) => now.waiting < first.waiting && now.picture !== first.picture)(`+curveNow+`)`)
	b.await("the curve has a further point", `((now) => now.points > first.points && now.waiting < first.waiting)(`+curveNow+`)`)
	b.await("the axis tells the seconds", `drawn[1].axes[0]._values?.filter((mark) => /^\d\d:\d\d:\d\d$/.test(mark)).length > 1`)
	b.await("the rate has a point while traffic flows", `drawn[0].data[1].slice(0, -1).some((sent) => sent > 0)`)
	b.open("about:blank") // so that no stream holds up the end of the daemon
}

// flowPolicy has a class whose queue lasts for more than a minute.
const flowPolicy = `
[class.flow]
rate = "20 messages/s"
queue = "4000 messages"
[listener.flow]
listen = "127.0.0.1:0"
protocol = "lines"
upstream = %q
class = "flow"
`

// axeSum is the SHA-256 of axe.min.js in axe-core 4.14.1.
const axeSum = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"

// seesAxe lets axe-core look for what hinders people who cannot see or use a mouse.
func seesAxe(t *testing.T, b *browser) {
	look := inAllLooks(t, b)
	for _, view := range []string{"classes", "class/bulk", "sessions", "upstreams", "fleet", "system", "changes"} {
		b.eval(fmt.Sprintf(`location.hash = %q`, view))
		b.await(view+" is live", `document.querySelector("main tbody tr, main dl div, main p:not([hidden])") !== null`)
		look(view)
	}
}

// inAllLooks returns a function that lets axe-core look at the page that is open: in the light and in the
// dark, on a telephone and on a wide screen. Unless sizes are full, it looks in the light on the wide screen
// and in the dark on the telephone. Only the colours of what a telephone does not show are then unseen in the dark.
func inAllLooks(t *testing.T, b *browser) (look func(page string)) {
	axe := axe(t)
	return func(page string) {
		t.Helper()
		b.eval(axe)
		for _, width := range []int{360, 1100} {
			b.size(width, 800)
			for _, scheme := range []string{"light", "dark"} {
				if !trial.Full && (width == 360) != (scheme == "dark") {
					continue
				}
				b.prefer(scheme)
				if found := b.eval(`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html).join(" ")).join("\n"))`); found != "" {
					t.Errorf("%s, %s, %d pixels: %v", page, scheme, width, found)
				}
			}
		}
	}
}

// axe returns the source of axe-core.
func axe(t *testing.T) string {
	t.Helper()
	source, err := fetchAxe()
	if err != nil {
		t.Skip(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(source)); sum != axeSum {
		t.Fatalf("axe.min.js has the hash %s, not %s", sum, axeSum)
	}
	return string(source)
}

// fetchAxe lets npm fetch axe-core, once for all tests.
var fetchAxe = sync.OnceValues(func() ([]byte, error) {
	pack := exec.Command("npm", "pack", "--silent", "axe-core@4.14.1")
	pack.Dir = binDir
	if out, err := pack.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm cannot fetch axe-core: %w\n%s", err, out)
	}
	return exec.Command("tar", "xzOf", filepath.Join(binDir, "axe-core-4.14.1.tgz"), "package/axe.min.js").Output()
})
