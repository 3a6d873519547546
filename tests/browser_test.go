package tests

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"shaper/tests/trial"
)

// browser is a page in a headless Chromium, which the test drives through its DevTools protocol:
// JSON over two pipes, each message ended by a zero byte.
type browser struct {
	t       *testing.T
	out     *os.File
	session string // of the page

	mu       sync.Mutex
	number   int
	answers  map[int]chan reply
	mistakes []string // what the page has written to its console as a warning or an error
}

// reply is what the browser says: the answer to a call, or an event.
type reply struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  struct{ Message string }
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// newBrowser opens an empty page. Without Chromium it skips the test.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	bin := tool(t, "chromium", "chromium")
	in, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	theirIn, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, out: out, answers: map[int]chan reply{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(in)
	}()
	t.Cleanup(func() {
		out.Close() // so that the browser ends
		<-read
		cmd.Wait()
		in.Close()
	})
	b.attach()
	return b
}

// attach opens a page and listens to its console.
func (b *browser) attach() {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Runtime.enable", "Log.enable", "Page.enable"} {
		b.call(domain, nil, nil)
	}
}

// read takes what the browser says until it ends.
func (b *browser) read(in *os.File) {
	for r := bufio.NewReader(in); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m reply
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch answer := b.answers[m.ID]; {
		case answer != nil:
			delete(b.answers, m.ID)
			answer <- m
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded",
			m.Method == "Runtime.consoleAPICalled" && !strings.Contains(string(m.Params), `"type":"log"`):
			b.mistakes = append(b.mistakes, string(m.Params))
		}
		b.mu.Unlock()
	}
}

// call asks the browser for something.
func (b *browser) call(method string, params map[string]any, into any) {
	b.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	answer := make(chan reply, 1)
	b.mu.Lock()
	b.number++
	message := map[string]any{"id": b.number, "method": method, "params": params}
	b.answers[b.number] = answer
	b.mu.Unlock()
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.out.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	var got reply
	select {
	case got = <-answer:
	case <-time.After(patience):
		b.t.Fatalf("the browser has not answered %s within %v", method, patience)
	}
	if got.Error.Message != "" {
		b.t.Fatalf("%s: %s", method, got.Error.Message)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(got.Result, into); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

// eval returns the value of an expression in the page, as JSON has it. A promise is awaited.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, got.ExceptionDetails.Exception.Description)
	}
	return got.Result.Value
}

// await waits until an expression is true. A look takes the page some time, so it has a pause before the next.
func (b *browser) await(what, expression string) {
	b.t.Helper()
	trial.Await(b.t, what, func() bool {
		if b.eval(expression) == true {
			return true
		}
		time.Sleep(20 * time.Millisecond)
		return false
	})
}

// open loads a page.
func (b *browser) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.await("the page is there", fmt.Sprintf("location.href.startsWith(%q) && document.readyState === 'complete'", url))
}

// runFirst runs a script in each page that is loaded from now on, before its own, until undo.
func (b *browser) runFirst(script string) (undo func()) {
	b.t.Helper()
	var of struct{ Identifier string }
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": script}, &of)
	return func() {
		b.call("Page.removeScriptToEvaluateOnNewDocument", map[string]any{"identifier": of.Identifier}, nil)
	}
}

// size sets the size of the window, in pixels.
func (b *browser) size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// prefer sets whether the user prefers "light" or "dark".
func (b *browser) prefer(scheme string) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// press presses and releases a key.
func (b *browser) press(key, code string, number int) {
	b.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number}, nil)
	}
}

// complaints returns what the page has complained of so far.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.mistakes)
}
