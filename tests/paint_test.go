package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

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
	b.await("something is painted", `performance.getEntriesByName("first-contentful-paint").length === 1`)
	return b.eval(`performance.getEntriesByName("first-contentful-paint")[0].startTime`).(float64)
}

// seesPaint measures the first paint of pages, beside an empty page in the same seconds. Only at full size
// is that a figure; else it shows that each page paints.
func seesPaint(t *testing.T, b *browser, pages map[string]string) {
	t.Helper()
	static := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, emptyPage) }))
	defer static.Close()
	pages["an empty page"] = static.URL + "/"
	took := map[string][]float64{}
	for range trial.Size(1, 25) {
		for name, url := range pages {
			took[name] = append(took[name], b.paint(url))
		}
	}
	for name, all := range took {
		slices.Sort(all)
		trial.Figure(t, "first paint of "+name, "%.0f ms, %.0f to %.0f", all[len(all)/2], all[0], all[len(all)-1])
	}
}
