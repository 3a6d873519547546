package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"shaper/tests/trial"
)

// emptyPage is what paints need at least on this machine. It has an empty icon, for which a browser would
// ask later, perhaps when the server is gone.
const emptyPage = `<!doctype html><title>empty</title><link rel="icon" href="data:,"><p>empty</p>`

// paint opens a page and returns when the browser first painted content, in milliseconds since the navigation.
func (b *browser) paint(url string) float64 {
	b.t.Helper()
	b.open("about:blank")
	b.open(url)
	b.seesPaint()
	return b.eval(`performance.getEntriesByName("first-contentful-paint")[0].startTime`).(float64)
}

// seesPaint awaits that the page has painted content.
func (b *browser) seesPaint() {
	b.t.Helper()
	b.await("something is painted", `performance.getEntriesByName("first-contentful-paint").length === 1`)
}

// mostPaint is how long, in milliseconds, a first paint takes at most over loopback.
const mostPaint = 300

// Each page is painted soon. The test measures its first paint, beside that of an empty page in the same seconds.
// TestDashboard and TestPlayground see that they are painted at all.
func TestPagesArePainted(t *testing.T) {
	skipUnlessFull(t)
	t.Parallel()
	b := newBrowser(t)
	p, _ := startWaiting(t)
	defer b.open("about:blank") // so that no stream holds up the end of the daemon
	page := "http://" + p.status().HTTP + "/"
	pages := map[string]string{"the dashboard": page, "a class": page + "#class/bulk", "the playground": page + "play"}
	static := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, emptyPage) }))
	defer static.Close()
	pages["an empty page"] = static.URL + "/"
	watch, took := trial.Begin(), map[string][]float64{}
	for range 25 {
		for name, url := range pages {
			took[name] = append(took[name], b.paint(url))
		}
	}
	watch.Judge(t, 20*time.Millisecond, slowPaint(t, took))
}

// slowPaint returns a Miss if the median of a page's first paints is too long. A busy machine paints an empty page late,
// too, so what that takes, three times, is all that excuses a page.
func slowPaint(t *testing.T, took map[string][]float64) (slow *trial.Miss) {
	median := map[string]float64{}
	for name, all := range took {
		slices.Sort(all)
		median[name] = all[len(all)/2]
		trial.Figure(t, "first paint of "+name, "%.0f ms, %.0f to %.0f", median[name], all[0], all[len(all)-1])
	}
	for name, ms := range median {
		slow = trial.Join(slow, trial.Most(ms, mostPaint, mostPaint+3*median["an empty page"], "%s is first painted after %.0f ms, want at most %d", name, ms, mostPaint))
	}
	return slow
}
