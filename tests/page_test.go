package tests

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"shaper/daemon"
	"shaper/stats"
	"shaper/web"
)

// figures are what a dashboard shows without a daemon: what the test says.
type figures struct {
	mu    sync.Mutex
	lists map[string]any // what a view shows, by its name
}

func (*figures) Hosts() []string { return nil }
func (*figures) Summary() any {
	return daemon.Summary{Version: "test", State: daemon.Running, ReloadOK: true}
}
func (*figures) Classes() []web.Class  { return []web.Class{} }
func (*figures) Samples() []web.Sample { return nil }

func (*figures) Class(name string) (reading any, why string, ok bool) {
	c := daemon.Class{ClassReading: new(stats.Class).Read()}
	c.Name = name
	return c, "it waits", true
}

func (f *figures) List(name string) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists[name]
}

// show says what a view shows from now on.
func (f *figures) show(view string, what any) {
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
	f := &figures{lists: map[string]any{}}
	server := httptest.NewServer(web.New(f))
	defer server.Close()
	b := newBrowser(t)
	defer b.open("about:blank") // so that no stream holds up the end of the server
	t.Run("live", func(t *testing.T) { seesLive(t, b, f, server.URL) })
	t.Run("kernel", func(t *testing.T) { seesKernel(t, b, f, server.URL) })
}

// seesLive shows the page something that it cannot draw. Then it does not say that what it shows is live.
func seesLive(t *testing.T, b *browser, f *figures, url string) {
	f.show("system", "nonsense")
	b.open(url + "/#system")
	b.await("the page has had an event", `document.querySelector("#summary").textContent !== ""`)
	waitFor(t, "the page complains", func() bool { return strings.Contains(strings.Join(b.complaints(), "\n"), "TypeError") })
	if got := b.eval(`document.querySelector("#connection").textContent`); got == "live" {
		t.Errorf("the page cannot draw what it got, and says %q", got)
	}
	f.show("system", statusOf(stats.Status{}))
	b.await("the page draws again", `document.querySelector("#connection").textContent === "live"`)
}

// seesKernel reads what the page says of the kernel, which is not what the policy has if that is why nothing is shaped.
func seesKernel(t *testing.T, b *browser, f *figures, url string) {
	b.open(url + "/#system")
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
